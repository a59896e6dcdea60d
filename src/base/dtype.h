// SPDX-License-Identifier: Apache-2.0
// dtype.h: the element types of buffers and views, and the bf16 conversions that every path must share.
// Numerics    to_bf16 rounds to nearest even, keeps subnormals, overflows to infinity, makes NaN quiet and keeps its sign
// Threads     pure
#pragma once

#include <bit>
#include <cstdint>

namespace planalto {

enum class DType : std::uint8_t { f32, bf16, f64, i32, i64, u8 };

[[gnu::always_inline]] constexpr inline std::int64_t dtype_bytes(DType t) {
  switch (t) {
    case DType::f32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::f64:
      return 8;
    case DType::i32:
      return 4;
    case DType::i64:
      return 8;
    case DType::u8:
      return 1;
  }
  return 0;
}

const char* to_string(DType t);

struct bf16 {
  std::uint16_t bits;
};

[[gnu::always_inline]] constexpr inline float to_float(bf16 v) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(v.bits) << 16);
}
[[gnu::always_inline]] constexpr inline float to_float(float v) {
  return v;
}

[[gnu::always_inline]] constexpr inline bf16 to_bf16(float v) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(v);
  if ((u & 0x7fffffffU) > 0x7f800000U) return bf16{static_cast<std::uint16_t>((u >> 16) | 0x40U)};
  return bf16{static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16)};
}

}  // namespace planalto
