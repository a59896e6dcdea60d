// SPDX-License-Identifier: Apache-2.0
// gemm_pack.h: copies a slice of an operand into a panel [steps][W] of 32-bit words, the order the tiles read.
// Shapes      a slice has `valid` lines of `depth` values of k; a panel has W, those beyond `valid` are zeros
// Numerics    exact: fp32 is copied, bf16 is widened to fp32 or kept as pairs (k even in the low half, k odd in
//             the high one; zero after an odd end)
// Memory      reads no value outside the slice's matrix; may write up to one register past the panel's end
#pragma once

#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "kernels/cpu/gemm_registers.h"

namespace planalto::kernels::PLANALTO_ISA_NS::gemm {
namespace {  // NOLINT: internal linkage is the purpose

// How source values become words: kWordValues source values stand in one 32-bit word, which becomes kSteps
// steps.
struct PackFloat {
  using Value = float;
  static constexpr int kWordValues = 1;
  static constexpr int kSteps = 1;
};
struct PackWiden {
  using Value = bf16;
  static constexpr int kWordValues = 2;
  static constexpr int kSteps = 2;
};
struct PackPairs {
  using Value = bf16;
  static constexpr int kWordValues = 2;
  static constexpr int kSteps = 1;
};

template <class Format, int W>
[[gnu::always_inline]] inline void store_transposed(Words (&r)[kLanes], std::int64_t values,
                                                    std::uint32_t* dst) {
  transpose_words(r);
  for (int j = 0; j < kLanes && j * Format::kWordValues < values; ++j) {
    if constexpr (Format::kSteps == 2) {
      store_words(dst + 2 * j * W, low_half_up(r[j]));
      if (2 * j + 1 < values) store_words(dst + (2 * j + 1) * W, high_half(r[j]));
    } else {
      store_words(dst + j * W, r[j]);
    }
  }
}

template <class Format, int W>
[[gnu::always_inline]] inline void store_transposed_block(Words (&r)[kLanes], std::uint32_t* dst) {
  transpose_words(r);
#pragma GCC unroll 16
  for (int j = 0; j < kLanes; ++j) {
    if constexpr (Format::kSteps == 2) {
      store_words(dst + 2 * j * W, low_half_up(r[j]));
      store_words(dst + (2 * j + 1) * W, high_half(r[j]));
    } else {
      store_words(dst + j * W, r[j]);
    }
  }
}

// Lines are rows of the source: line i, value k at src[i * stride + k].
template <class Format, int W>
void pack_along(const void* source, std::int64_t stride, std::int64_t valid, std::int64_t depth,
                void* panel) {
  using Value = typename Format::Value;
  constexpr std::int64_t kBlock = std::int64_t{kLanes} * Format::kWordValues;
  constexpr int kGroups = (W + kLanes - 1) / kLanes;
  const auto* src = static_cast<const Value*>(source);
  auto* dst = static_cast<std::uint32_t*>(panel);
  std::int64_t k = 0;
  // A store is a whole register even where W is narrower; steps ascend, so the next one overwrites the
  // excess.
  for (; k + kBlock <= depth; k += kBlock, dst += kLanes * Format::kSteps * W) {
    for (int g = 0; g < kGroups; ++g) {
      Words r[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        const int line = g * kLanes + i;
        r[i] = line < W && line < valid ? load_words(src + line * stride + k) : zero_words();
      }
      store_transposed_block<Format, W>(r, dst + g * kLanes);
    }
  }
  if (k == depth) return;
  const std::int64_t left = depth - k;
  for (int g = 0; g < kGroups; ++g) {
    Words r[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const int line = g * kLanes + i;
      r[i] = zero_words();
      if (line < W && line < valid) {
        std::memcpy(&r[i], src + line * stride + k, static_cast<std::size_t>(left) * sizeof(Value));
      }
    }
    store_transposed<Format, W>(r, left, dst + g * kLanes);
  }
}

// One step's words from the values of one row of the source (two rows for pairs).
template <class Format>
[[gnu::always_inline]] inline Words step_words(const typename Format::Value* row,
                                               const typename Format::Value* next) {
  if constexpr (Format::kWordValues == 1) {
    return load_words(row);
  } else if constexpr (Format::kSteps == 2) {
    return low_half_up(widen_halves(row));
  } else {
    const Words low = widen_halves(row);
    return next == nullptr ? low : either(low, low_half_up(widen_halves(next)));
  }
}

// Lines are columns of the source: line i, value k at src[k * stride + i].
template <class Format, int W>
void pack_across(const void* source, std::int64_t stride, std::int64_t valid, std::int64_t depth,
                 void* panel) {
  using Value = typename Format::Value;
  constexpr int kGroups = (W + kLanes - 1) / kLanes;
  constexpr std::int64_t kRows = Format::kWordValues / Format::kSteps;  // source rows in a step
  const auto* src = static_cast<const Value*>(source);
  auto* dst = static_cast<std::uint32_t*>(panel);
  const bool whole = valid >= std::int64_t{kGroups} * kLanes;
  const std::int64_t copied = valid < W ? valid : W;
  Value edge[2][kGroups * kLanes] = {};
  for (std::int64_t k = 0; k < depth; k += kRows, dst += W) {
    const Value* row = src + k * stride;
    const Value* next = kRows == 2 && k + 1 < depth ? row + stride : nullptr;
    if (!whole) {
      std::memcpy(edge[0], row, static_cast<std::size_t>(copied) * sizeof(Value));
      row = edge[0];
      if (next != nullptr) {
        std::memcpy(edge[1], next, static_cast<std::size_t>(copied) * sizeof(Value));
        next = edge[1];
      }
    }
    for (int g = 0; g < kGroups; ++g) {
      store_words(dst + g * kLanes,
                  step_words<Format>(row + g * kLanes, next == nullptr ? nullptr : next + g * kLanes));
    }
  }
}

// A panel of pairs [depth / 2][W][2] becomes one of single values [depth][W]. The signature is that of the packs above.
template <int W>
void widen_panel(const void* source, std::int64_t, std::int64_t, std::int64_t depth, void* panel) {
  const auto* src = static_cast<const std::uint32_t*>(source);
  auto* dst = static_cast<std::uint32_t*>(panel);
  for (std::int64_t k = 0; k < depth; k += 2, src += W, dst += 2 * W) {
#pragma GCC unroll 4
    for (int g = 0; g < W; g += kLanes) {
      const Words pairs = load_words(src + g);
      store_words(dst + g, low_half_up(pairs));
      if (k + 1 < depth) store_words(dst + W + g, high_half(pairs));
    }
  }
}

}  // namespace
}  // namespace planalto::kernels::PLANALTO_ISA_NS::gemm
