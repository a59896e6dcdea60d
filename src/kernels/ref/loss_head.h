// SPDX-License-Identifier: Apache-2.0
// ref/loss_head.h: cross entropy of softmax(x w^T) and its gradients, one row at a time, in double.
// Numerics    dtype f64 too (for central differences); one rounding at each output. The gradient of the logits is not
//             rounded to bf16 on the way, as the CPU body's is.
#pragma once

#include "kernels/loss_head.h"

namespace planalto::kernels::reference {

void loss_head(const LossHead& a);

}  // namespace planalto::kernels::reference
