// SPDX-License-Identifier: Apache-2.0
// grouped_gemm.h: the reference bodies of kernels/grouped_gemm.h: one double sum an element; fp64 views too.
#pragma once

#include "kernels/grouped_gemm.h"

namespace planalto::kernels::reference {

void grouped_gemm_forward(const GroupedGemmForward& a);
void grouped_gemm_grad_input(const GroupedGemmGradInput& a);
void grouped_gemm_grad_weight(const GroupedGemmGradWeight& a);

}  // namespace planalto::kernels::reference
