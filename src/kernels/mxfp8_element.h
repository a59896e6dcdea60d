// SPDX-License-Identifier: Apache-2.0
// mxfp8_element.h: one element and one scale of MXFP8: E4M3 and E5M2 codes, E8M0 bytes, the rules for a block's scale.
// Numerics    encode rounds once to nearest even and saturates (infinities too); -0 keeps its sign; every NaN gives 0x7f.
//             decode is exact; every NaN code gives the float 0x7fffffff. An E8M0 byte b is 2^(b - 127), 255 is NaN.
//             Integer arithmetic throughout but for one exact product, so no rounding mode or flush setting matters
//             as long as subnormals are kept
// Threads     pure, always inlined
// Reference   kernels/ref/mxfp8.cpp, written in double; tests/golden/mxfp8
// Source      OCP Microscaling Formats (MX) 1.0, sections 5 and 6
#pragma once

#include <bit>
#include <cstdint>

#define PLANALTO_MXFP8_INLINE [[gnu::always_inline]] constexpr inline

namespace planalto::kernels {

inline constexpr std::int64_t kMxfp8Block = 32;

enum class Mxfp8Format : std::uint8_t { e4m3, e5m2 };
// rceil: the smallest power of two that is >= amax / largest element, so nothing saturates.
// floor: 2^(floor(log2 amax) - exponent of the largest element): elements above the largest saturate.
enum class Mxfp8ScaleRule : std::uint8_t { rceil, floor };

struct Mxfp8Traits {
  int mantissa_bits;
  int least_exponent;      // fp32 exponent field of the least normal number
  int greatest_exponent;   // log2 of the greatest number, rounded down
  std::uint8_t max_code;   // of the greatest finite number
  std::uint32_t max_bits;  // the same as fp32
  std::uint8_t first_nan;  // magnitudes from here on are NaN
};

PLANALTO_MXFP8_INLINE Mxfp8Traits mxfp8_traits(Mxfp8Format format) {
  return format == Mxfp8Format::e4m3 ? Mxfp8Traits{3, 121, 8, 0x7e, 0x43e00000, 0x7f}
                                     : Mxfp8Traits{2, 113, 15, 0x7b, 0x47600000, 0x7d};
}

PLANALTO_MXFP8_INLINE std::uint8_t mxfp8_encode(float value, Mxfp8Format format) {
  const Mxfp8Traits t = mxfp8_traits(format);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU, sign = (bits >> 24) & 0x80U;
  if (magnitude > 0x7f800000U) return 0x7f;
  if (magnitude >= t.max_bits) return static_cast<std::uint8_t>(sign | t.max_code);
  const int exponent = static_cast<int>(magnitude >> 23);
  std::uint32_t significand = magnitude, shift = static_cast<std::uint32_t>(23 - t.mantissa_bits), below = 0;
  if (exponent >= t.least_exponent) {
    below = static_cast<std::uint32_t>(t.least_exponent - 1) << t.mantissa_bits;
  } else {
    significand = (magnitude & 0x7fffffU) | (exponent > 0 ? 0x800000U : 0U);
    shift += static_cast<std::uint32_t>(t.least_exponent - (exponent > 0 ? exponent : 1));
    if (shift > 24) return static_cast<std::uint8_t>(sign);  // below half of the least number
  }
  const std::uint32_t half_less_one = (1U << (shift - 1)) - 1U, odd = (significand >> shift) & 1U;
  return static_cast<std::uint8_t>(sign | (((significand + half_less_one + odd) >> shift) - below));
}

PLANALTO_MXFP8_INLINE float mxfp8_decode(std::uint8_t code, Mxfp8Format format) {
  const Mxfp8Traits t = mxfp8_traits(format);
  const std::uint32_t magnitude = code & 0x7fU, sign = (code & 0x80U) << 24;
  if (magnitude >= t.first_nan) return std::bit_cast<float>(0x7fffffffU);
  if (magnitude > t.max_code) return std::bit_cast<float>(sign | 0x7f800000U);
  const std::uint32_t fraction = magnitude << (23 - t.mantissa_bits);
  const auto least = static_cast<std::uint32_t>(t.least_exponent) << 23;
  if (magnitude >> t.mantissa_bits != 0) return std::bit_cast<float>(sign | (fraction + least - 0x800000U));
  // A subnormal has no implicit one: put one there and take it away again.
  const float value = std::bit_cast<float>(fraction + least) - std::bit_cast<float>(least);
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

PLANALTO_MXFP8_INLINE float e8m0_to_float(std::uint8_t byte) {
  if (byte == 255) return std::bit_cast<float>(0x7fffffffU);
  return std::bit_cast<float>(byte == 0 ? 0x00400000U : std::uint32_t{byte} << 23);
}

// The power of two next to a value that is not negative: upwards under rceil, downwards under floor; within
// 2^-127 .. 2^127, so infinity gives 254; NaN gives 255.
PLANALTO_MXFP8_INLINE std::uint8_t e8m0_from_float(float value, Mxfp8ScaleRule rule) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
  if (bits > 0x7f800000U) return 255;
  const std::uint32_t exponent = bits >> 23, mantissa = bits & 0x7fffffU;
  const bool up = exponent == 0 ? mantissa > 0x400000U : mantissa != 0;
  const std::uint32_t byte = exponent + (rule == Mxfp8ScaleRule::rceil && up ? 1U : 0U);
  return static_cast<std::uint8_t>(byte < 254U ? byte : 254U);
}

// The scale of a block whose greatest magnitude has these fp32 bits; a NaN, the greatest of all as an integer, gives 255,
// an infinity 254. The greatest element is 1.75 times a power of two in both formats, so under rceil the exponent
// goes up by one where the mantissa of amax exceeds 0.75: exact, also where amax / largest would be subnormal.
PLANALTO_MXFP8_INLINE std::uint8_t mxfp8_block_scale(std::uint32_t amax_bits, Mxfp8Format format,
                                                     Mxfp8ScaleRule rule) {
  if (amax_bits >= 0x7f800000U) return amax_bits > 0x7f800000U ? 255 : 254;
  const std::uint32_t carry = rule == Mxfp8ScaleRule::rceil ? 0x1fffffU : 0U;
  const int byte = static_cast<int>((amax_bits + carry) >> 23) - mxfp8_traits(format).greatest_exponent;
  return static_cast<std::uint8_t>(byte > 0 ? byte : 0);
}

// value / 2^(scale - 127), rounded once. The quotient is exact, or far below half of the least number.
PLANALTO_MXFP8_INLINE std::uint8_t mxfp8_encode_scaled(float value, std::uint8_t scale, Mxfp8Format format) {
  if (scale == 255) return 0x7f;
  return mxfp8_encode(value * e8m0_to_float(static_cast<std::uint8_t>(254 - scale)), format);
}

}  // namespace planalto::kernels
