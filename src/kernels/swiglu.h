// SPDX-License-Identifier: Apache-2.0
// swiglu.h: act = row_weight * silu(gate) * up and its backward; gate and up stand side by side in one matrix.
// Shapes      gate_up, dgate_up [R, 2F] (gate first), act, dact [R, F] of one dtype; row_weight, drow_weight [R] fp32
//             or null (weight 1; not wanted). R may be zero.
// Numerics    in fp32, one rounding. With s = sigmoid(gate): dgate = w dact up s (1 + gate (1 - s)),
//             dup = w dact silu(gate), drow_weight = sum over F of dact silu(gate) up in a fixed tree
// Invariants  rows past rows.get() are neither read nor written; dgate_up may be gate_up
// Reference   kernels/ref/swiglu.cpp
// Source      arXiv 2002.05202; the route weight enters before the down projection, so that combine is a plain sum
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/isa.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

struct SwigluForward {
  ConstMatrix gate_up{};
  const float* row_weight = nullptr;
  Matrix act{};
  RowCount rows{};
};
struct SwigluBackward {
  ConstMatrix gate_up{};
  const float* row_weight = nullptr;
  ConstMatrix dact{};
  Matrix dgate_up{};
  float* drow_weight = nullptr;
  Matrix act{};  // data null: not wanted; else the forward activation again (weighted), for the down
                 // projection's weight gradient
  RowCount rows{};
};
void swiglu_forward(const ExecContext& ctx, const SwigluForward& a);
void swiglu_backward(const ExecContext& ctx, const SwigluBackward& a);

}  // namespace planalto::kernels
