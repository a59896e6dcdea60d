// SPDX-License-Identifier: Apache-2.0
// mxfp8_lanes.h: 32 neighbouring elements of fp32 or bf16 in vector registers, turned into 32 MXFP8 codes, and back.
// Shapes      a group is spread over kParts vectors of 32-bit lanes: fp32 in its own order; bf16, whose pairs share a lane,
//             as even and odd elements in turn, which saves the shuffles that widening in order would need
// Numerics    encode needs finite magnitudes that do not exceed twice the greatest element after scaling; NaN and infinity
//             go another way. Everything else is exact but the one addition that rounds
// Threads     always inlined, so an object has no symbol of it
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/mxfp8_element.h"

namespace planalto::kernels::PLANALTO_ISA_NS::mxfp8 {
namespace {  // NOLINT: internal linkage is the purpose

using simd::Floats;
using simd::kLanes;

// Unsigned: sums that wrap are meant to.
using Words [[gnu::vector_size(4 * kLanes)]] = std::uint32_t;
inline constexpr int kGroup = 32;
inline constexpr int kParts = kGroup / kLanes;

PLANALTO_INLINE Words words(Floats v) {
  return __builtin_bit_cast(Words, v);
}
PLANALTO_INLINE Floats floats(Words v) {
  return __builtin_bit_cast(Floats, v);
}
PLANALTO_INLINE Words splat(std::uint32_t v) {
  return Words{} + v;
}

#ifdef __AVX512F__

PLANALTO_INLINE Words max_words(Words a, Words b) {
  return __builtin_bit_cast(Words,
                            _mm512_max_epi32(__builtin_bit_cast(__m512i, a), __builtin_bit_cast(__m512i, b)));
}
PLANALTO_INLINE Words max_halves(Words a, Words b) {
  return __builtin_bit_cast(Words,
                            _mm512_max_epu16(__builtin_bit_cast(__m512i, a), __builtin_bit_cast(__m512i, b)));
}
PLANALTO_INLINE __m256i high_words(Words v) {
  return _mm512_extracti64x4_epi64(__builtin_bit_cast(__m512i, v), 1);
}
PLANALTO_INLINE __m256i low_words(Words v) {
  return _mm512_castsi512_si256(__builtin_bit_cast(__m512i, v));
}
PLANALTO_INLINE std::uint32_t greatest_word(Words v) {
  return static_cast<std::uint32_t>(_mm512_reduce_max_epi32(__builtin_bit_cast(__m512i, v)));
}
PLANALTO_INLINE __m256i greatest_halves(Words v) {
  return _mm256_max_epu16(low_words(v), high_words(v));
}

#else  // AVX2

PLANALTO_INLINE Words max_words(Words a, Words b) {
  return __builtin_bit_cast(Words,
                            _mm256_max_epi32(__builtin_bit_cast(__m256i, a), __builtin_bit_cast(__m256i, b)));
}
PLANALTO_INLINE Words max_halves(Words a, Words b) {
  return __builtin_bit_cast(Words,
                            _mm256_max_epu16(__builtin_bit_cast(__m256i, a), __builtin_bit_cast(__m256i, b)));
}
PLANALTO_INLINE std::uint32_t greatest_word(Words v) {
  const __m256i all = __builtin_bit_cast(__m256i, v);
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(m));
}
PLANALTO_INLINE __m256i greatest_halves(Words v) {
  return __builtin_bit_cast(__m256i, v);
}

#endif

// The greatest of 16-bit lanes, as unsigned.
PLANALTO_INLINE std::uint32_t greatest_half(Words v) {
  const __m256i half = greatest_halves(v);
  const __m128i m = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(m, _mm_set1_epi32(-1)));
  return ~static_cast<std::uint32_t>(_mm_cvtsi128_si32(least)) & 0xffffU;
}

template <class T>
struct Group;  // 32 elements as they lie in memory
template <>
struct Group<float> {
  static constexpr int kWords = kParts;
  static constexpr std::uint32_t kMagnitude = 0x7fffffff;
  Words v[kWords];
};
template <>
struct Group<bf16> {
  static constexpr int kWords = kParts / 2;
  static constexpr std::uint32_t kMagnitude = 0x7fff7fff;
  Words v[kWords];
};

