// SPDX-License-Identifier: Apache-2.0
// square_blocks.h: the fixed blocks of sum_squares.
#pragma once

#include <cstdint>

namespace planalto::kernels {

inline constexpr std::int64_t kSquareBlock = 4096;
[[gnu::always_inline]] inline std::int64_t num_square_blocks(std::int64_t n) {
  return (n + kSquareBlock - 1) / kSquareBlock;
}

}  // namespace planalto::kernels
