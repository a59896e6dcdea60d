// SPDX-License-Identifier: Apache-2.0
// linear.h: emits dense and grouped products with weights [N, K], forward and backward, bias included.
// Shapes      x [rows, K], w [N, K], y [rows, N]; grouped: w [E*N, K], offsets int64 [E + 1]
// Reference   kernels/grouped_gemm.h
#pragma once

#include <string>

#include "ops/operand.h"

namespace planalto::ops {

// One segment of all rows when offsets is invalid.
struct Groups {
  std::int64_t num = 1;
  Buffer offsets;
};

// y = x w^T (+ bias) (+ y)
void linear(Builder& b, const std::string& name, const Cols& x, const Weight& w, const Cols& y,
            const Rows& rows, Buffer bias = {}, bool accumulate = false, const Groups& groups = {});
// dx = dy w (+ dx)
void linear_grad_input(Builder& b, const std::string& name, const Cols& dy, const Weight& w, const Cols& dx,
                       const Rows& rows, bool accumulate = false, const Groups& groups = {});
// dw (+)= dy^T x: overwrites on the first write of the step, adds afterwards
void linear_grad_weight(Builder& b, const std::string& name, const Cols& dy, const Cols& x, Buffer dw,
                        const Rows& rows, const Groups& groups = {});
// Writes the packed copies of a weight from its fp32 source [rows, cols].
void pack_weight(Builder& b, const std::string& name, Buffer source, const Weight& w);
// dbias (+)= column sums of dy
void bias_grad(Builder& b, const std::string& name, const Cols& dy, Buffer dbias, const Rows& rows);

}  // namespace planalto::ops
