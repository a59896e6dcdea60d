// SPDX-License-Identifier: Apache-2.0
#include "app/commands.h"
#include "cluster/hardware_profile.h"

namespace planalto {

Target this_target(int threads) {
  return detect_hardware().target(threads);
}

}  // namespace planalto
