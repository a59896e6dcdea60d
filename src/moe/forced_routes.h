// SPDX-License-Identifier: Apache-2.0
// forced_routes.h: expert ids that are given instead of chosen: debug patterns, and ids read back from a recording.
// Shapes      ids [T, K] int32, in [0, E), ascending inside a token
// Threads     pure
// Errors      data: a recorded id is no expert, or stands twice in a token (source, token and value are named)
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace planalto::moe {

enum class ForcedPattern {
  balanced,    // token t takes the K experts from t * K on, modulo E: counts differ by one at most
  all_to_one,  // every token takes experts 0 .. K-1
};
void forced_ids(ForcedPattern pattern, std::int64_t num_experts, std::int64_t top_k,
                std::span<std::int32_t> ids);

// Checks recorded ids and puts each token's in ascending order.
void order_recorded_ids(std::int64_t num_experts, std::int64_t top_k, std::string_view source,
                        std::span<std::int32_t> ids);

}  // namespace planalto::moe
