// SPDX-License-Identifier: Apache-2.0
// elementwise.h: the reference bodies of kernels/elementwise.h.
#pragma once

#include "kernels/elementwise.h"

namespace planalto::kernels::reference {

void add_rows(const AddRows& a);
void cast_elements(const CastElements& a);
void bias_grad(const BiasGrad& a);
void mla_keys_forward(const MlaKeysForward& a);
void mla_keys_backward(const MlaKeysBackward& a);

}  // namespace planalto::kernels::reference