template <class T>
PLANALTO_INLINE Group<T> load_group(const T* p) {
  Group<T> g;
#pragma GCC unroll 4
  for (int i = 0; i < Group<T>::kWords; ++i) {
    __builtin_memcpy(&g.v[i], reinterpret_cast<const char*>(p) + static_cast<std::size_t>(i) * sizeof(Words),
                     sizeof(Words));
  }
  return g;
}
template <class T>
PLANALTO_INLINE Group<T> magnitudes(const Group<T>& g) {
  Group<T> m;
#pragma GCC unroll 4
  for (int i = 0; i < Group<T>::kWords; ++i) m.v[i] = g.v[i] & Group<T>::kMagnitude;
  return m;
}
PLANALTO_INLINE Group<float> max_of(const Group<float>& a, const Group<float>& b) {
  Group<float> m;
#pragma GCC unroll 4
  for (int i = 0; i < Group<float>::kWords; ++i) m.v[i] = max_words(a.v[i], b.v[i]);
  return m;
}
PLANALTO_INLINE Group<bf16> max_of(const Group<bf16>& a, const Group<bf16>& b) {
  Group<bf16> m;
#pragma GCC unroll 4
  for (int i = 0; i < Group<bf16>::kWords; ++i) m.v[i] = max_halves(a.v[i], b.v[i]);
  return m;
}
// The greatest of a group of magnitudes, as the bits of an fp32 number.
PLANALTO_INLINE std::uint32_t greatest(const Group<float>& m) {
  Words all = m.v[0];
#pragma GCC unroll 4
  for (int i = 1; i < Group<float>::kWords; ++i) all = max_words(all, m.v[i]);
  return greatest_word(all);
}
PLANALTO_INLINE std::uint32_t greatest(const Group<bf16>& m) {
  Words all = m.v[0];
#pragma GCC unroll 4
  for (int i = 1; i < Group<bf16>::kWords; ++i) all = max_halves(all, m.v[i]);
  return greatest_half(all) << 16;
}

// A group as kParts vectors of 32-bit lanes.
struct Parts {
  Words v[kParts];
};
PLANALTO_INLINE Parts widen(const Group<float>& m) {
  Parts p;
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) p.v[i] = m.v[i];
  return p;
}
PLANALTO_INLINE Parts widen(const Group<bf16>& m) {
  Parts p;
#pragma GCC unroll 4
  for (int i = 0; i < kParts / 2; ++i) {
    p.v[2 * i] = m.v[i] << 16;
    p.v[2 * i + 1] = m.v[i] & 0xffff0000U;
  }
  return p;
}

// Stores the lowest byte of each lane in the order of the elements, with the signs of `signs`.
PLANALTO_INLINE void store_bytes(const Parts& p, const Group<float>& signs, std::uint8_t* out) {
#ifdef __AVX512F__
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) {
    const __m128i bytes = _mm512_cvtepi32_epi8(__builtin_bit_cast(__m512i, p.v[i]));
    const __mmask16 negative = _mm512_movepi32_mask(__builtin_bit_cast(__m512i, signs.v[i]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * kLanes),
                     _mm_mask_add_epi8(bytes, negative, bytes, _mm_set1_epi8(-128)));
  }
