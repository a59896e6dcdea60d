// SPDX-License-Identifier: Apache-2.0
// mxfp8.h: MXFP8 copies of a matrix, with a scale for each 32 elements of a row or of a column, and the way back.
// Shapes      x [R, C]; by rows: codes [R, C], scales [R, ceil(C/32)], the last block of a row may be short;
//             by columns: codes [P, C], scales [P/32, C], P = mxfp8_padded_rows: each segment begins on a fresh block of
//             32 rows, its last block is filled up with rows of code 0, and an empty segment has no block. So a block
//             never spans two segments, and a segment's codes do not depend on the others. Any extent may be zero
// Invariants  offsets as in grouped_gemm.h; rows past the last one are neither read nor written. Codes and scales are u8
// Numerics    kernels/mxfp8_element.h. A block's scale goes by its greatest magnitude; a zero block has scale byte 0 and
//             codes 0x00 or 0x80. A NaN gives scale 255 and codes 0x7f throughout its block; an infinity scale 254, and itself
//             saturates. Dequantized: code * 2^(scale - 127), rounded once to the dtype of y (fp32: exact unless it
//             overflows). Both copies of one call are quantized from x, neither from the other. Same bits on every ISA
// Memory      allocates nothing; mxfp8_quantize reads x from memory once, also for both copies
// Errors      internal: shapes or dtypes that do not fit, offsets that descend
// Source      OCP Microscaling Formats (MX) 1.0; layout original
#pragma once

#include "base/view.h"
#include "kernels/grouped_gemm.h"
#include "kernels/mxfp8_element.h"

namespace planalto::kernels {

struct Mxfp8Quantize {
  ConstMatrix x;          // bf16 or fp32
  Matrix row_codes = {};  // data null: no copy by rows
  Matrix row_scales = {};
  Matrix column_codes = {};  // data null: no copy by columns
  Matrix column_scales = {};
  Mxfp8Format format = Mxfp8Format::e4m3;
  Mxfp8ScaleRule rule = Mxfp8ScaleRule::rceil;
  Segments segments = {};
  RowCount rows;
};

enum class Mxfp8Axis : std::uint8_t { row, column };
struct Mxfp8Dequantize {
  ConstMatrix codes;
  ConstMatrix scales;
  Matrix y;  // [R, C] bf16 or fp32, without padding
  Mxfp8Axis axis = Mxfp8Axis::row;
  Mxfp8Format format = Mxfp8Format::e4m3;
  Segments segments = {};
  RowCount rows;
};

// Rows of the copy by columns: every segment rounded up to whole blocks.
std::int64_t mxfp8_padded_rows(const Segments& segments, std::int64_t rows);
// The most that mxfp8_padded_rows can be for `rows` rows in `num_segments` segments, however they are split.
std::int64_t mxfp8_max_padded_rows(std::int64_t rows, std::int64_t num_segments);
// Scales of a row of `cols` elements.
[[gnu::always_inline]] constexpr inline std::int64_t mxfp8_blocks(std::int64_t cols) {
  return (cols + kMxfp8Block - 1) / kMxfp8Block;
}

void mxfp8_quantize(const ExecContext& ctx, const Mxfp8Quantize& a);
void mxfp8_dequantize(const ExecContext& ctx, const Mxfp8Dequantize& a);

}  // namespace planalto::kernels
