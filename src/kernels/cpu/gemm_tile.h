// SPDX-License-Identifier: Apache-2.0
// gemm_tile.h: the register tiles of a matrix product: up to kTileRows x kTileCols sums over packed panels.
// Shapes      a [steps][kTileRows], b [steps][kTileCols] words; sums are fp32 in rows of the given strides
// Numerics    a sum is one chain of fused multiply-adds (or pair products) in ascending k, whatever the tile's
//             height; it starts from zero or from `start`, so a sum cut in blocks has the bits of the whole one
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm_registers.h"

namespace planalto::kernels::PLANALTO_ISA_NS::gemm {
namespace {  // NOLINT: internal linkage is the purpose

#if defined(__AVX512F__)
constexpr int kTileRows = 14;
#else
constexpr int kTileRows = 6;
#endif
constexpr int kTileCols = 2 * kLanes;

// How two packed words are multiplied.
struct FloatMath {
  using Word = float;
  using Register = Floats;
  [[gnu::always_inline]] static Register load(const Word* p) { return simd::load(p); }
  [[gnu::always_inline]] static Register broadcast(const Word* p) { return simd::set1(*p); }
  [[gnu::always_inline]] static Floats add(Register a, Register b, Floats c) { return simd::fma(a, b, c); }
};
struct PairMath {
  using Word = std::uint32_t;
  using Register = Words;
  [[gnu::always_inline]] static Register load(const Word* p) { return load_words(p); }
  [[gnu::always_inline]] static Register broadcast(const Word* p) { return broadcast_word(p); }
  [[gnu::always_inline]] static Floats add(Register a, Register b, Floats c) { return dot_pairs(a, b, c); }
};

struct TileSums {
  const float* start = nullptr;  // null: zero
  std::int64_t start_stride = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

template <class Math, int Rows>
[[gnu::noinline]] void tile_of_rows(std::int64_t steps, const typename Math::Word* a,
                                    const typename Math::Word* b, const TileSums& sums) {
  Floats acc[Rows][2];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    acc[i][0] = acc[i][1] = simd::zero();
  }
  if (sums.start != nullptr) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      acc[i][0] = simd::load(sums.start + i * sums.start_stride);
      acc[i][1] = simd::load(sums.start + i * sums.start_stride + kLanes);
    }
  }
  for (std::int64_t s = 0; s < steps; ++s, a += kTileRows, b += kTileCols) {
    const auto b0 = Math::load(b);
    const auto b1 = Math::load(b + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const auto value = Math::broadcast(a + i);
      acc[i][0] = Math::add(value, b0, acc[i][0]);
      acc[i][1] = Math::add(value, b1, acc[i][1]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    simd::store(sums.out + i * sums.out_stride, acc[i][0]);
    simd::store(sums.out + i * sums.out_stride + kLanes, acc[i][1]);
  }
}

// Computes at least `rows` rows of the tile; all of a tile's rows may be written.
template <class Math, int Rows = kTileRows>
[[gnu::always_inline]] inline void tile(std::int64_t rows, std::int64_t steps, const typename Math::Word* a,
                                        const typename Math::Word* b, const TileSums& sums) {
  if constexpr (Rows > 2) {
    if (rows <= Rows - 2) return tile<Math, Rows - 2>(rows, steps, a, b, sums);
  } else if constexpr (Rows == 2) {
    if (rows == 1) return tile_of_rows<Math, 1>(steps, a, b, sums);
  }
  tile_of_rows<Math, Rows>(steps, a, b, sums);
}

}  // namespace
}  // namespace planalto::kernels::PLANALTO_ISA_NS::gemm
