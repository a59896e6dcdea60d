// SPDX-License-Identifier: Apache-2.0
// attention_workspace.h: how the attention bodies cut their work, and the scratch that follows from it; read
// by the contract (bytes) and by the bodies (addresses), so that the two agree. Units       floats, each
// block a multiple of 16 of them (64 bytes)
#pragma once

#include <cstdint>

#include "base/view.h"

namespace planalto::kernels::attention_cut {

// A row block holds up to kRows (query, head of the group) pairs, query-major; a key block up to kKeys keys.
inline constexpr std::int64_t kRows = 64;
inline constexpr std::int64_t kKeys = 64;
// Keys whose dk and dv one worker accumulates at a time; longer documents are cut.
inline constexpr std::int64_t kMaxAccumulatedKeys = 4096;
inline constexpr std::int64_t kCursorFloats = 16;  // where a worker stands in the list of documents

[[gnu::always_inline]] constexpr inline std::int64_t padded(std::int64_t n) {
  return (n + 15) / 16 * 16;
}
[[gnu::always_inline]] constexpr inline std::int64_t accumulated_keys(std::int64_t max_kv_rows) {
  const std::int64_t keys = (max_kv_rows + kKeys - 1) / kKeys * kKeys;
  return keys < kMaxAccumulatedKeys ? keys : kMaxAccumulatedKeys;
}

// Per worker: cursor, q rows and their transpose, scores, output transposed, one key block of k and v in
// fp32.
[[gnu::always_inline]] constexpr inline std::int64_t forward_floats(std::int64_t qk_dim, std::int64_t v_dim) {
  const std::int64_t dq = padded(qk_dim), dv = padded(v_dim);
  return kCursorFloats + kRows * (2 * dq + dv + kKeys) + kKeys * (dq + dv);
}
// Per worker: cursor, rows of q and dout and their transposes, probabilities and score gradients, dq
// transposed, one key block of k and v in fp32, dk and dv of the accumulated keys.
[[gnu::always_inline]] constexpr inline std::int64_t backward_floats(std::int64_t qk_dim, std::int64_t v_dim,
                                                                     std::int64_t max_kv_rows) {
  const std::int64_t dq = padded(qk_dim), dv = padded(v_dim);
  return kCursorFloats + kRows * (3 * dq + 2 * dv + 2 * kKeys) + kKeys * (dq + dv) +
         accumulated_keys(max_kv_rows) * (dq + dv);
}

}  // namespace planalto::kernels::attention_cut
