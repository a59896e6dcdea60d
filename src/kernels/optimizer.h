// SPDX-License-Identifier: Apache-2.0
// optimizer.h: AdamW with fp32 master weights and moments, and the sums of squares that clipping needs.
// Shapes      n elements of grad, master, m, v fp32; weight [n] bf16 or null
// Numerics    fp32 in this order, factors of scalars in double and rounded once: g' = g grad_factor;
//             m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2;
//             p = p (1 - lr decay) - (lr/c1) m / (sqrt(v) / sqrt(c2) + eps); weight = to_bf16(p).
//             Moments below 2^-126 become 0: as subnormals they would never decay away, and slow every step.
//             sum_squares: fixed blocks of 4096 elements in double, added in block order
// Invariants  when *skip is not 0 nothing is written; a zero gradient still decays weights and moments;
//             how n is cut into calls changes no bit
// Reference   kernels/ref/optimizer.cpp
// Source      arXiv 1711.05101, torch.optim.AdamW
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/isa.h"
#include "kernels/packed_weight.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

struct AdamWScalars {  // filled by the trainer before a step; a buffer of the program
  // double: 1 - 0.999F is wrong in its fifth digit
  double learning_rate = 0.0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double correction1 = 1.0, correction2 = 1.0;  // 1 - beta^step
};
struct AdamWUpdate {
  std::int64_t n = 0;
  const float* grad = nullptr;
  float* master = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  void* weight = nullptr;  // bf16 [n]; null in fp32, where master is the weight, and where copies are packed
  PackedCopies packed{};   // written in the same pass; num 0: none
  const AdamWScalars* scalars = nullptr;
  const float* grad_factor = nullptr;  // clipping; null: 1
  const std::int32_t* skip = nullptr;  // null: never
  float decay = 0.0F;                  // 0 for exempt parameters
};
struct SumSquares {
  const float* x = nullptr;
  std::int64_t n = 0;
  double* sum = nullptr;  // overwritten; NaN or infinite when an element is
  Workspace workspace{};
};
std::int64_t sum_squares_workspace_bytes(std::int64_t n);
void adamw_update(const ExecContext& ctx, const AdamWUpdate& a);
void sum_squares(const ExecContext& ctx, const SumSquares& a);

}  // namespace planalto::kernels
