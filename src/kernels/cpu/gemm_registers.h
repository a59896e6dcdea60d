// SPDX-License-Identifier: Apache-2.0
// gemm_registers.h: the 32-bit word operations that packing and the tiles need beside those of simd.h.
// Numerics    dot_pairs adds the even neighbour's product, then the odd one's; vdpbf16ps also flushes subnormals
// Reference   tests/kernels/grouped_gemm_test.cpp runs the emulation of dot_pairs where vdpbf16ps is missing
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/simd.h"

namespace planalto::kernels::PLANALTO_ISA_NS::gemm {
namespace {  // NOLINT: internal linkage is the purpose

using simd::Floats;
using simd::kLanes;

#if defined(__AVX512F__)

using Words = __m512i;

[[gnu::always_inline]] inline Words zero_words() {
  return _mm512_setzero_si512();
}
[[gnu::always_inline]] inline Words load_words(const void* p) {
  return _mm512_loadu_si512(p);
}
[[gnu::always_inline]] inline void store_words(void* p, Words v) {
  _mm512_storeu_si512(p, v);
}
// Past the caches; p is aligned.
[[gnu::always_inline]] inline void stream_words(void* p, Words v) {
  _mm512_stream_si512(static_cast<__m512i*>(p), v);
}
[[gnu::always_inline]] inline Words broadcast_word(const std::uint32_t* p) {
  return _mm512_set1_epi32(static_cast<int>(*p));
}
[[gnu::always_inline]] inline Words widen_halves(const void* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
[[gnu::always_inline]] inline Words low_half_up(Words v) {
  return _mm512_slli_epi32(v, 16);
}
[[gnu::always_inline]] inline Words high_half(Words v) {
  return _mm512_andnot_si512(_mm512_set1_epi32(0xffff), v);
}
[[gnu::always_inline]] inline Words either(Words a, Words b) {
  return _mm512_or_si512(a, b);
}
[[gnu::always_inline]] inline Floats as_floats(Words v) {
  return _mm512_castsi512_ps(v);
}

[[gnu::always_inline]] inline Floats dot_pairs(Words a, Words b, Floats c) {
#if defined(__AVX512BF16__)
  return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
#else
  c = simd::fma(as_floats(low_half_up(a)), as_floats(low_half_up(b)), c);
  return simd::fma(as_floats(high_half(a)), as_floats(high_half(b)), c);
#endif
}

// r[i] word j becomes r[j] word i.
[[gnu::always_inline]] inline void transpose_words(Words (&r)[kLanes]) {
  Words t[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // r[4 i + j] now holds rows 4 i .. 4 i + 3 of column 4 l + j in its 128-bit lane l.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const Words even_01 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
    const Words odd_01 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
    const Words even_23 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
    const Words odd_23 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
    t[j] = _mm512_shuffle_i32x4(even_01, even_23, 0x88);
    t[4 + j] = _mm512_shuffle_i32x4(odd_01, odd_23, 0x88);
    t[8 + j] = _mm512_shuffle_i32x4(even_01, even_23, 0xdd);
    t[12 + j] = _mm512_shuffle_i32x4(odd_01, odd_23, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

#else

using Words = __m256i;

[[gnu::always_inline]] inline Words zero_words() {
  return _mm256_setzero_si256();
}
[[gnu::always_inline]] inline Words load_words(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
[[gnu::always_inline]] inline void store_words(void* p, Words v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), v);
}
[[gnu::always_inline]] inline void stream_words(void* p, Words v) {
  _mm256_stream_si256(static_cast<__m256i*>(p), v);
}
[[gnu::always_inline]] inline Words broadcast_word(const std::uint32_t* p) {
  return _mm256_set1_epi32(static_cast<int>(*p));
}
[[gnu::always_inline]] inline Words widen_halves(const void* p) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
[[gnu::always_inline]] inline Words low_half_up(Words v) {
  return _mm256_slli_epi32(v, 16);
}
[[gnu::always_inline]] inline Words high_half(Words v) {
  return _mm256_andnot_si256(_mm256_set1_epi32(0xffff), v);
}
[[gnu::always_inline]] inline Words either(Words a, Words b) {
  return _mm256_or_si256(a, b);
}
[[gnu::always_inline]] inline Floats as_floats(Words v) {
  return _mm256_castsi256_ps(v);
}

[[gnu::always_inline]] inline Floats dot_pairs(Words a, Words b, Floats c) {
  c = simd::fma(as_floats(low_half_up(a)), as_floats(low_half_up(b)), c);
  return simd::fma(as_floats(high_half(a)), as_floats(high_half(b)), c);
}

// r[i] word j becomes r[j] word i.
[[gnu::always_inline]] inline void transpose_words(Words (&r)[kLanes]) {
  Words t[kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    t[j] = _mm256_permute2x128_si256(r[j], r[4 + j], 0x20);
    t[4 + j] = _mm256_permute2x128_si256(r[j], r[4 + j], 0x31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = t[i];
}

#endif

}  // namespace
}  // namespace planalto::kernels::PLANALTO_ISA_NS::gemm
