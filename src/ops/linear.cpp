// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include "base/error.h"
#include "kernels/elementwise.h"
#include "kernels/grouped_gemm.h"

namespace planalto::ops {

namespace {

// 2 rows N K multiply-adds; every row of activations once, every weight once.
std::function<Cost(const RunCounts&)> product_cost(const Rows& rows, double n, double k, double row_bytes,
                                                   double weight_bytes) {
  return [=](const RunCounts& c) {
    const double r = rows.value(c);
    return Cost{2.0 * r * n * k, r * row_bytes + weight_bytes, 0};
  };
}

WorkspaceOperand product_workspace(Builder& b, kernels::GemmPass pass, DType dtype, const Rows& rows,
                                   std::int64_t n, std::int64_t k, std::int64_t num_segments) {
  return {b, kernels::grouped_gemm_workspace_bytes({.pass = pass,
                                                    .dtype = dtype,
                                                    .max_rows = rows.max_rows(),
                                                    .n = n,
                                                    .k = k,
                                                    .num_segments = num_segments},
                                                   b.target().isa, b.target().num_threads)};
}

kernels::Segments segments_at(const RunContext& ctx, const Groups& g) {
  return {g.num, ctx.data<std::int64_t>(g.offsets)};
}

double row_bytes(const Operand& a, const Operand& b) {
  return a.bytes(1) + b.bytes(1);
}

}  // namespace

void linear(Builder& b, const std::string& name, const Cols& x_cols, const Weight& weight, const Cols& y_cols,
            const Rows& rows, Buffer bias, bool accumulate, const Groups& groups) {
  const Operand x(b, x_cols), y(b, y_cols);
  const WeightOperand w(b, weight);
  const std::int64_t n = w.rows / groups.num;
  PLANALTO_CHECK(x.cols == w.cols && y.cols == n, "{}: x has {} columns, w [{}, {}], y {}", name, x.cols, n,
                 w.cols, y.cols);
  const WorkspaceOperand scratch =
      product_workspace(b, kernels::GemmPass::forward, x.dtype, rows, n, w.cols, groups.num);
  b.emit({.name = name,
          .kind = "grouped_gemm_forward",
          .accesses = {reads(x.buffer), reads(weight.plain), reads(weight.forward), reads(bias),
                       reads(rows.counts), reads(groups.offsets), writes_or_adds(y.buffer, accumulate),
                       writes(scratch.buffer)},
          .cost = product_cost(rows, static_cast<double>(n), static_cast<double>(w.cols), row_bytes(x, y),
                               w.bytes()),
          .run = [=, packed = weight.forward](const RunContext& ctx) {
            kernels::grouped_gemm_forward(*ctx.exec, {.x = x.at(ctx),
                                                      .w = w.at(ctx),
                                                      .packed = ctx.data<void>(packed),
                                                      .bias = ctx.data<void>(bias),
                                                      .y = y.at(ctx),
                                                      .segments = segments_at(ctx, groups),
                                                      .rows = rows.at(ctx),
                                                      .accumulate = accumulate,
                                                      .workspace = scratch.at(ctx)});
          }});
}

void linear_grad_input(Builder& b, const std::string& name, const Cols& dy_cols, const Weight& weight,
                       const Cols& dx_cols, const Rows& rows, bool accumulate, const Groups& groups) {
  const Operand dy(b, dy_cols), dx(b, dx_cols);
  const WeightOperand w(b, weight);
  const std::int64_t n = w.rows / groups.num;
  PLANALTO_CHECK(dy.cols == n && dx.cols == w.cols, "{}: dy has {} columns, w [{}, {}], dx {}", name, dy.cols,
                 n, w.cols, dx.cols);
  const WorkspaceOperand scratch =
      product_workspace(b, kernels::GemmPass::grad_input, dy.dtype, rows, n, w.cols, groups.num);
  b.emit({.name = name,
          .kind = "grouped_gemm_grad_input",
          .accesses = {reads(dy.buffer), reads(weight.plain), reads(weight.backward), reads(rows.counts),
                       reads(groups.offsets), writes_or_adds(dx.buffer, accumulate), writes(scratch.buffer)},
          .cost = product_cost(rows, static_cast<double>(n), static_cast<double>(w.cols), row_bytes(dy, dx),
                               w.bytes()),
          .run = [=, packed = weight.backward](const RunContext& ctx) {
            kernels::grouped_gemm_grad_input(*ctx.exec, {.dy = dy.at(ctx),
                                                         .w = w.at(ctx),
                                                         .packed = ctx.data<void>(packed),
                                                         .dx = dx.at(ctx),
                                                         .segments = segments_at(ctx, groups),
                                                         .rows = rows.at(ctx),
                                                         .accumulate = accumulate,
                                                         .workspace = scratch.at(ctx)});
          }});
}

void linear_grad_weight(Builder& b, const std::string& name, const Cols& dy_cols, const Cols& x_cols,
                        Buffer dw_buffer, const Rows& rows, const Groups& groups) {
  const Operand dy(b, dy_cols), x(b, x_cols), dw(b, dw_buffer);
  const std::int64_t n = dw.rows / groups.num;
  PLANALTO_CHECK(dy.cols == n && x.cols == dw.cols, "{}: dy has {} columns, x {}, dw [{}, {}]", name, dy.cols,
                 x.cols, n, dw.cols);
  const bool accumulate = b.accumulate(dw.buffer);
  const WorkspaceOperand scratch =
      product_workspace(b, kernels::GemmPass::grad_weight, x.dtype, rows, n, dw.cols, groups.num);
  b.emit({.name = name,
          .kind = "grouped_gemm_grad_weight",
          .accesses = {reads(dy.buffer), reads(x.buffer), reads(rows.counts), reads(groups.offsets),
                       writes_or_adds(dw.buffer, accumulate), writes(scratch.buffer)},
          .cost = product_cost(rows, static_cast<double>(n), static_cast<double>(dw.cols), row_bytes(dy, x),
                               (accumulate ? 2 : 1) * dw.bytes(static_cast<double>(dw.rows))),
          .run = [=](const RunContext& ctx) {
            kernels::grouped_gemm_grad_weight(*ctx.exec, {.dy = dy.at(ctx),
                                                          .x = x.at(ctx),
                                                          .dw = dw.at(ctx),
                                                          .segments = segments_at(ctx, groups),
                                                          .rows = rows.at(ctx),
                                                          .accumulate = accumulate,
                                                          .workspace = scratch.at(ctx)});
          }});
}

void pack_weight(Builder& b, const std::string& name, Buffer source, const Weight& w) {
  const auto elements = static_cast<double>(w.rows * w.cols);
  b.emit(
      {.name = name,
       .kind = "pack_weight",
       .accesses = {reads(source), writes(w.forward), writes(w.backward)},
       .cost =
           [=](const RunCounts&) {
             return Cost{0, (4 + (w.forward.valid() ? 2 : 0) + (w.backward.valid() ? 2 : 0)) * elements, 0};
           },
       .run =
           [=](const RunContext& ctx) {
             kernels::pack_weight(*ctx.exec, {.source = ctx.data<float>(source), .copies = w.copies(ctx)});
           }});
}

void bias_grad(Builder& b, const std::string& name, const Cols& dy_cols, Buffer dbias, const Rows& rows) {
  const Operand dy(b, dy_cols);
  const bool accumulate = b.accumulate(dbias);
  const WorkspaceOperand scratch(b, kernels::bias_grad_workspace_bytes(rows.max_rows(), dy.cols));
  b.emit({.name = name,
          .kind = "bias_grad",
          .accesses = {reads(dy.buffer), reads(rows.counts), writes_or_adds(dbias, accumulate),
                       writes(scratch.buffer)},
          .cost =
              [=](const RunCounts& c) {
                return Cost{rows.value(c) * static_cast<double>(dy.cols), dy.bytes(rows.value(c)), 0};
              },
          .run =
              [=](const RunContext& ctx) {
                kernels::bias_grad(*ctx.exec, {.dy = dy.at(ctx),
                                               .dbias = ctx.data<float>(dbias),
                                               .accumulate = accumulate,
                                               .rows = rows.at(ctx),
                                               .workspace = scratch.at(ctx)});
              }});
}

}  // namespace planalto::ops
