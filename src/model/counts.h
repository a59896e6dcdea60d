// SPDX-License-Identifier: Apache-2.0
// counts.h: parameters and flops of a model by closed form, under the names of
// tests/golden/configs/counts.json. Reference   the sums over parameter_specs, and the golden counts
#pragma once

#include <cstdint>

#include "model/config.h"

namespace planalto {

struct ParameterCounts {
  std::int64_t total = 0;                     // trainable, MTP modules and correction biases excluded
  std::int64_t routed = 0;                    // all routed experts; neither router nor shared experts
  std::int64_t embedding = 0, head = 0;       // tied: head 0
  std::int64_t active_with_embedding = 0;     // total - routed + routed * top_k / experts
  std::int64_t active_without_embedding = 0;  // less the look-up; the head stays in, tied or not
  std::int64_t layers = 0, moe_layers = 0;
  std::int64_t router_bias = 0;  // elements of the correction biases of the main layers
  std::int64_t mtp = 0;          // MTP modules without the shared embedding and head
};
ParameterCounts count_parameters(const ModelConfig& config);

// Forward and backward of one token in a sequence of this length, full (not halved) attention, no embedding
// look-up: 6 * active_without_embedding + 6 * heads * (qk_dim + v_dim) * length * layers.
double train_flops_per_token(const ModelConfig& config, std::int64_t sequence_length);

}  // namespace planalto
