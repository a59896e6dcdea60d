// SPDX-License-Identifier: Apache-2.0
// packed_weight.h: the layout of kernels/packed_weight.h, element by element.
#pragma once

#include "kernels/packed_weight.h"

namespace planalto::kernels::reference {

void pack_weight(const PackWeight& a, std::int64_t panel_lines);

}  // namespace planalto::kernels::reference
