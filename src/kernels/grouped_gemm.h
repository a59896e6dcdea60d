// SPDX-License-Identifier: Apache-2.0
// grouped_gemm.h: ragged products of E segments of rows with E stacked weights, one call for all; a dense product is E = 1.
// Shapes      x [R, K], w [E * N, K] (expert e owns rows e*N .. e*N+N-1), y and dy [R, N], dx [R, K], dw [E * N, K] fp32
// Invariants  offsets[0] = 0 <= ... <= offsets[E] <= R; any segment may be empty; rows past offsets[E] are never read or
//             written. offsets null: one segment of rows.get() rows.
// Numerics    bf16 or fp32 in (one dtype for x and w), sums in fp32 along k ascending, one rounding at the end;
//             a row's result does not depend on where it lies in a segment or tile, nor on the number of threads
// Memory      scratch from `workspace`, as grouped_gemm_workspace_bytes says
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
  std::int64_t num = 1;                    // E
  const std::int64_t* offsets = nullptr;   // [E + 1] rows
};

// y = x w^T (+ y when accumulate) (+ bias)
struct GroupedGemmForward {
  ConstMatrix x;
  ConstMatrix w;
  const void* bias = nullptr;  // [E, N], dtype of w; null: none
  Matrix y;                    // bf16 or fp32
  Segments segments;
  RowCount rows;
  bool accumulate = false;
  Workspace workspace;
};
// dx = dy w (+ dx when accumulate)
struct GroupedGemmGradInput {
  ConstMatrix dy;
  ConstMatrix w;
  Matrix dx;
  Segments segments;
  RowCount rows;
  bool accumulate = false;
  Workspace workspace;
};
// dw[e] = dy[segment e]^T x[segment e] (+ dw when accumulate); an empty segment gives zeros, or is left alone when accumulating
struct GroupedGemmGradWeight {
  ConstMatrix dy;
  ConstMatrix x;
  Matrix dw;  // [E * N, K] fp32
  Segments segments;
  RowCount rows;
  bool accumulate = false;
  Workspace workspace;
};

enum class GemmPass { forward, grad_input, grad_weight };
struct GroupedGemmDescription {
  GemmPass pass = GemmPass::forward;
  DType dtype = DType::f32;       // of x, w, dy
  std::int64_t max_rows = 0;      // R
  std::int64_t n = 0, k = 0;      // of the weight [N, K]
  std::int64_t num_segments = 1;  // E
};
// Depends on nothing but its arguments, so a plan can be made for a machine that is not here.
std::int64_t grouped_gemm_workspace_bytes(const GroupedGemmDescription& d, Isa isa, int num_threads);

void grouped_gemm_forward(const ExecContext& ctx, const GroupedGemmForward& a);
void grouped_gemm_grad_input(const ExecContext& ctx, const GroupedGemmGradInput& a);
void grouped_gemm_grad_weight(const ExecContext& ctx, const GroupedGemmGradWeight& a);

}  // namespace planalto::kernels
