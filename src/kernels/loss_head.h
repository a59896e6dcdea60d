// SPDX-License-Identifier: Apache-2.0
// loss_head.h: vocabulary projection and cross entropy in tiles of tokens: loss, and both gradients in the same pass; no T x V logits.
// Shapes      x, dx [T, D]; w [V, D]; labels [T] int32 in [0, V) or -100 (ignored); dw [V, D] fp32; workspace: one tile of tile_rows x V
// Invariants  an ignored row contributes 0 and gets gradient row 0; row_loss [T] fp32 (0 where ignored) is optional
// Numerics    logits, maximum, sum and the label's subtraction in fp32; *loss_sum += sum of row losses, in row order, in double (not
//             divided). Gradients are multiplied by *grad_scale (1 / trained labels of the step).
// Source      cross entropy over a large vocabulary in pieces: arXiv 2411.09009 has the same bound on memory
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/isa.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

struct LossHead {
  ConstMatrix x;
  ConstMatrix w;
  const std::int32_t* labels = nullptr;
  double* loss_sum = nullptr;
  float* row_loss = nullptr;        // null: not wanted
  const float* grad_scale = nullptr;
  Matrix dx;                        // data null: loss only
  bool accumulate_dx = false;
  Matrix dw;                        // data null: loss only
  bool accumulate_dw = false;
  std::int64_t tile_rows = 128;
  RowCount tokens;
  Workspace workspace;
};
struct LossHeadDescription {
  DType dtype = DType::f32;
  std::int64_t max_tokens = 0, d = 0, vocab = 0, tile_rows = 128;
  bool gradients = true;
};
std::int64_t loss_head_workspace_bytes(const LossHeadDescription& d, Isa isa, int num_threads);
void loss_head(const ExecContext& ctx, const LossHead& a);

}  // namespace planalto::kernels
