// SPDX-License-Identifier: Apache-2.0
// weight_blocks.h: cuts stacked weights into blocks that are updated, rounded and packed while they are in the first cache.
// Shapes      a block is up to kBlockRows rows by kBlockCols columns of one matrix
// Invariants  blocks write disjoint parts of both copies, zeros beyond the matrix included
// Memory      32 KB of a worker's stack; copies begin on multiples of 64 bytes
#pragma once

#include <cstring>

#include "kernels/cpu/gemm_pack.h"
#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/parallel.h"
#include "kernels/packed_weight.h"

namespace planalto::kernels::PLANALTO_ISA_NS {
namespace {  // NOLINT: internal linkage is the purpose

inline constexpr std::int64_t kPanelLines = gemm::kTileCols;
// The depth of a copy is padded to these, so that every block begins at a whole pair and the last one writes the padding.
inline constexpr std::int64_t kBlockRows = kPackedDepth;
inline constexpr std::int64_t kBlockCols = 256;

struct WeightBlock {
  std::int64_t matrix = 0, row = 0, col = 0;  // where it begins
  std::int64_t rows = 0, cols = 0;
};

// `lines` lines of `depth` values become columns [0, lines) of a panel, and zeros up to a depth of `padded`. Nobody reads the panel
// soon: it is made in the first cache and streamed past the others, whole lines at a time.
using PackLines = void (*)(const void* source, std::int64_t stride, std::int64_t valid, std::int64_t depth,
                           void* panel);
[[gnu::always_inline]] inline void pack_padded(PackLines pack, const bf16* source, std::int64_t stride,
                                               std::int64_t lines, std::int64_t depth, std::int64_t padded,
                                               std::uint32_t* panel) {
  alignas(64) std::uint32_t words[kBlockCols / 2 * kPanelLines];
  pack(source, stride, lines, depth, words);
  const std::int64_t steps = (depth + 1) / 2;
  std::memset(words + steps * kPanelLines, 0,
              static_cast<std::size_t>((padded / 2 - steps) * kPanelLines * 4));
  for (std::int64_t i = 0; i < padded / 2 * kPanelLines; i += gemm::kLanes)
    gemm::stream_words(panel + i, gemm::load_words(words + i));
}

// values [rows, kBlockCols] to its places in the copies.
inline void pack_block(const PackedCopies& c, const WeightBlock& b, const bf16* values) {
  const bool last_rows = b.row + b.rows == c.n, last_cols = b.col + b.cols == c.k;
  if (c.forward != nullptr) {
    auto* matrix =
        static_cast<std::uint32_t*>(c.forward) + b.matrix * packed_elements(c.n, c.k, kPanelLines) / 2;
    const std::int64_t depth = last_cols ? packed_depth(c.k) - b.col : b.cols;
    for (std::int64_t line = 0; line < b.rows; line += kPanelLines) {
      std::uint32_t* panel = matrix + (b.row + line) * packed_depth(c.k) / 2 + b.col / 2 * kPanelLines;
      pack_padded(gemm::pack_along<gemm::PackPairs, kPanelLines>, values + line * kBlockCols, kBlockCols,
                  b.rows - line, b.cols, depth, panel);
    }
  }
  if (c.backward != nullptr) {
    auto* matrix =
        static_cast<std::uint32_t*>(c.backward) + b.matrix * packed_elements(c.k, c.n, kPanelLines) / 2;
    const std::int64_t depth = last_rows ? packed_depth(c.n) - b.row : b.rows;
    for (std::int64_t line = 0; line < b.cols; line += kPanelLines) {
      std::uint32_t* panel = matrix + (b.col + line) * packed_depth(c.n) / 2 + b.row / 2 * kPanelLines;
      pack_padded(gemm::pack_across<gemm::PackPairs, kPanelLines>, values + line, kBlockCols, b.cols - line,
                  b.rows, depth, panel);
    }
  }
}

// fill(block, values) writes the bf16 values [rows, kBlockCols] of each block, which then go to the copies.
template <class Fill>
inline void for_each_weight_block(const ExecContext& ctx, const PackedCopies& c, const Fill& fill) {
  const std::int64_t down = (c.n + kBlockRows - 1) / kBlockRows, across = (c.k + kBlockCols - 1) / kBlockCols;
  parallel_ranges(ctx, c.num * down * across, 1, [&](std::int64_t begin, std::int64_t end, int) {
    alignas(64) bf16 values[kBlockRows * kBlockCols];
    for (std::int64_t i = begin; i < end; ++i) {
      WeightBlock b{.matrix = i / (down * across),
                    .row = i / across % down * kBlockRows,
                    .col = i % across * kBlockCols};
      b.rows = c.n - b.row < kBlockRows ? c.n - b.row : kBlockRows;
      b.cols = c.k - b.col < kBlockCols ? c.k - b.col : kBlockCols;
      fill(b, values);
      pack_block(c, b, values);
    }
    _mm_sfence();  // other threads see the streamed lines with what this one writes next
  });
}

}  // namespace
}  // namespace planalto::kernels::PLANALTO_ISA_NS
