// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_ids.h"

#include "base/error.h"
#include "kernels/cpu/parallel.h"

namespace planalto::kernels {

namespace {

bool all_legal(const std::int32_t* ids, std::int64_t tokens, std::int64_t top_k, std::int64_t num_experts,
               IdOrder order) {
  const auto limit = static_cast<std::uint32_t>(num_experts);
  bool bad = false;
  for (std::int64_t i = 0; i < tokens * top_k; ++i) bad |= static_cast<std::uint32_t>(ids[i]) >= limit;
  if (order == IdOrder::ascending) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t k = 1; k < top_k; ++k) bad |= ids[t * top_k + k] <= ids[t * top_k + k - 1];
    }
  }
  return !bad;
}

}  // namespace

void check_expert_ids(const ExecContext& ctx, const char* op, const std::int32_t* ids, std::int64_t tokens,
                      std::int64_t top_k, std::int64_t num_experts, IdOrder order) {
  std::atomic<bool> bad{false};
  parallel_ranges(ctx, tokens, 512, [&](std::int64_t begin, std::int64_t end, int) {
    if (!all_legal(ids + begin * top_k, end - begin, top_k, num_experts, order)) bad = true;
  });
  if (!bad) return;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t k = 0; k < top_k; ++k) {
      const std::int32_t id = ids[t * top_k + k];
      if (id < 0 || id >= num_experts) {
        fail(ErrorKind::data, "{}: token {} slot {} has expert id {}; legal: 0 to {}", op, t, k, id,
             num_experts - 1);
      }
      if (order == IdOrder::ascending && k > 0 && id <= ids[t * top_k + k - 1]) {
        fail(ErrorKind::data,
             "{}: token {} slot {} has expert id {} after {}; the ids of a token must ascend", op, t, k, id,
             ids[t * top_k + k - 1]);
      }
    }
  }
}

}  // namespace planalto::kernels
