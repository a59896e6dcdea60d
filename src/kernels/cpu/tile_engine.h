// SPDX-License-Identifier: Apache-2.0
// tile_engine.h: computes a unit of bf16 products on tile registers: 32 x 32 sums in four tiles, or 16 x 64 for what remains of rows.
// Shapes      as gemm_driver.h; a strip is 16 lines of A, a panel 32 lines of B as pairs [depth / 2][32][2]
// Numerics    tile_registers.h; the depth is cut at multiples of 32 from its start, and sums go on through fp32 memory, so bits
//             depend neither on blocks nor on a row's place. Beyond the depth both operands are zeros
// Memory      lines of A are read where they lie when 16 of them are whole and the depth is a multiple of 32, else they are copied
//             to scratch with zeros; nothing outside the operands is read
// Source      blocking measured on Sapphire Rapids: B in the first cache, A streamed from the second
#pragma once

#include <immintrin.h>

#include "kernels/cpu/gemm_driver.h"
#include "kernels/cpu/tile_registers.h"

namespace planalto::kernels::PLANALTO_ISA_NS::gemm {
namespace {  // NOLINT: internal linkage is the purpose

inline constexpr std::int64_t kTileDepth = 32;              // values of k in a tile
inline constexpr std::int64_t kPanelBytes = kTileCols * 4;  // of one pair of a panel

// 16 lines of A from some depth on: where they begin and how far apart they are.
struct Strip {
  const char* data;
  std::int64_t stride;  // bytes
};

// Sums of a block of tiles: where they come from (null: zero) and go to. To scratch: they still have to be finished.
struct TileTarget {
  const float* start;
  std::int64_t start_stride;  // floats
  float* out;
  std::int64_t out_stride;
  bool to_scratch;
};

// Lines that are columns of the source (dy of a weight gradient): [depth][lines] becomes [16][depth].
inline void transpose_strip(const bf16* source, std::int64_t stride, std::int64_t valid, std::int64_t depth,
                            std::int64_t padded, bf16* strip) {
  bf16 edge[2][kLanes] = {};
  for (std::int64_t k = 0; k < padded; k += 2 * kLanes) {
    Words r[kLanes];
    for (int j = 0; j < kLanes; ++j) {
      const std::int64_t at = k + 2 * j;
      r[j] = zero_words();
      if (at >= depth) continue;
      const bf16* row = source + at * stride;
      const bf16* next = at + 1 < depth ? row + stride : nullptr;
      if (valid < kLanes) {
        std::memcpy(edge[0], row, static_cast<std::size_t>(valid) * sizeof(bf16));
        row = edge[0];
        if (next != nullptr) {
          std::memcpy(edge[1], next, static_cast<std::size_t>(valid) * sizeof(bf16));
          next = edge[1];
        }
      }
      r[j] = step_words<PackPairs>(row, next);
    }
    transpose_words(r);
    for (int line = 0; line < kLanes; ++line) store_words(strip + line * padded + k, r[line]);
  }
}

class TileEngine {
 public:
  static void compute(const GemmCall& call, const GemmProduct& p, const GemmUnit& u, char* scratch) {
    TileEngine engine(call, p, u, scratch);
    const std::int64_t block = tile_block_depth(p.depth);
    std::int64_t k = 0;
    do {  // once at least: an empty sum is a zero to be written
      engine.compute_block(k, p.depth - k < block ? p.depth - k : block);
      k += block;
    } while (k < p.depth);
  }

 private:
  TileEngine(const GemmCall& call, const GemmProduct& p, const GemmUnit& u, char* scratch)
      : call_(call),
        p_(p),
        u_(u),
        a_(reinterpret_cast<bf16*>(scratch + call.scratch.a)),
        b_(scratch + call.scratch.b),
        sums_(reinterpret_cast<float*>(scratch + call.scratch.tile)),
        strip_(reinterpret_cast<float*>(scratch + call.scratch.strip)) {}

  void compute_block(std::int64_t k, std::int64_t depth) {
    k_ = k;
    depth_ = depth;
    padded_ = (depth + kTileDepth - 1) / kTileDepth * kTileDepth;
    first_ = k == 0;
    last_ = k + depth == p_.depth;
    for (std::int64_t i = u_.row_begin; i < u_.row_end; i += kTileHeight) {
      strips_[(i - u_.row_begin) / kTileHeight] = strip_at(i);
    }
    const std::int64_t rows = u_.row_end - u_.row_begin;
    const std::int64_t squares = rows / kSquareRows + (rows % kSquareRows > kTileHeight ? 1 : 0);
    for (std::int64_t j = u_.col_begin; j < u_.col_end; j += 2 * kTileCols) {
      const bool two = j + kTileCols < u_.col_end;
      const char* panels[2] = {panel_at(j, 0), two ? panel_at(j + kTileCols, 1) : nullptr};
      tiles_.fence();
      for (int half = 0; half < (two ? 2 : 1); ++half) {
        const std::int64_t col = j + half * kTileCols;
        look_ahead(col + kTileCols, squares);
        for (std::int64_t s = 0; s < squares; ++s) square(u_.row_begin + s * kSquareRows, col, panels[half]);
      }
      if (squares * kSquareRows < rows) row(u_.row_begin + squares * kSquareRows, j, panels);
    }
  }

