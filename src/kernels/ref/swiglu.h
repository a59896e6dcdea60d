// SPDX-License-Identifier: Apache-2.0
// swiglu.h: the reference bodies of kernels/swiglu.h.
#pragma once

#include "kernels/swiglu.h"

namespace planalto::kernels::reference {

void swiglu_forward(const SwigluForward& a);
void swiglu_backward(const SwigluBackward& a);

}  // namespace planalto::kernels::reference
