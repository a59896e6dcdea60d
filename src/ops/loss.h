// SPDX-License-Identifier: Apache-2.0
// loss.h: emits the vocabulary projection with cross entropy in token tiles: loss, and both gradients in the same pass.
// Shapes      x, dx [T, D], w [V, D], dw [V, D] fp32, loss_sums double [n], grad_scales fp32 [n]
// Reference   kernels/loss_head.h
#pragma once

#include <string>

#include "ops/operand.h"

namespace planalto::ops {

struct LossOutputs {
  Buffer loss_sums;  // += at [index]
  std::int64_t index = 0;
  Buffer row_loss;     // [T] fp32; invalid: not wanted
  Buffer grad_scales;  // read at [index]; invalid: loss only
  Buffer dx, dw;
  bool accumulate_dx = false;
};
// Tokens of a tile when a run names none: as many as fp32 logits fill 64 MiB with, 128 to 512. More make no difference to
// speed, fewer read the weights more often.
std::int64_t automatic_tile_rows(std::int64_t vocab);

// tile_rows 0: automatic
void loss_head(Builder& b, const std::string& name, Buffer x, const Weight& w, const Batch& batch,
               std::int64_t tile_rows, const LossOutputs& out);

}  // namespace planalto::ops
