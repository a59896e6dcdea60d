// SPDX-License-Identifier: Apache-2.0
// mxfp8_bench.cpp: MXFP8 quantization by rows, by columns and both at once, and the way back, beside memcpy.
// Units       bytes: x, codes and scales, each once. The copy moves as many bytes, half of them read, half written: the ratio
//             to it is the share of the copy's bandwidth in the same rounds
// usage: mxfp8_bench --help
#include <fmt/core.h>

#include "base/error.h"
#include "bench/harness/operands.h"
#include "bench/harness/session.h"
#include "kernels/elementwise.h"
#include "kernels/mxfp8.h"

namespace planalto::bench {
namespace {

using kernels::kMxfp8Block;
using kernels::mxfp8_blocks;
using kernels::Mxfp8Dequantize;
using kernels::Mxfp8Quantize;

Matrix bytes_of(const Operand& storage, std::int64_t rows, std::int64_t cols) {
  return {storage.data(), DType::u8, rows, cols, cols};
}

class Copies {
 public:
  Copies(Session& session, DType dtype, std::int64_t rows, std::int64_t cols)
      : session_(session),
        x_(dtype, rows, cols, 1),
        y_(dtype, rows, cols, 2),
        row_codes_(rows * cols),
        row_scales_(rows * mxfp8_blocks(cols)),
        column_codes_(mxfp8_blocks(rows) * kMxfp8Block * cols),
        column_scales_(mxfp8_blocks(rows) * cols),
        from_(DType::bf16, 1, longest_copy(dtype, rows, cols), 3),
        to_(DType::bf16, 1, longest_copy(dtype, rows, cols), 4) {}

  void measure(kernels::Mxfp8Format format) {
    const ExecContext& ctx = session_.ctx();
    const Matrix x = x_.view();
    const std::int64_t rows = x.rows, cols = x.cols, blocks = mxfp8_blocks(rows);
    const std::int64_t x_bytes = rows * cols * dtype_bytes(x.dtype);
    const std::int64_t by_rows = rows * (cols + mxfp8_blocks(cols)),
                       by_columns = blocks * (kMxfp8Block + 1) * cols;
    const std::string kind =
        fmt::format("{} {}", to_string(x.dtype), format == kernels::Mxfp8Format::e4m3 ? "e4m3" : "e5m2");
    Mxfp8Quantize q{.x = x, .format = format, .rows = {.capacity = rows}};
    const auto quantize = [&] { kernels::mxfp8_quantize(ctx, q); };
    q.row_codes = bytes_of(row_codes_, rows, cols);
    q.row_scales = bytes_of(row_scales_, rows, mxfp8_blocks(cols));
    against_copy("quantize by rows " + kind, x_bytes + by_rows, quantize);
    q.column_codes = bytes_of(column_codes_, blocks * kMxfp8Block, cols);
    q.column_scales = bytes_of(column_scales_, blocks, cols);
    against_copy("quantize both ways " + kind, x_bytes + by_rows + by_columns, quantize);
    Mxfp8Dequantize d{
        .codes = q.row_codes, .scales = q.row_scales, .y = y_.view(), .format = format, .rows = q.rows};
    const auto dequantize = [&] { kernels::mxfp8_dequantize(ctx, d); };
    against_copy("dequantize by rows " + kind, x_bytes + by_rows, dequantize);
    q.row_codes = q.row_scales = {};
    against_copy("quantize by columns " + kind, x_bytes + by_columns, quantize);
    d.codes = q.column_codes;
    d.scales = q.column_scales;
    d.axis = kernels::Mxfp8Axis::column;
    against_copy("dequantize by columns " + kind, x_bytes + by_columns, dequantize);
  }

 private:
  // In bf16 numbers: half the bytes of the call that moves the most.
  static std::int64_t longest_copy(DType dtype, std::int64_t rows, std::int64_t cols) {
    const std::int64_t padded = mxfp8_blocks(rows) * kMxfp8Block;
    return (rows * cols * dtype_bytes(dtype) + rows * (cols + mxfp8_blocks(cols)) + padded * cols +
            mxfp8_blocks(rows) * cols) /
           4;
  }

  void against_copy(const std::string& name, std::int64_t bytes, const Meter::Body& body) {
    const Meter::Body copy = [&] {
      kernels::cast_elements(session_.ctx(), {.from = from_.data(),
                                              .from_dtype = DType::bf16,
                                              .to = to_.data(),
                                              .to_dtype = DType::bf16,
                                              .n = bytes / 4});
    };
    session_.measure(Bound::update, 0.0, static_cast<double>(bytes),
                     {{name, "planalto", body}, {name, "memcpy", copy}});
  }

  Session& session_;
  Operand x_, y_, row_codes_, row_scales_, column_codes_, column_scales_, from_, to_;
};

void run(Session& session) {
  const std::int64_t rows = session.arguments().integer("--rows"),
                     cols = session.arguments().integer("--cols");
  if (rows < 1 || cols < 1)
    fail(ErrorKind::config, "--rows {} and --cols {}: at least 1 of each", rows, cols);
  for (const DType dtype : {DType::bf16, DType::f32}) {
    Copies copies(session, dtype, rows, cols);
    for (const auto format : {kernels::Mxfp8Format::e4m3, kernels::Mxfp8Format::e5m2}) copies.measure(format);
  }
}

}  // namespace
}  // namespace planalto::bench

int main(int argc, char** argv) {
  return planalto::bench::run_benchmark(
      argc, argv, {{"--rows", "16384", "rows of x"}, {"--cols", "2048", "columns of x"}},
      planalto::bench::run);
}
