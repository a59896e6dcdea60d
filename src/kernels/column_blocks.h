// SPDX-License-Identifier: Apache-2.0
// column_blocks.h: how the sums over rows of bias_grad and rms_norm_backward are cut: a function of the width alone.
// Numerics    block b holds rows [b * block, (b + 1) * block); partial sums of blocks are added in block order, so
//             neither threads nor the capacity of a buffer change a bit
// Memory      partial sums [blocks, cols] fp32: at most 1/128 of the rows that are summed, as fp32, plus one block
#pragma once

#include <cstdint>

namespace planalto::kernels {

[[gnu::always_inline]] inline std::int64_t column_block_rows(std::int64_t cols) {
  return cols < 512 ? 65536 / (cols > 0 ? cols : 1) : 128;
}
[[gnu::always_inline]] inline std::int64_t num_column_blocks(std::int64_t rows, std::int64_t cols) {
  return (rows + column_block_rows(cols) - 1) / column_block_rows(cols);
}
[[gnu::always_inline]] inline std::int64_t column_partial_bytes(std::int64_t rows, std::int64_t cols) {
  return num_column_blocks(rows, cols) * cols * 4;
}

}  // namespace planalto::kernels
