// SPDX-License-Identifier: Apache-2.0
// sampler.h: the next token from logits: greedy, or by temperature among the top k and the top share p.
// Invariants  temperature 0 is greedy; of equal logits the lowest id is taken first; rows past `vocabulary` (padded) are never drawn
// Numerics    softmax in double; the draw is a function of (seed, number of the draw)
// Errors      config: temperature below 0 or not a number, top_k below 0, top_p outside (0, 1]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"

namespace planalto {

struct SamplerOptions {
  double temperature = 0.0;
  std::int64_t top_k = 0;
  double top_p = 1.0;
  void check() const;
};

class Sampler {
 public:
  Sampler(const SamplerOptions& options, std::int64_t vocabulary, std::uint64_t seed);
  std::int32_t sample(std::span<const float> logits);

 private:
  SamplerOptions options_;
  std::int64_t vocabulary_;
  Random random_;
  std::uint64_t draws_ = 0;
  std::vector<std::int32_t> order_;
  std::vector<double> weights_;
};

}  // namespace planalto
