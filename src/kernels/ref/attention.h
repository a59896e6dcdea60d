// SPDX-License-Identifier: Apache-2.0
// ref/attention.h: attention as the formulas have it, one row at a time, in double.
// Numerics    dtype f64 too (for central differences); sums in double, one rounding at each output. Backward
// takes the
//             softmax from q and k again and reads neither out nor lse, so that its gradient is that of the
//             forward pass.
#pragma once

#include "kernels/attention.h"

namespace planalto::kernels::reference {

void attention_forward(const AttentionForward& a);
void attention_backward(const AttentionBackward& a);

}  // namespace planalto::kernels::reference
