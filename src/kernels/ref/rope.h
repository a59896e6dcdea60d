// SPDX-License-Identifier: Apache-2.0
// rope.h: the reference body of kernels/rope.h.
#pragma once

#include "kernels/rope.h"

namespace planalto::kernels::reference {

void rope_apply(const RopeApply& a);

}  // namespace planalto::kernels::reference
