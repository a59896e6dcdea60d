// SPDX-License-Identifier: Apache-2.0
// loss_head.h: vocabulary projection and cross entropy in tiles of tokens: loss, and both gradients in the same pass; no
//              T x V logits.
// Shapes      x, dx [T, D]; w [V, D], dtype of x; labels [T] int32 in [0, V) or -100 (ignored); dw [V, D] fp32
// Invariants  an ignored row contributes 0 and gets gradient row 0, whatever *grad_scale is (1 / 0 too)
// Numerics    logits, maximum and the label's subtraction in fp32, exponentials summed in fp32 blocks and then in double;
//             loss = maximum + log(sum) - logit of the label. *loss_sum += the rows' losses in row order, in double, not
//             divided. Gradients are multiplied by *grad_scale (1 / trained labels of the step); the gradient of the
//             logits is rounded to the dtype of x before it is multiplied by w and x. Bits do not depend on threads;
//             those of dw depend on tile_rows only where a bf16 pair (AVX-512-BF16, AMX) straddles two tiles.
// Memory      workspace: one tile of tile_rows x V fp32 and the scratch of a matrix product
// Errors      data: a label outside [0, V) that is not -100
// Reference   kernels/ref/loss_head.h
// Source      cross entropy over a large vocabulary in pieces: arXiv 2411.09009 has the same bound on memory
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/isa.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

inline constexpr std::int32_t kIgnoredLabel = -100;

struct LossHead {
  ConstMatrix x;
  ConstMatrix w;
  // The copies of w (packed_weight.h), read in its place: w.data may be null. Backward is needed for dx.
  const void* packed_forward = nullptr;
  const void* packed_backward = nullptr;
  const std::int32_t* labels = nullptr;
  double* loss_sum = nullptr;
  float* row_loss = nullptr;          // [T], 0 where ignored; null: not wanted
  const float* grad_scale = nullptr;  // may be null when there is neither dx nor dw
  Matrix dx;                          // data null: not wanted
  bool accumulate_dx = false;
  Matrix dw;  // data null: not wanted
  bool accumulate_dw = false;
  std::int64_t tile_rows = 128;
  RowCount tokens;
  Workspace workspace;
};
struct LossHeadDescription {
  DType dtype = DType::f32;  // of x and w
  std::int64_t max_tokens = 0, d = 0, vocab = 0, tile_rows = 128;
  bool gradients = true;
};
std::int64_t loss_head_workspace_bytes(const LossHeadDescription& d, Isa isa, int num_threads);
void loss_head(const ExecContext& ctx, const LossHead& a);

}  // namespace planalto::kernels
