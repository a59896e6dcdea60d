// SPDX-License-Identifier: Apache-2.0
#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace planalto {

void SamplerOptions::check() const {
  if (!(temperature >= 0.0) || !std::isfinite(temperature))
    fail(ErrorKind::config, "temperature is {}; legal: 0 and above", temperature);
  if (top_k < 0) fail(ErrorKind::config, "top_k is {}; legal: 0 (all) and above", top_k);
  if (!(top_p > 0.0 && top_p <= 1.0)) fail(ErrorKind::config, "top_p is {}; legal: above 0, up to 1", top_p);
}

Sampler::Sampler(const SamplerOptions& options, std::int64_t vocabulary, std::uint64_t seed)
    : options_(options), vocabulary_(vocabulary), random_(seed) {
  options.check();
}

std::int32_t Sampler::sample(std::span<const float> logits) {
  const std::size_t n = std::min(logits.size(), static_cast<std::size_t>(vocabulary_));
  PLANALTO_CHECK(n > 0, "no logits");
  const auto best = static_cast<std::int32_t>(
      std::max_element(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(n)) - logits.begin());
  const std::uint64_t draw = draws_++;
  if (options_.temperature == 0.0 || options_.top_k == 1) return best;
  order_.resize(n);
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  if (options_.top_k > 0) order_.resize(std::min(n, static_cast<std::size_t>(options_.top_k)));
  const double top = logits[static_cast<std::size_t>(order_.front())];
  weights_.resize(order_.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    // A tiny temperature sends every difference to -infinity but that of the best, whose difference is 0.
    const double difference = logits[static_cast<std::size_t>(order_[i])] - top;
    weights_[i] = difference == 0.0 ? 1.0 : std::exp(difference / options_.temperature);
    sum += weights_[i];
  }
  double kept = 0.0;
  std::size_t num_kept = 0;
  while (num_kept < weights_.size() && (num_kept == 0 || kept < options_.top_p * sum))
    kept += weights_[num_kept++];
  double left = random_.uniform(draw) * kept;
  for (std::size_t i = 0; i < num_kept; ++i) {
    left -= weights_[i];
    if (left < 0.0) return order_[i];
  }
  return order_[num_kept - 1];
}

}  // namespace planalto
