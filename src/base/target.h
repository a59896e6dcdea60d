// SPDX-License-Identifier: Apache-2.0
// target.h: what a program may know of the machine that it is built for: enough to size workspaces, nothing that is measured.
// Invariants  comes from a hardware profile (this machine's, or a named one); nothing below queries the machine again
#pragma once

#include <cstdint>

namespace planalto {

namespace kernels {
enum class Isa;
}

struct Target {
  kernels::Isa isa{};
  int num_threads = 1;
};

}  // namespace planalto
