// SPDX-License-Identifier: Apache-2.0
// optimizer.h: emits the pieces of an optimizer step: squares of a gradient, the clip decision, the AdamW update.
// Shapes      square_sums double [P]; StepVerdict is one element of a statistic buffer
// Invariants  nothing is updated when the verdict says skip
#pragma once

#include <string>

#include "ops/operand.h"

namespace planalto::ops {

// Written once a step, before the first update; read by every update and by the trainer afterwards.
struct StepVerdict {
  double grad_norm = 0.0;          // before clipping
  float grad_factor = 1.0F;        // min(1, max_norm / (norm + 1e-6)), 1 without clipping
  std::int32_t skip = 0;           // 1: no trained label, or something is not finite: no parameter changes
  std::int32_t bad_gradient = -1;  // index of the first parameter whose gradient is not finite
  std::int32_t bad_loss = 0;
};

void sum_squares(Builder& b, const std::string& name, Buffer gradient, Buffer square_sums,
                 std::int64_t index);
// trained int64 [1]: labels of the step; loss_sums double [num_losses]
void decide_step(Builder& b, const std::string& name, Buffer square_sums, Buffer loss_sums, Buffer trained,
                 double max_norm, Buffer verdict);

struct AdamWBuffers {
  Buffer gradient, master, m, v;
  Weight weight;  // its bf16 form; plain and invalid when master is the weight
};
void adamw(Builder& b, const std::string& name, const AdamWBuffers& p, Buffer scalars, Buffer verdict,
           float decay);

}  // namespace planalto::ops
