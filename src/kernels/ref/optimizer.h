// SPDX-License-Identifier: Apache-2.0
// optimizer.h: the reference bodies of kernels/optimizer.h.
#pragma once

#include "kernels/optimizer.h"

namespace planalto::kernels::reference {

void adamw_update(const AdamWUpdate& a);
void sum_squares(const SumSquares& a);

}  // namespace planalto::kernels::reference