  // The panel at column j, if it is read where it lies, is brought to the second cache while `squares` squares are computed.
  void look_ahead(std::int64_t j, std::int64_t squares) {
    constexpr std::int64_t kStepLines = kTileHeight * kPanelBytes / 64;
    ahead_lines_ = 0;
    if (call_.b.pack != nullptr || j >= u_.col_end || squares == 0) return;
    ahead_ = static_cast<const char*>(call_.b.at(p_.b, j, k_));
    ahead_lines_ = (kStepLines + squares - 1) / squares;
  }

  Strip strip_at(std::int64_t i) {
    const void* source = call_.a.at(p_.a, i, k_);
    const std::int64_t valid = p_.rows - i < kTileHeight ? p_.rows - i : kTileHeight;
    if (!call_.a.across && valid == kTileHeight && depth_ == padded_)
      return {static_cast<const char*>(source), call_.a.stride * 2};
    bf16* copy = a_ + (i - u_.row_begin) * padded_;
    if (call_.a.across) {
      transpose_strip(static_cast<const bf16*>(source), call_.a.stride, valid, depth_, padded_, copy);
    } else {
      std::memset(copy, 0, static_cast<std::size_t>(kTileHeight * padded_) * sizeof(bf16));
      for (std::int64_t r = 0; r < valid; ++r) {
        std::memcpy(copy + r * padded_, static_cast<const bf16*>(source) + r * call_.a.stride,
                    static_cast<std::size_t>(depth_) * sizeof(bf16));
      }
    }
    return {reinterpret_cast<const char*>(copy), padded_ * 2};
  }

  const char* panel_at(std::int64_t j, int which) {
    const void* source = call_.b.at(p_.b, j, k_);
    if (call_.b.pack == nullptr) return static_cast<const char*>(source);
    char* panel = b_ + which * padded_ / 2 * kPanelBytes;
    call_.b.pack(source, call_.b.stride, p_.cols - j, depth_, panel);
    const std::int64_t packed = (depth_ + 1) / 2;
    std::memset(panel + packed * kPanelBytes, 0,
                static_cast<std::size_t>((padded_ / 2 - packed) * kPanelBytes));
    return panel;
  }

  // 32 x 32 sums, or fewer valid ones, from (i, j) on.
  void square(std::int64_t i, std::int64_t j, const char* b) {
    const std::int64_t rows = at_most(p_.rows - i, kSquareRows), cols = at_most(p_.cols - j, kTileCols);
    const Strip a0 = strips_[(i - u_.row_begin) / kTileHeight];
    const Strip a1 = strips_[(i - u_.row_begin) / kTileHeight + 1];
    const TileTarget t = begin(i, j, rows, cols, kSquareRows, sums_);
    start<0>(t, 0, 0), start<1>(t, 0, 16), start<2>(t, 16, 0), start<3>(t, 16, 16);
    const std::int64_t steps = padded_ / kTileDepth;
    for (std::int64_t s = 0; s < steps; ++s) {
      tiles_.load_streamed<4>(a0.data + s * kTileBytes, a0.stride);
      tiles_.load<6>(b, kPanelBytes);
      tiles_.multiply<0, 4, 6>();
      tiles_.load<7>(b + kTileBytes, kPanelBytes);
      tiles_.multiply<1, 4, 7>();
      tiles_.load_streamed<5>(a1.data + s * kTileBytes, a1.stride);
      tiles_.multiply<2, 5, 6>();
      tiles_.multiply<3, 5, 7>();
      b += kTileHeight * kPanelBytes;
      for (std::int64_t line = 0; line < ahead_lines_; ++line, ahead_ += 64)
        _mm_prefetch(ahead_, _MM_HINT_T1);
    }
    out<0>(t, 0, 0), out<1>(t, 0, 16), out<2>(t, 16, 0), out<3>(t, 16, 16);
    finish(t, i, j, rows, cols);
  }

