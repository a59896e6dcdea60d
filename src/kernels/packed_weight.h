// SPDX-License-Identifier: Apache-2.0
// packed_weight.h: bf16 weights in the panels that matrix products read as they stand: packed once an update, not once a product.
// Shapes      E matrices [N, K], one below the other. The forward copy has their rows as lines and k along the depth; the backward
//             copy (dx = dy w) has their columns as lines and n along the depth
// Layout      [E][ceil(lines / W)][Dp / 2][W][2] bf16, W = packed_panel_lines, Dp = depth rounded up to kPackedDepth: W lines side
//             by side, two neighbours of the depth together, zeros where a line or a depth is beyond the matrix
// Numerics    values are to_bf16 of the fp32 source
// Invariants  the layout depends on the ISA; it is never written to a file
// Errors      internal: copies without a source, extents below 1
// Source      original; the pairs are what vdpbf16ps and tdpbf16ps contract
#pragma once

#include <cstdint>

#include "kernels/isa.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

inline constexpr std::int64_t kPackedDepth = 32;

[[gnu::always_inline]] constexpr inline std::int64_t packed_panel_lines(Isa isa) {
  return isa == Isa::avx2 ? 16 : 32;
}
[[gnu::always_inline]] constexpr inline std::int64_t packed_depth(std::int64_t depth) {
  return (depth + kPackedDepth - 1) / kPackedDepth * kPackedDepth;
}
// Elements of one packed matrix, and of the panels before that of `line` (a multiple of the panel's lines).
[[gnu::always_inline]] constexpr inline std::int64_t packed_elements(std::int64_t lines, std::int64_t depth,
                                                                     std::int64_t panel_lines) {
  return (lines + panel_lines - 1) / panel_lines * panel_lines * packed_depth(depth);
}
[[gnu::always_inline]] constexpr inline std::int64_t packed_weight_bytes(std::int64_t num, std::int64_t lines,
                                                                         std::int64_t depth, Isa isa) {
  return num * packed_elements(lines, depth, packed_panel_lines(isa)) * 2;
}

// Where the copies of a weight lie; either may be null.
struct PackedCopies {
  std::int64_t num = 0;       // E; 0: there are none
  std::int64_t n = 0, k = 0;  // of one matrix
  void* forward = nullptr;    // packed_weight_bytes(E, n, k)
  void* backward = nullptr;   // packed_weight_bytes(E, k, n)
};

struct PackWeight {
  const float* source = nullptr;  // [E * n, k]
  PackedCopies copies;
};
void pack_weight(const ExecContext& ctx, const PackWeight& a);

}  // namespace planalto::kernels
