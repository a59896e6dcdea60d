// SPDX-License-Identifier: Apache-2.0
// grouped_gemm.h: ragged products of E segments of rows with E stacked weights, one call for all; a dense product is E = 1.
// Shapes      x [R, K], w [E * N, K] (expert e owns rows e*N .. e*N+N-1), y and dy [R, N], dx [R, K], dw [E * N, K] fp32;
//             any extent may be zero: an empty sum is 0
// Invariants  offsets[0] = 0 <= ... <= offsets[E] <= R; any segment may be empty; rows past offsets[E] are never read or
//             written. offsets null: one segment of rows.get() rows.
// Numerics    bf16 or fp32, each operand its own; a sum is one chain of fp32 fused multiply-adds in ascending k (pairs of k
//             on AVX-512-BF16 and AMX when both operands are bf16), then + y, + bias, one rounding. grad_weight's chain goes
//             on from dw. A packed copy gives the bits of the plain weight. Bits depend on neither threads, nor the number of
//             rows, nor a row's place; weight gradients of microbatches accumulated in order have the bits of one big batch
//             (when no pair straddles a seam).
// Memory      scratch from `workspace`, as grouped_gemm_workspace_bytes says
// Errors      internal: shapes, strides or dtypes that do not fit together, offsets that descend, a small workspace
// Source      original
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/isa.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

struct Segments {
  std::int64_t num = 1;                   // E
  const std::int64_t* offsets = nullptr;  // [E + 1] rows
};

// y = x w^T (+ y when accumulate) (+ bias)
struct GroupedGemmForward {
  ConstMatrix x;
  ConstMatrix w;
  const void* packed =
      nullptr;  // the forward copy of w (packed_weight.h), read in its place: w.data may be null
  const void* bias = nullptr;  // [E, N], dtype of w; null: none
  Matrix y;                    // bf16 or fp32
  Segments segments = {};
  RowCount rows;
  bool accumulate = false;
  Workspace workspace = {};
};
// dx = dy w (+ dx when accumulate)
struct GroupedGemmGradInput {
  ConstMatrix dy;
  ConstMatrix w;
  const void* packed = nullptr;  // the backward copy of w
  Matrix dx;
  Segments segments = {};
  RowCount rows;
  bool accumulate = false;
  Workspace workspace = {};
};
// dw[e] = dy[segment e]^T x[segment e] (+ dw when accumulate); an empty segment gives zeros, or is left alone when accumulating
struct GroupedGemmGradWeight {
  ConstMatrix dy;
  ConstMatrix x;
  Matrix dw;  // [E * N, K] fp32
  Segments segments = {};
  RowCount rows;
  bool accumulate = false;
  Workspace workspace = {};
};

enum class GemmPass { forward, grad_input, grad_weight };
struct GroupedGemmDescription {
  GemmPass pass = GemmPass::forward;
  DType dtype = DType::f32;       // bf16 when both operands are
  std::int64_t max_rows = 0;      // R, capacity * multiplier
  std::int64_t n = 0, k = 0;      // of the weight [N, K]
  std::int64_t num_segments = 1;  // E
};
// Depends on nothing but its arguments, so a plan can be made for a machine that is not here.
std::int64_t grouped_gemm_workspace_bytes(const GroupedGemmDescription& d, Isa isa, int num_threads);

void grouped_gemm_forward(const ExecContext& ctx, const GroupedGemmForward& a);
void grouped_gemm_grad_input(const ExecContext& ctx, const GroupedGemmGradInput& a);
void grouped_gemm_grad_weight(const ExecContext& ctx, const GroupedGemmGradWeight& a);

}  // namespace planalto::kernels
