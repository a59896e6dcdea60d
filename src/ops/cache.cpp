// SPDX-License-Identifier: Apache-2.0
#include "ops/cache.h"

#include <cstring>

#include "base/error.h"
#include "kernels/grouped_gemm.h"

namespace planalto::ops {

void append_rows(Builder& b, const std::string& name, const Cols& rows_cols, const Cols& cache_cols,
                 Buffer length, const Rows& num_rows) {
  const Operand rows(b, rows_cols), cache(b, cache_cols);
  b.emit({.name = name,
          .kind = "append_rows",
          .accesses = {reads(rows.buffer), reads(length), reads(num_rows.counts), updates(cache.buffer)},
          .cost =
              [=](const RunCounts& c) {
                return Cost{0, 2 * rows.bytes(num_rows.value(c)), 0};
              },
          .run =
              [=](const RunContext& ctx) {
                const std::int64_t n = num_rows.at(ctx).get(), start = *ctx.data<std::int64_t>(length);
                const Matrix from = rows.at(ctx), to = cache.at(ctx);
                PLANALTO_CHECK(start >= 0 && start + n <= to.rows, "rows {} .. {} of a cache of {}", start,
                               start + n, to.rows);
                const std::int64_t element = dtype_bytes(from.dtype);
                for (std::int64_t r = 0; r < n; ++r) {
                  std::memcpy(static_cast<char*>(to.data) + (start + r) * to.row_stride * element,
                              static_cast<const char*>(from.data) + r * from.row_stride * element,
                              static_cast<std::size_t>(from.cols * element));
                }
              }});
}

void per_head_product(Builder& b, const std::string& name, Buffer x_buffer, Buffer w_buffer, Buffer y_buffer,
                      const Rows& num_rows, const PerHeadProduct& p) {
  const Operand x(b, x_buffer), w(b, w_buffer), y(b, y_buffer);
  const std::int64_t k = w.cols;
  const kernels::GemmPass pass = p.transposed ? kernels::GemmPass::forward : kernels::GemmPass::grad_input;
  const WorkspaceOperand scratch(
      b, kernels::grouped_gemm_workspace_bytes({.pass = pass,
                                                .dtype = x.dtype,
                                                .max_rows = num_rows.max_rows(),
                                                .n = p.rows,
                                                .k = k,
                                                .num_segments = 1},
                                               b.target().isa, b.target().num_threads));
  b.emit({.name = name,
          .kind = "per_head_product",
          .accesses = {reads(x.buffer), reads(w.buffer), reads(num_rows.counts), writes(y.buffer),
                       writes(scratch.buffer)},
          .cost =
              [=](const RunCounts& c) {
                const double r = num_rows.value(c);
                return Cost{2.0 * r * static_cast<double>(p.heads * p.rows * k), x.bytes(r) + y.bytes(r), 0};
              },
          .run =
              [=](const RunContext& ctx) {
                const Matrix xm = x.at(ctx), wm = w.at(ctx), ym = y.at(ctx);
                const std::int64_t element = dtype_bytes(xm.dtype);
                auto columns = [&](const Matrix& m, std::int64_t first, std::int64_t cols) {
                  return Matrix{static_cast<char*>(m.data) + first * element, m.dtype, m.rows, cols,
                                m.row_stride};
                };
                for (std::int64_t h = 0; h < p.heads; ++h) {
                  const Matrix xh = columns(xm, p.x_first + h * p.x_stride, p.transposed ? k : p.rows);
                  const Matrix yh = columns(ym, p.y_first + h * p.y_stride, p.transposed ? p.rows : k);
                  const Matrix wh{static_cast<char*>(wm.data) +
                                      (p.first_row + h * p.row_stride) * wm.row_stride * element,
                                  wm.dtype, p.rows, k, wm.row_stride};
                  if (p.transposed) {
                    kernels::grouped_gemm_forward(*ctx.exec, {.x = xh,
                                                              .w = wh,
                                                              .y = yh,
                                                              .segments = {},
                                                              .rows = num_rows.at(ctx),
                                                              .workspace = scratch.at(ctx)});
                  } else {
                    kernels::grouped_gemm_grad_input(*ctx.exec, {.dy = xh,
                                                                 .w = wh,
                                                                 .dx = yh,
                                                                 .segments = {},
                                                                 .rows = num_rows.at(ctx),
                                                                 .workspace = scratch.at(ctx)});
                  }
                }
              }});
}

}  // namespace planalto::ops
