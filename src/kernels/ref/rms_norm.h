// SPDX-License-Identifier: Apache-2.0
// rms_norm.h: the reference bodies of kernels/rms_norm.h.
#pragma once

#include "kernels/rms_norm.h"

namespace planalto::kernels::reference {

void rms_norm_forward(const RmsNormForward& a);
void rms_norm_backward(const RmsNormBackward& a);

}  // namespace planalto::kernels::reference