  // One strip against two panels (or one): 16 x 64 sums keep four tiles busy where 16 x 32 would keep two.
  void row(std::int64_t i, std::int64_t j, const char* const (&panels)[2]) {
    const std::int64_t rows = at_most(p_.rows - i, kTileHeight);
    const Strip a = strips_[(i - u_.row_begin) / kTileHeight];
    const TileTarget t = begin(i, j, rows, at_most(p_.cols - j, kTileCols), kTileHeight, sums_);
    start<0>(t, 0, 0), start<1>(t, 0, 16);
    const std::int64_t steps = padded_ / kTileDepth, step_bytes = kTileHeight * kPanelBytes;
    if (panels[1] == nullptr) {
      for (std::int64_t s = 0; s < steps; ++s) {
        tiles_.load_streamed<4>(a.data + s * kTileBytes, a.stride);
        tiles_.load<5>(panels[0] + s * step_bytes, kPanelBytes);
        tiles_.multiply<0, 4, 5>();
        tiles_.load<6>(panels[0] + s * step_bytes + kTileBytes, kPanelBytes);
        tiles_.multiply<1, 4, 6>();
      }
      out<0>(t, 0, 0), out<1>(t, 0, 16);
      finish(t, i, j, rows, at_most(p_.cols - j, kTileCols));
      return;
    }
    const TileTarget right = begin(i, j + kTileCols, rows, at_most(p_.cols - j - kTileCols, kTileCols),
                                   kTileHeight, sums_ + kTileHeight * kTileCols);
    start<2>(right, 0, 0), start<3>(right, 0, 16);
    for (std::int64_t s = 0; s < steps; ++s) {
      tiles_.load_streamed<4>(a.data + s * kTileBytes, a.stride);
      tiles_.load<5>(panels[0] + s * step_bytes, kPanelBytes);
      tiles_.multiply<0, 4, 5>();
      tiles_.load<6>(panels[0] + s * step_bytes + kTileBytes, kPanelBytes);
      tiles_.multiply<1, 4, 6>();
      tiles_.load<7>(panels[1] + s * step_bytes, kPanelBytes);
      tiles_.multiply<2, 4, 7>();
      tiles_.load<5>(panels[1] + s * step_bytes + kTileBytes, kPanelBytes);
      tiles_.multiply<3, 4, 5>();
    }
    out<0>(t, 0, 0), out<1>(t, 0, 16), out<2>(right, 0, 0), out<3>(right, 0, 16);
    finish(t, i, j, rows, at_most(p_.cols - j, kTileCols));
    finish(right, i, j + kTileCols, rows, at_most(p_.cols - j - kTileCols, kTileCols));
  }

  // Whether whole tiles of C can be read and written as they are.
  bool writes_in_place(std::int64_t rows, std::int64_t cols, std::int64_t height) const {
    return call_.c_dtype == DType::f32 && p_.bias == nullptr && (!call_.accumulate || call_.continue_sums) &&
           rows == height && cols == kTileCols;
  }

  TileTarget begin(std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t cols, std::int64_t height,
                   float* sums) {
    float* partial = strip_ + (i - u_.row_begin) * call_.geometry.group_cols + (j - u_.col_begin);
    const bool in_place = writes_in_place(rows, cols, height);
    float* c = in_place ? static_cast<float*>(p_.c) + i * call_.c_stride + j : nullptr;
    TileTarget t{nullptr, call_.geometry.group_cols, partial, call_.geometry.group_cols, false};
    if (!first_) {
      t.start = partial;
    } else if (call_.continue_sums && in_place) {
      t.start = c;
      t.start_stride = call_.c_stride;
    } else if (call_.continue_sums) {
      std::memset(sums, 0, static_cast<std::size_t>(height * kTileCols) * sizeof(float));
      read_tile(call_, p_, i, j, rows, cols, sums);
      t.start = sums;
      t.start_stride = kTileCols;
    }
    if (last_) {
      t.out = in_place ? c : sums;
      t.out_stride = in_place ? call_.c_stride : kTileCols;
      t.to_scratch = !in_place;
    }
    tiles_.fence();
    return t;
  }
  template <int T>
  void start(const TileTarget& t, int row, int col) {
    if (t.start == nullptr) {
      tiles_.zero<T>();
    } else {
      tiles_.load<T>(t.start + row * t.start_stride + col, t.start_stride * 4);
    }
  }
  template <int T>
  void out(const TileTarget& t, int row, int col) {
    tiles_.store<T>(t.out + row * t.out_stride + col, t.out_stride * 4);
  }
  void finish(const TileTarget& t, std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t cols) {
    tiles_.fence();
    if (t.to_scratch) write_tile(call_, p_, t.out, i, j, rows, cols);
  }

  static std::int64_t at_most(std::int64_t n, std::int64_t most) { return n < most ? n : most; }

  static constexpr std::int64_t kSquareRows = 2 * kTileHeight;

  const GemmCall& call_;
  const GemmProduct& p_;
  const GemmUnit& u_;
  bf16* a_;
  char* b_;
  float *sums_, *strip_;
  std::int64_t k_ = 0, depth_ = 0, padded_ = 0;
  bool first_ = true, last_ = true;
  const char* ahead_ = nullptr;
  std::int64_t ahead_lines_ = 0;  // a step
  Strip strips_[kTileBlockRows / kTileHeight];
  Tiles tiles_;
};

}  // namespace
}  // namespace planalto::kernels::PLANALTO_ISA_NS::gemm
