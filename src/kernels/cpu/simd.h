// SPDX-License-Identifier: Apache-2.0
// simd.h: one vector of floats as wide as the ISA of the object, written once for AVX2 (8 lanes) and AVX-512 (16).
// Invariants  lanes past n are zero after load(p, n) and not written by store(p, v, n); 0 <= n <= kLanes
// Numerics    bf16 stores are integer round-to-nearest-even, bit-equal to to_bf16 (subnormals and NaN too) on every
//             ISA: the bf16 conversion instructions flush subnormals and are not used. exp: within 2 ulp over the
//             whole range. + - * / are the compiler's and never contract; fma is explicit.
//             sum and max_lane fold halves in a fixed tree; sum_terms adds four partial vectors ((0 + 1) + (2 + 3)) first
// Threads     always inlined, so an object has no symbol of it
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/dtype.h"

#define PLANALTO_INLINE [[gnu::always_inline]] inline

namespace planalto::kernels::PLANALTO_ISA_NS::simd {
namespace {  // NOLINT: internal linkage is the purpose

#ifdef __AVX512F__

using Floats = __m512;
inline constexpr std::int64_t kLanes = 16;

PLANALTO_INLINE Floats zero() {
  return _mm512_setzero_ps();
}
PLANALTO_INLINE Floats set1(float v) {
  return _mm512_set1_ps(v);
}
PLANALTO_INLINE Floats fma(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}  // a b + c
PLANALTO_INLINE Floats fnma(Floats a, Floats b, Floats c) {
  return _mm512_fnmadd_ps(a, b, c);
}  // c - a b
// The second operand where either is NaN, as the instruction has it.
PLANALTO_INLINE Floats max(Floats a, Floats b) {
  return _mm512_max_ps(a, b);
}
PLANALTO_INLINE Floats min(Floats a, Floats b) {
  return _mm512_min_ps(a, b);
}
PLANALTO_INLINE Floats sqrt(Floats a) {
  return _mm512_sqrt_ps(a);
}

PLANALTO_INLINE __mmask16 first_lanes(std::int64_t n) {
  return static_cast<__mmask16>((std::uint32_t{1} << static_cast<unsigned>(n)) - 1U);
}
PLANALTO_INLINE Floats widen(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
PLANALTO_INLINE __m256i narrow(Floats v) {
  const __m512i u = _mm512_castps_si512(v);
  const __m512i high = _mm512_srli_epi32(u, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40)));
}

// widen(narrow(v)) in place; a NaN keeps its payload
PLANALTO_INLINE Floats rounded_to_bf16(Floats v) {
  const __m512i u = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
  return _mm512_castsi512_ps(_mm512_mask_and_epi32(u, number, sum, _mm512_set1_epi32(-0x10000)));
}

PLANALTO_INLINE Floats load(const float* p) {
  return _mm512_loadu_ps(p);
}
PLANALTO_INLINE Floats load(const float* p, std::int64_t n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
PLANALTO_INLINE Floats load(const bf16* p) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
PLANALTO_INLINE Floats load(const bf16* p, std::int64_t n) {
  return widen(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
PLANALTO_INLINE void store(float* p, Floats v) {
  _mm512_storeu_ps(p, v);
}
PLANALTO_INLINE void store(float* p, Floats v, std::int64_t n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), v);
}
PLANALTO_INLINE void store(bf16* p, Floats v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(v));
}
PLANALTO_INLINE void store(bf16* p, Floats v, std::int64_t n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), narrow(v));
}

PLANALTO_INLINE __m256 low_half(Floats v) {
  return _mm512_castps512_ps256(v);
}
PLANALTO_INLINE __m256 high_half(Floats v) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
}
PLANALTO_INLINE Floats round_to_integer(Floats v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// where(a < b, x, y), lane by lane; false where either is NaN
PLANALTO_INLINE Floats where_less(Floats a, Floats b, Floats x, Floats y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
// v 2^n for integral n; one rounding also where the result is subnormal
PLANALTO_INLINE Floats times_power_of_two(Floats v, Floats n) {
  return _mm512_scalef_ps(v, n);
}
// (v1, v0, v3, v2, ...)
PLANALTO_INLINE Floats swap_pairs(Floats v) {
  return _mm512_permute_ps(v, 0xb1);
}
PLANALTO_INLINE Floats repeat_pair(float even, float odd) {
  return _mm512_setr_ps(even, odd, even, odd, even, odd, even, odd, even, odd, even, odd, even, odd, even,
                        odd);
}
// (v0, v0, v1, v1, ...): the lower half of the lanes, each twice
PLANALTO_INLINE Floats repeat_each(Floats v) {
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), v);
}

