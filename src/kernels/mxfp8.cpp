// SPDX-License-Identifier: Apache-2.0
#include "kernels/mxfp8.h"

#include <algorithm>

#include "base/exec_context.h"
#include "kernels/segment_check.h"
#include "kernels/table.h"
#include "kernels/view_check.h"

namespace planalto::kernels {

namespace {

// Codes and scales of one copy of [rows, cols] elements; `what` is "kernel: by rows" or "by columns".
void check_copy(const char* what, const ConstMatrix& codes, const ConstMatrix& scales, Mxfp8Axis axis,
                std::int64_t rows, std::int64_t padded_rows, std::int64_t cols) {
  if (axis == Mxfp8Axis::row) {
    check_view(what, codes, rows, cols, DType::u8);
    check_view(what, scales, rows, mxfp8_blocks(cols), DType::u8);
  } else {
    check_view(what, codes, padded_rows, cols, DType::u8);
    check_view(what, scales, padded_rows / kMxfp8Block, cols, DType::u8);
  }
}

}  // namespace

std::int64_t mxfp8_padded_rows(const Segments& segments, std::int64_t rows) {
  if (segments.offsets == nullptr) return mxfp8_blocks(rows) * kMxfp8Block;
  std::int64_t blocks = 0;
  for (std::int64_t e = 0; e < segments.num; ++e) {
    blocks += mxfp8_blocks(segments.offsets[e + 1] - segments.offsets[e]);
  }
  return blocks * kMxfp8Block;
}

// A segment that is not empty adds at most 31 rows.
std::int64_t mxfp8_max_padded_rows(std::int64_t rows, std::int64_t num_segments) {
  const std::int64_t filled = std::min(rows, num_segments);
  return (rows + filled * (kMxfp8Block - 1)) / kMxfp8Block * kMxfp8Block;
}

void mxfp8_quantize(const ExecContext& ctx, const Mxfp8Quantize& a) {
  const std::int64_t rows = check_segments(a.segments, a.rows), cols = a.x.cols;
  check_float_dtype("mxfp8_quantize: x", a.x.dtype);
  check_view("mxfp8_quantize: x", a.x, rows, cols, a.x.dtype);
  const std::int64_t padded = mxfp8_padded_rows(a.segments, rows);
  PLANALTO_CHECK(a.row_codes.data != nullptr || a.column_codes.data != nullptr || rows == 0 || cols == 0,
                 "mxfp8_quantize of {} x {} is given no codes to write", rows, cols);
  if (a.row_codes.data != nullptr) {
    check_copy("mxfp8_quantize: by rows", a.row_codes, a.row_scales, Mxfp8Axis::row, rows, padded, cols);
  }
  if (a.column_codes.data != nullptr) {
    check_copy("mxfp8_quantize: by columns", a.column_codes, a.column_scales, Mxfp8Axis::column, rows, padded,
               cols);
  }
  ctx.kernels->mxfp8_quantize(ctx, a);
}

void mxfp8_dequantize(const ExecContext& ctx, const Mxfp8Dequantize& a) {
  const std::int64_t rows = check_segments(a.segments, a.rows), cols = a.y.cols;
  check_float_dtype("mxfp8_dequantize: y", a.y.dtype);
  check_view("mxfp8_dequantize: y", a.y, rows, cols, a.y.dtype);
  check_copy("mxfp8_dequantize", a.codes, a.scales, a.axis, rows, mxfp8_padded_rows(a.segments, rows), cols);
  ctx.kernels->mxfp8_dequantize(ctx, a);
}

}  // namespace planalto::kernels
