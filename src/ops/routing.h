// SPDX-License-Identifier: Apache-2.0
// routing.h: emits the router, its losses and statistics, the layout of routes and the moves along it.
// Shapes      as in kernels/{router,permute}.h; R = T * K rows at capacity
#pragma once

#include <string>

#include "kernels/router.h"
#include "ops/operand.h"

namespace planalto::ops {

// The routing of one layer and microbatch: what dispatch, experts, combine and the router's backward need.
struct Routes {
  Buffer logits, scores;                     // [T, E] fp32
  Buffer ids;                                // [T, K] int32
  Buffer weights;                            // [T, K] fp32
  Buffer counts;                             // [E] int64
  Buffer offsets;                            // [E + 1] int64
  Buffer source_row, position, row_weights;  // [R], [T, K], [R]
  Rows tokens;
  std::int64_t num_experts = 0, top_k = 0;

  Rows rows() const { return tokens.times(top_k); }
};

// bias invalid: none. The selection happens here and nowhere else.
void route(Builder& b, const std::string& name, const kernels::RouterOptions& o, Buffer bias,
           const Routes& r);
// Weights and counts for ids that exist already: a recompute, a replay.
void route_again(Builder& b, const std::string& name, const kernels::RouterOptions& o, const Routes& r);
void route_layout(Builder& b, const std::string& name, const Routes& r);
// dlogits = gradient at the logits of the weights' gradient
void route_backward(Builder& b, const std::string& name, const kernels::RouterOptions& o, const Routes& r,
                    Buffer dweights, Buffer dlogits);

struct AuxLoss {
  kernels::AuxLossKind kind = kernels::AuxLossKind::microbatch;
  double coefficient = 0.0;
  std::int64_t scale_index = kAuxScale;  // into batch.aux_scale
  Buffer joined_counts{};
  std::int64_t joined_layers = 1;
};
// Adds the loss to loss[loss_index] (double; invalid: not wanted) and the gradient to dlogits (invalid: not wanted).
void aux_loss(Builder& b, const std::string& name, const kernels::RouterOptions& o, const AuxLoss& aux,
              const Routes& r, const Batch& batch, Buffer loss, std::int64_t loss_index, Buffer dlogits);
// totals[row] (+)= counts: overwrites when `first`
void count_routes(Builder& b, const std::string& name, const Routes& r, Buffer totals, std::int64_t row,
                  bool first);
// bias += rate * sign(mean - counts) from totals[row], unless the verdict (ops/optimizer.h) says skip
void update_router_bias(Builder& b, const std::string& name, Buffer bias, Buffer totals, std::int64_t row,
                        float rate, Buffer verdict);

void gather_rows(Builder& b, const std::string& name, Buffer x, Buffer source_row, Buffer rows,
                 const Rows& num_rows);
void combine_rows(Builder& b, const std::string& name, Buffer rows, const Routes& r, Buffer y,
                  bool accumulate);
void scatter_rows(Builder& b, const std::string& name, Buffer rows, Buffer target_row, Buffer y,
                  const Rows& num_rows);
void unsort_route_values(Builder& b, const std::string& name, Buffer sorted, const Routes& r, Buffer values);

}  // namespace planalto::ops
