// SPDX-License-Identifier: Apache-2.0
// router_testing.h: owned inputs and outputs of the router kernels, for their tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/router.h"
#include "support/kernel_testing.h"

namespace planalto::test {

struct Routing {
  kernels::RouterOptions options;
  std::vector<float> logits, bias;  // bias may be empty
  std::vector<float> scores, weights;
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> counts;

  Routing(const kernels::RouterOptions& o, std::vector<float> from, std::vector<float> with_bias = {})
      : options(o), logits(std::move(from)), bias(std::move(with_bias)) {
    const std::size_t tokens = logits.size() / static_cast<std::size_t>(o.num_experts);
    scores.assign(logits.size(), std::nanf(""));
    weights.assign(tokens * static_cast<std::size_t>(o.top_k), std::nanf(""));
    ids.assign(weights.size(), -1);
    counts.assign(static_cast<std::size_t>(o.num_experts), -1);
  }
  std::int64_t tokens() const { return static_cast<std::int64_t>(logits.size()) / options.num_experts; }
  kernels::RouterForward forward() {
    return {.options = options,
            .logits = logits.data(),
            .bias = bias.empty() ? nullptr : bias.data(),
            .scores = scores.data(),
            .ids = ids.data(),
            .weights = weights.data(),
            .counts = counts.data(),
            .tokens = {.capacity = tokens()}};
  }
  kernels::RouterWeights again() {
    return {.options = options,
            .logits = logits.data(),
            .ids = ids.data(),
            .scores = scores.data(),
            .weights = weights.data(),
            .counts = counts.data(),
            .tokens = {.capacity = tokens()}};
  }
};

inline std::vector<float> random_logits(std::int64_t n, std::uint64_t seed, double range = 3.0) {
  Random random(seed);
  std::vector<float> logits;
  for (std::int64_t i = 0; i < n; ++i) logits.push_back(static_cast<float>(random.uniform(-range, range)));
  return logits;
}

// Every rule of the families, and sizes that are no multiple of a vector.
inline std::vector<kernels::RouterOptions> router_variants() {
  using kernels::GroupScore, kernels::RouterScore;
  return {
      {.num_experts = 256,
       .top_k = 8,
       .num_groups = 8,
       .top_groups = 4,
       .score = RouterScore::sigmoid,
       .scaling = 2.5},
      {.num_experts = 24,
       .top_k = 4,
       .num_groups = 4,
       .top_groups = 3,
       .score = RouterScore::sigmoid,
       .normalize = false},
      {.num_experts = 12, .top_k = 3, .score = RouterScore::sigmoid, .scaling = 1.5},
      {.num_experts = 160,
       .top_k = 6,
       .num_groups = 8,
       .top_groups = 3,
       .group_score = GroupScore::best,
       .normalize = false,
       .scaling = 16.0},
      {.num_experts = 40, .top_k = 5, .num_groups = 5, .top_groups = 2},
      {.num_experts = 128, .top_k = 8},
      {.num_experts = 60, .top_k = 4, .normalize = false},
      {.num_experts = 8, .top_k = 8},
      {.num_experts = 1, .top_k = 1},
      {.num_experts = 1024, .top_k = 64, .score = RouterScore::sigmoid},
  };
}

}  // namespace planalto::test
