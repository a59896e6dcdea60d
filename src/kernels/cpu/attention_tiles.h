// SPDX-License-Identifier: Apache-2.0
// attention_tiles.h: what the attention bodies are made of: fp32 products of small tiles, transposes, row
// copies in fp32. Shapes      product: c [m, n] (+)= a [m, k] b [k, n]; b and c row-major with n a whole
// number of vectors, a by two strides Numerics    each element of c is one chain of FMAs, k ascending, that
// starts at 0 or at the old c: the same bits however m, n
//             and the calls are cut
// Threads     internal linkage: each ISA object has copies of its own
// Source      original
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/simd.h"

namespace planalto::kernels::PLANALTO_ISA_NS {
namespace {  // NOLINT: internal linkage is the purpose, see above

using simd::Floats;
using simd::kLanes;

typedef std::int32_t IntFloats __attribute__((vector_size(sizeof(Floats))));  // NOLINT: no attribute on using

// Vectors of c that a panel keeps in registers per row.
constexpr int kMaxColumns = kLanes == 16 ? 4 : 2;

// Rows of c that fill the registers beside one row of b and one element of a.
template <int kColumns>
constexpr int kFullRows = kLanes == 16 ? (kColumns == 4   ? 6
                                          : kColumns == 3 ? 8
                                                          : 12)
                                       : (kColumns == 2 ? 6 : 12);

// The strides of a: `step` between rows when k is contiguous, between k when rows are.
enum class Contiguous { k, rows };

struct Product {
  std::int64_t m, k;
  const float* a;
  std::int64_t a_step;
  const float* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t c_stride;
  bool accumulate;
};

template <Contiguous kA, int kRows, int kColumns>
inline void panel(const Product& p, std::int64_t row, std::int64_t column) {
  Floats acc[kRows][kColumns];
  float* c = p.c + row * p.c_stride + column;
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) {
      acc[i][j] = p.accumulate ? simd::load(c + i * p.c_stride + j * kLanes) : simd::zero();
    }
  }
  const float* a = p.a + (kA == Contiguous::k ? row * p.a_step : row);
  const float* b = p.b + column;
  for (std::int64_t k = 0; k < p.k; ++k) {
    Floats vb[kColumns];
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) vb[j] = simd::load(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Floats va = simd::set1(a[kA == Contiguous::k ? i * p.a_step : i]);
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) acc[i][j] = simd::fma(va, vb[j], acc[i][j]);
    }
    a += kA == Contiguous::k ? 1 : p.a_step;
    b += p.b_stride;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) simd::store(c + i * p.c_stride + j * kLanes, acc[i][j]);
  }
}

template <Contiguous kA, int kColumns>
inline void panels(const Product& p, std::int64_t column) {
  constexpr int kFull = kFullRows<kColumns>;
  std::int64_t row = 0;
  for (; row + kFull <= p.m; row += kFull) panel<kA, kFull, kColumns>(p, row, column);
  if constexpr (kFull > 8) {
    if (row + 8 <= p.m) panel<kA, 8, kColumns>(p, row, column), row += 8;
  }
  if (row + 4 <= p.m) panel<kA, 4, kColumns>(p, row, column), row += 4;
  if (row + 2 <= p.m) panel<kA, 2, kColumns>(p, row, column), row += 2;
  if (row < p.m) panel<kA, 1, kColumns>(p, row, column);
}

// n: columns of c, a multiple of kLanes.
template <Contiguous kA>
inline void product(std::int64_t n, const Product& p) {
  std::int64_t column = 0;
  for (; column + kMaxColumns * kLanes <= n; column += kMaxColumns * kLanes)
    panels<kA, kMaxColumns>(p, column);
  const std::int64_t left = (n - column) / kLanes;
  if (left == 1) panels<kA, 1>(p, column);
  if constexpr (kMaxColumns > 2) {
    if (left == 2) panels<kA, 2>(p, column);
    if (left == 3) panels<kA, 3>(p, column);
  }
}

[[gnu::always_inline]] inline void interleave(Floats a, Floats b, Floats& low, Floats& high) {
#if defined(__AVX512F__)
  const __m512i first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i last = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
  low = _mm512_permutex2var_ps(a, first, b);
  high = _mm512_permutex2var_ps(a, last, b);
#else
  const Floats even = _mm256_unpacklo_ps(a, b), odd = _mm256_unpackhi_ps(a, b);
  low = _mm256_permute2f128_ps(even, odd, 0x20);
  high = _mm256_permute2f128_ps(even, odd, 0x31);
#endif
}

// to[i][j] = from[j][i] for one kLanes x kLanes block: log2(kLanes) perfect shuffles of its rows.
inline void transpose_block(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride) {
  constexpr int kHalf = kLanes / 2;
  Floats rows[kLanes], shuffled[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) rows[i] = simd::load(from + i * from_stride);
#pragma GCC unroll 4
  for (int stage = 1; stage < kLanes; stage *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < kHalf; ++i)
      interleave(rows[i], rows[i + kHalf], shuffled[2 * i], shuffled[2 * i + 1]);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = shuffled[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) simd::store(to + i * to_stride, rows[i]);
}

// Both extents multiples of kLanes.
inline void transpose(const float* from, std::int64_t rows, std::int64_t cols, std::int64_t from_stride,
                      float* to, std::int64_t to_stride) {
  for (std::int64_t r = 0; r < rows; r += kLanes) {
    for (std::int64_t c = 0; c < cols; c += kLanes) {
      transpose_block(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
  }
}

// to[0 .. padded) = from[0 .. n) * scale, then zeros; padded is a multiple of kLanes.
template <class T>
inline void widen_row(const T* from, std::int64_t n, std::int64_t padded, float scale, float* to) {
  const Floats factor = simd::set1(scale);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) simd::store(to + i, simd::load(from + i) * factor);
  if (i < n) simd::store(to + i, simd::load(from + i, n - i) * factor), i += kLanes;
  for (; i < padded; i += kLanes) simd::store(to + i, simd::zero());
}

// to[0 .. n) = from * scale, rounded to T
template <class T>
inline void narrow_row(const float* from, std::int64_t n, float scale, T* to) {
  const Floats factor = simd::set1(scale);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) simd::store(to + i, simd::load(from + i) * factor);
  if (i < n) simd::store(to + i, simd::load(from + i, n - i) * factor, n - i);
}

// Sum of a[i] * b[i] over n elements: kLanes chains, folded in a fixed tree.
template <class T>
inline float dot(const T* a, const T* b, std::int64_t n) {
  Floats sum = simd::zero();
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum = simd::fma(simd::load(a + i), simd::load(b + i), sum);
  if (i < n) sum = simd::fma(simd::load(a + i, n - i), simd::load(b + i, n - i), sum);
  return simd::sum(sum);
}

}  // namespace
}  // namespace planalto::kernels::PLANALTO_ISA_NS
