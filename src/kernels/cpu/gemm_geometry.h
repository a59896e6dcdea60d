// SPDX-License-Identifier: Apache-2.0
// gemm_geometry.h: block sizes of the matrix products of each ISA, and the scratch that one worker needs for them.
// Invariants  no bit of a result depends on anything here: blocks cut rows, columns or the order of work, and a
//             sum that is cut in blocks goes on from the value it had
// Units       a step is one 32-bit word of a packed operand: one value of k in fp32, two neighbours in bf16 pairs
#pragma once

#include <cstdint>

#include "kernels/isa.h"

namespace planalto::kernels {

struct GemmGeometry {
  std::int64_t tile_rows = 0;  // accumulators stand in tile_rows x tile_cols registers
  std::int64_t tile_cols = 0;
  std::int64_t block_rows =
      0;  // rows of A that a worker packs at a time; they stay in the second-level cache
  std::int64_t group_cols = 0;  // columns that a worker computes with them
  std::int64_t k_per_step = 1;
  bool tiles = false;  // sums stand in tile registers (AMX), tile_engine.h
};

[[gnu::always_inline]] constexpr inline std::int64_t gemm_round_up(std::int64_t n, std::int64_t to) {
  return (n + to - 1) / to * to;
}

// Rows of A that a unit of tile products holds.
inline constexpr std::int64_t kTileBlockRows = 512;

// Pairs: both operands are bf16 and the ISA multiplies neighbours along k (vdpbf16ps, tdpbf16ps).
[[gnu::always_inline]] constexpr inline GemmGeometry gemm_geometry(Isa isa, bool pairs) {
  if (isa == Isa::amx && pairs) return {32, 32, kTileBlockRows, 512, 2, true};
  if (isa == Isa::avx2) return {6, 16, 192, 512, 1};
  return {14, 32, 224, 512, pairs ? 2 : 1};
}

[[gnu::always_inline]] constexpr inline bool gemm_uses_pairs(Isa isa, bool both_bf16) {
  return isa >= Isa::avx512_bf16 && both_bf16;
}

// A sum of up to kGemmWholeSteps steps is made in one go, a longer one in equal blocks of at most
// kGemmBlockSteps.
constexpr std::int64_t kGemmWholeSteps = 1280;
constexpr std::int64_t kGemmBlockSteps = 1024;

[[gnu::always_inline]] constexpr inline std::int64_t gemm_block_steps(std::int64_t steps) {
  if (steps <= kGemmWholeSteps) return steps;
  const std::int64_t blocks = (steps + kGemmBlockSteps - 1) / kGemmBlockSteps;
  return gemm_round_up((steps + blocks - 1) / blocks, 16);
}

// Byte offsets of one worker's scratch: packed A block, packed B panel, one tile, and the strip of partial
// sums that only a sum in several blocks needs.
struct GemmScratch {
  std::int64_t a = 0, b = 0, tile = 0, strip = 0, bytes = 0;
};

// Tile products: sums of at most kTileBlockDepth values of k at a time, so that a panel of B stays in the first cache.
inline constexpr std::int64_t kTileBlockDepth = 512;
[[gnu::always_inline]] constexpr inline std::int64_t tile_block_depth(std::int64_t depth) {
  const std::int64_t blocks = (depth + kTileBlockDepth - 1) / kTileBlockDepth;
  return blocks <= 1 ? kTileBlockDepth : gemm_round_up((depth + blocks - 1) / blocks, 32);
}
// Copied strips of A, two packed panels of B, 32 x 32 sums, and the strip of partial sums.
[[gnu::always_inline]] constexpr inline GemmScratch tile_scratch(const GemmGeometry& g,
                                                                 std::int64_t max_depth) {
  const std::int64_t kept = gemm_round_up(max_depth < kTileBlockDepth ? max_depth : kTileBlockDepth, 32);
  GemmScratch s;
  s.b = 2 * kept * g.block_rows;
  s.tile = s.b + 2 * 2 * kept * g.tile_cols;
  s.strip = s.tile + 4 * g.tile_rows * g.tile_cols;
  s.bytes = s.strip;
  if (max_depth > kTileBlockDepth) s.bytes += 4 * g.block_rows * g.group_cols;
  return s;
}

[[gnu::always_inline]] constexpr inline GemmScratch gemm_scratch(const GemmGeometry& g,
                                                                 std::int64_t max_depth) {
  if (g.tiles) return tile_scratch(g, max_depth);
  const std::int64_t steps = (max_depth + g.k_per_step - 1) / g.k_per_step;
  // Block lengths are not monotonic in the depth: a long sum's blocks are shorter than the longest whole sum.
  const std::int64_t kept = steps <= kGemmWholeSteps ? steps : kGemmWholeSteps;
  GemmScratch s;
  s.b = gemm_round_up(4 * kept * g.block_rows + 64,
                      64);  // 64: the last store of a packed tile is a whole register
  s.tile = s.b + gemm_round_up(4 * kept * g.tile_cols, 64);
  s.strip = s.tile + gemm_round_up(4 * g.tile_rows * g.tile_cols, 64);
  s.bytes = s.strip;
  if (steps > kGemmWholeSteps) s.bytes += 4 * g.block_rows * g.group_cols;
  return s;
}

// The order of the products and the prefix sums of their units.
[[gnu::always_inline]] constexpr inline std::int64_t gemm_schedule_bytes(std::int64_t num_products) {
  return gemm_round_up(8 * (2 * num_products + 1), 64);
}

}  // namespace planalto::kernels