#else  // AVX2

using Floats = __m256;
inline constexpr std::int64_t kLanes = 8;

PLANALTO_INLINE Floats zero() {
  return _mm256_setzero_ps();
}
PLANALTO_INLINE Floats set1(float v) {
  return _mm256_set1_ps(v);
}
PLANALTO_INLINE Floats fma(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}  // a b + c
PLANALTO_INLINE Floats fnma(Floats a, Floats b, Floats c) {
  return _mm256_fnmadd_ps(a, b, c);
}  // c - a b
// The second operand where either is NaN, as the instruction has it.
PLANALTO_INLINE Floats max(Floats a, Floats b) {
  return _mm256_max_ps(a, b);
}
PLANALTO_INLINE Floats min(Floats a, Floats b) {
  return _mm256_min_ps(a, b);
}
PLANALTO_INLINE Floats sqrt(Floats a) {
  return _mm256_sqrt_ps(a);
}

PLANALTO_INLINE __m256i first_lanes(std::int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
PLANALTO_INLINE Floats widen(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
PLANALTO_INLINE __m128i narrow(Floats v) {
  const __m256i u = _mm256_castps_si256(v);
  const __m256i high = _mm256_srli_epi32(u, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

// widen(narrow(v)) in place; a NaN keeps its payload
PLANALTO_INLINE Floats rounded_to_bf16(Floats v) {
  const __m256i u = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const Floats rounded = _mm256_castsi256_ps(_mm256_and_si256(sum, _mm256_set1_epi32(-0x10000)));
  return _mm256_blendv_ps(rounded, v, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

PLANALTO_INLINE Floats load(const float* p) {
  return _mm256_loadu_ps(p);
}
PLANALTO_INLINE Floats load(const float* p, std::int64_t n) {
  return _mm256_maskload_ps(p, first_lanes(n));
}
PLANALTO_INLINE Floats load(const bf16* p) {
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
PLANALTO_INLINE Floats load(const bf16* p, std::int64_t n) {
  alignas(16) bf16 lanes[kLanes] = {};
  for (std::int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return widen(_mm_load_si128(reinterpret_cast<const __m128i*>(lanes)));
}
PLANALTO_INLINE void store(float* p, Floats v) {
  _mm256_storeu_ps(p, v);
}
PLANALTO_INLINE void store(float* p, Floats v, std::int64_t n) {
  _mm256_maskstore_ps(p, first_lanes(n), v);
}
PLANALTO_INLINE void store(bf16* p, Floats v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(v));
}
PLANALTO_INLINE void store(bf16* p, Floats v, std::int64_t n) {
  alignas(16) bf16 lanes[kLanes];
  _mm_store_si128(reinterpret_cast<__m128i*>(lanes), narrow(v));
  for (std::int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

PLANALTO_INLINE Floats round_to_integer(Floats v) {
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// where(a < b, x, y), lane by lane; false where either is NaN
PLANALTO_INLINE Floats where_less(Floats a, Floats b, Floats x, Floats y) {
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
// v 2^n for integral n in [-252, 254]. Two steps of half the exponent: the first is exact, so a subnormal is
// rounded once.
PLANALTO_INLINE Floats times_power_of_two(Floats v, Floats n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i first = _mm256_srai_epi32(whole, 1);
  const __m256i second = _mm256_sub_epi32(whole, first);
  const __m256i bias = _mm256_set1_epi32(127);
  const Floats a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23));
  const Floats b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23));
  return v * a * b;
}
// (v1, v0, v3, v2, ...)
PLANALTO_INLINE Floats swap_pairs(Floats v) {
  return _mm256_permute_ps(v, 0xb1);
}
PLANALTO_INLINE Floats repeat_pair(float even, float odd) {
  return _mm256_setr_ps(even, odd, even, odd, even, odd, even, odd);
}
// (v0, v0, v1, v1, ...): the lower half of the lanes, each twice
PLANALTO_INLINE Floats repeat_each(Floats v) {
  return _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

#endif

PLANALTO_INLINE float sum4(__m128 v) {
  v = _mm_add_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
}
PLANALTO_INLINE float max4(__m128 v) {
  v = _mm_max_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)));
}
PLANALTO_INLINE float sum8(__m256 v) {
  return sum4(_mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)));
}
PLANALTO_INLINE float max8(__m256 v) {
  return max4(_mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)));
}
#ifdef __AVX512F__
PLANALTO_INLINE float sum(Floats v) {
  return sum8(_mm256_add_ps(low_half(v), high_half(v)));
}
PLANALTO_INLINE float max_lane(Floats v) {
  return max8(_mm256_max_ps(low_half(v), high_half(v)));
}
#else
PLANALTO_INLINE float sum(Floats v) {
  return sum8(v);
}
PLANALTO_INLINE float max_lane(Floats v) {
  return max8(v);
}
#endif

// e^t for t in [-104, 89]: 2^n e^r, n = round(t / ln 2), |r| <= ln(2)/2. e^r = 1 + r + r^2 q(r), q the degree-4
// interpolation of (e^r - 1 - r) / r^2 at Chebyshev nodes: 1.1e-8 relative.
PLANALTO_INLINE Floats exp_in_range(Floats t) {
  const Floats n = round_to_integer(t * set1(0x1.715476p+0F));
  Floats r = fnma(n, set1(0x1.62e43p-1F), t);  // ln 2 to 24 bits: this step is exact
  r = fnma(n, set1(-0x1.05c61p-29F), r);       // and the rest of it
  Floats q = set1(0x1.6d113cp-10F);
  q = fma(q, r, set1(0x1.120ba2p-7F));
  q = fma(q, r, set1(0x1.55551ap-5F));
  q = fma(q, r, set1(0x1.5554dcp-3F));
  q = fma(q, r, set1(0.5F));
  return times_power_of_two(set1(1.0F) + fma(r * r, q, r), n);
}

// exp(-inf) = 0, above 88.7229 infinite, NaN stays NaN.
PLANALTO_INLINE Floats exp(Floats x) {
  const Floats lowest =
      set1(-104.0F);  // below it the nearest float is 0, and a multiply that underflows is slow
  const Floats t = where_less(x, lowest, zero(), min(set1(89.0F), x));
  return where_less(x, lowest, zero(), exp_in_range(t));
}

// 1 / (1 + e^-x); 0 from about -88.7 down. Below e^-87 the sum is 1 in any case.
PLANALTO_INLINE Floats sigmoid(Floats x) {
  const Floats t = max(set1(-87.0F), min(set1(89.0F), zero() - x));
  return set1(1.0F) / (set1(1.0F) + exp_in_range(t));
}

// How much of a vector a step of sweep covers: all lanes, or the first n of them.
struct Whole {};
struct Part {
  std::int64_t n;
};
template <class T>
PLANALTO_INLINE Floats load(const T* p, Whole) {
  return load(p);
}
template <class T>
PLANALTO_INLINE Floats load(const T* p, Part part) {
  return load(p, part.n);
}
template <class T>
PLANALTO_INLINE void store(T* p, Floats v, Whole) {
  store(p, v);
}
template <class T>
PLANALTO_INLINE void store(T* p, Floats v, Part part) {
  store(p, v, part.n);
}
// The kLanes/2 values, or half a part of an even number, that repeat_each spreads.
PLANALTO_INLINE Floats load_half(const float* p, Whole) {
  return load(p, kLanes / 2);
}
PLANALTO_INLINE Floats load_half(const float* p, Part part) {
  return load(p, part.n / 2);
}

// step(i, Whole or Part) over elements 0 .. n-1.
template <class Step>
PLANALTO_INLINE void sweep(std::int64_t n, const Step& step) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step(i, Whole{});
  if (i < n) step(i, Part{n - i});
}

// The sum over elements 0 .. n-1 of term(i, Whole or Part), a vector that must be zero past the part.
template <class Term>
PLANALTO_INLINE float sum_terms(std::int64_t n, const Term& term) {
  Floats s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    s0 += term(i, Whole{});
    s1 += term(i + kLanes, Whole{});
    s2 += term(i + 2 * kLanes, Whole{});
    s3 += term(i + 3 * kLanes, Whole{});
  }
  for (; i + kLanes <= n; i += kLanes) s0 += term(i, Whole{});
  if (i < n) s1 += term(i, Part{n - i});
  return sum((s0 + s1) + (s2 + s3));
}

}  // namespace
}  // namespace planalto::kernels::PLANALTO_ISA_NS::simd
