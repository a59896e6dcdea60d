// SPDX-License-Identifier: Apache-2.0
#include "moe/forced_routes.h"

#include <algorithm>

#include "base/error.h"

namespace planalto::moe {

void forced_ids(ForcedPattern pattern, std::int64_t num_experts, std::int64_t top_k,
                std::span<std::int32_t> ids) {
  const auto routes = static_cast<std::int64_t>(ids.size());
  PLANALTO_CHECK(top_k >= 1 && top_k <= num_experts && routes % top_k == 0, "{} routes, top_k {}, {} experts",
                 routes, top_k, num_experts);
  for (std::int64_t begin = 0; begin < routes; begin += top_k) {
    const std::int64_t first = pattern == ForcedPattern::balanced ? begin : 0;
    const auto token = ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(top_k));
    for (std::int64_t k = 0; k < top_k; ++k) {
      token[static_cast<std::size_t>(k)] = static_cast<std::int32_t>((first + k) % num_experts);
    }
    std::sort(token.begin(), token.end());
  }
}

void order_recorded_ids(std::int64_t num_experts, std::int64_t top_k, std::string_view source,
                        std::span<std::int32_t> ids) {
  const auto routes = static_cast<std::int64_t>(ids.size());
  if (top_k < 1 || routes % top_k != 0) {
    fail(ErrorKind::data, "{}: {} expert ids are no multiple of top_k {}", source, routes, top_k);
  }
  for (std::int64_t begin = 0; begin < routes; begin += top_k) {
    const auto token = ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(top_k));
    std::sort(token.begin(), token.end());
    const std::int32_t bad = token.front() < 0 ? token.front() : token.back();
    if (bad < 0 || bad >= num_experts) {
      fail(ErrorKind::data, "{}: token {} has expert id {}; legal: 0 to {}", source, begin / top_k, bad,
           num_experts - 1);
    }
    const auto twice = std::adjacent_find(token.begin(), token.end());
    if (twice != token.end()) {
      fail(ErrorKind::data, "{}: token {} has expert id {} twice", source, begin / top_k, *twice);
    }
  }
}

}  // namespace planalto::moe
