// SPDX-License-Identifier: Apache-2.0
// rms_norm.h: y = x * rsqrt(mean(x^2) + eps) * weight, row by row, and its backward.
// Shapes      x, y, dy, dx [R, D] of any row stride (per-head norms pass R = T*H rows of Dh); weight [D]; rstd [R] fp32.
//             All but rstd and dweight are of one dtype. R may be zero: dweight is then zeroed or left.
// Invariants  rows past rows.get() are neither read nor written; y may be x; dx may be dy
// Numerics    statistics in fp32; in bf16 the normalised value is rounded before the multiplication by weight, and
//             the product again. Backward in fp32 from x and rstd: n = x rstd, g = dy weight,
//             dx = rstd (g - n mean(g n)). dweight = sum over rows of dy n: fp32 partial sums over fixed blocks
//             of rows (column_blocks.h), added in block order, so bits do not depend on threads
// Reference   kernels/ref/rms_norm.cpp
// Source      arXiv 1910.07467; the order of rounding is that of Hugging Face
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/isa.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

struct RmsNormForward {
  ConstMatrix x{};
  const void* weight = nullptr;  // [D], dtype of x
  float eps = 1e-6F;
  Matrix y{};
  float* rstd = nullptr;  // [R] saved for backward; null: not wanted
  RowCount rows{};
};
struct RmsNormBackward {
  ConstMatrix x{};
  const void* weight = nullptr;
  const float* rstd = nullptr;
  ConstMatrix dy{};
  Matrix dx{};                 // may alias dy
  bool accumulate_dx = false;  // dx += (the residual path's gradient is already there)
  float* dweight = nullptr;    // [D] fp32; null: not wanted, and no workspace is needed
  bool accumulate_dweight = false;
  RowCount rows{};
  Workspace workspace{};
};
std::int64_t rms_norm_backward_workspace_bytes(std::int64_t max_rows, std::int64_t d);
void rms_norm_forward(const ExecContext& ctx, const RmsNormForward& a);
void rms_norm_backward(const ExecContext& ctx, const RmsNormBackward& a);

}  // namespace planalto::kernels