#else
  __m256i c[kParts], s[kParts];
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) {
    c[i] = __builtin_bit_cast(__m256i, p.v[i] & 0xffU);
    s[i] = __builtin_bit_cast(__m256i, signs.v[i]);
  }
  // Packing saturates and so keeps a sign; both packs leave the same order.
  const __m256i codes = _mm256_packus_epi16(_mm256_packus_epi32(c[0], c[1]), _mm256_packus_epi32(c[2], c[3]));
  const __m256i sign = _mm256_packs_epi16(_mm256_packs_epi32(s[0], s[1]), _mm256_packs_epi32(s[2], s[3]));
  const __m256i bytes = _mm256_or_si256(codes, _mm256_and_si256(sign, _mm256_set1_epi8(-128)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                      _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
#endif
}
PLANALTO_INLINE void store_bytes(const Parts& p, const Group<bf16>& signs, std::uint8_t* out) {
  Words pairs[kParts / 2];
#pragma GCC unroll 4
  for (int i = 0; i < kParts / 2; ++i) pairs[i] = (p.v[2 * i] & 0xffU) | (p.v[2 * i + 1] << 8);
#ifdef __AVX512F__
  const __m256i bytes = _mm512_cvtepi32_epi16(__builtin_bit_cast(__m512i, pairs[0]));
  const __mmask32 negative = _mm512_movepi16_mask(__builtin_bit_cast(__m512i, signs.v[0]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                      _mm256_mask_add_epi8(bytes, negative, bytes, _mm256_set1_epi8(-128)));
#else
  const __m256i codes = _mm256_packus_epi32(__builtin_bit_cast(__m256i, pairs[0] & 0xffffU),
                                            __builtin_bit_cast(__m256i, pairs[1] & 0xffffU));
  const __m256i sign =
      _mm256_packs_epi16(__builtin_bit_cast(__m256i, signs.v[0]), __builtin_bit_cast(__m256i, signs.v[1]));
  const __m256i bytes = _mm256_or_si256(codes, _mm256_and_si256(sign, _mm256_set1_epi8(-128)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute4x64_epi64(bytes, 0xd8));
#endif
}

// What a block's greatest magnitude makes of it.
template <Mxfp8Format kTheFormat, Mxfp8ScaleRule kTheRule>
struct Encoder {
  static constexpr Mxfp8Format kFormat = kTheFormat;
  static constexpr Mxfp8ScaleRule kRule = kTheRule;
  static constexpr Mxfp8Traits kTraits = mxfp8_traits(kFormat);
  static constexpr std::uint32_t kShift = 23U - static_cast<std::uint32_t>(kTraits.mantissa_bits);
  static constexpr std::uint32_t kLeast = static_cast<std::uint32_t>(kTraits.least_exponent) << 23;

  // The scale bytes of finite amax, mxfp8_block_scale in each lane.
  PLANALTO_INLINE static Words scale_bytes(Words amax) {
    constexpr std::uint32_t kCarry = kRule == Mxfp8ScaleRule::rceil ? 0x1fffffU : 0U;
    constexpr auto kGreatest = static_cast<std::uint32_t>(kTraits.greatest_exponent);
    return max_words(((amax + kCarry) >> 23) - kGreatest, Words{});
  }
  // 2^(127 - byte); byte <= 247.
  PLANALTO_INLINE static Floats factor(Words byte) { return floats((254U - byte) << 23); }

  // The code's magnitude, in the lowest byte. Adding 2^(e + 23 - mantissa bits), e the exponent of the scaled magnitude or
  // the least one of the format, leaves the significand rounded to nearest even in the lowest bits of the sum. Less
  // what e contributes when it is 0 of the format, which goes into the same addition: it is an even number of units.
  PLANALTO_INLINE static Words encode(Words magnitude, Floats factor) {
    constexpr std::uint32_t kOrigin = (0U - (kLeast >> kShift)) & 0xffU;
    static_assert(kOrigin % 2 == 0);
    Floats y = floats(magnitude) * factor;
    if constexpr (kRule == Mxfp8ScaleRule::floor) y = simd::min(y, floats(splat(kTraits.max_bits)));
    const Words e = max_words(words(y) & 0x7f800000U, splat(kLeast));
    return words(y + floats(e + ((kShift << 23) + kOrigin))) + (e >> kShift);
  }
};

// kLanes codes as numbers. Both formats widen to fp16 by shifts: E5M2 is its upper byte, E4M3 has its fields in the right
// places with a bias that is 8 too small.
template <Mxfp8Format kFormat>
PLANALTO_INLINE Floats decode(const std::uint8_t* codes) {
#ifdef __AVX512F__
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const __m256i wide = _mm256_cvtepi8_epi16(bytes);
  const __m256i half =
      kFormat == Mxfp8Format::e5m2
          ? _mm256_slli_epi16(wide, 8)
          : _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<short>(0xbfff)));
  const Floats value = _mm512_cvtph_ps(half);
#else
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  const __m128i wide = _mm_cvtepi8_epi16(bytes);
  const __m128i half =
      kFormat == Mxfp8Format::e5m2
          ? _mm_slli_epi16(wide, 8)
          : _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(static_cast<short>(0xbfff)));
  const Floats value = _mm256_cvtph_ps(half);
#endif
  const Floats exact = kFormat == Mxfp8Format::e4m3 ? value * simd::set1(256.0F) : value;
  const Words magnitude = words(exact) & 0x7fffffffU;
  // 0x7f, which would be 480, is E4M3's NaN.
  const Words nan = kFormat == Mxfp8Format::e4m3 ? magnitude == 0x43f00000U : magnitude > 0x7f800000U;
  return floats(nan ? splat(0x7fffffffU) : words(exact));
}

PLANALTO_INLINE Words widen_bytes(const std::uint8_t* bytes) {
#ifdef __AVX512F__
  return __builtin_bit_cast(Words,
                            _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
#else
  return __builtin_bit_cast(Words,
                            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))));
#endif
}

// v 2^(scale - 127), NaN where the scale is 255. Two factors that are both normal: the first product is exact.
PLANALTO_INLINE Floats scaled(Floats v, Words scale) {
  const Words half = scale >> 1;
  const Floats first = floats((half + 64U) << 23), second = floats((scale - half + 63U) << 23);
  const Words product = words(v * first * second);
  return floats(scale == 255U ? splat(0x7fffffffU) : product);
}

}  // namespace
}  // namespace planalto::kernels::PLANALTO_ISA_NS::mxfp8
