// SPDX-License-Identifier: Apache-2.0
#include "ops/rows.h"

#include "base/error.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/rms_norm.h"
#include "kernels/swiglu.h"

namespace planalto::ops {

namespace {

// Heads of dense rows are rows themselves: [T, heads * d] seen as [T * heads, d].
Matrix per_head(Matrix m, std::int64_t heads) {
  if (heads == 1) return m;
  const std::int64_t d = m.cols / heads;
  return {m.data, m.dtype, m.rows * heads, d, d};
}

std::function<Cost(const RunCounts&)> row_cost(const Rows& rows, double flops_per_row, double bytes_per_row) {
  return [=](const RunCounts& c) {
    return Cost{rows.value(c) * flops_per_row, rows.value(c) * bytes_per_row, 0};
  };
}

}  // namespace

void rms_norm(Builder& b, const std::string& name, const Cols& x_cols, Buffer weight, const Cols& y_cols,
              Buffer rstd, const Rows& rows, const NormShape& shape) {
  const Operand x(b, x_cols), y(b, y_cols);
  PLANALTO_CHECK(shape.heads == 1 || (x.cols == x.row_stride && y.cols == y.row_stride),
                 "{}: heads of strided rows", name);
  b.emit({.name = name,
          .kind = "rms_norm_forward",
          .accesses = {reads(x.buffer), reads(weight), reads(rows.counts), writes(y.buffer), writes(rstd)},
          .cost = row_cost(rows, 4.0 * static_cast<double>(x.cols), x.bytes(1) + y.bytes(1)),
          .run = [=](const RunContext& ctx) {
            kernels::rms_norm_forward(*ctx.exec, {.x = per_head(x.at(ctx), shape.heads),
                                                  .weight = ctx.data<void>(weight),
                                                  .eps = shape.eps,
                                                  .y = per_head(y.at(ctx), shape.heads),
                                                  .rstd = ctx.data<float>(rstd),
                                                  .rows = rows.times(shape.heads).at(ctx)});
          }});
}

void rms_norm_backward(Builder& b, const std::string& name, const Cols& x_cols, Buffer weight, Buffer rstd,
                       const Cols& dy_cols, const Cols& dx_cols, bool accumulate_dx, Buffer dweight,
                       const Rows& rows, const NormShape& shape) {
  const Operand x(b, x_cols), dy(b, dy_cols), dx(b, dx_cols);
  const bool accumulate_dweight = b.accumulate(dweight);
  const WorkspaceOperand scratch(
      b, kernels::rms_norm_backward_workspace_bytes(rows.max_rows() * shape.heads, x.cols / shape.heads));
  b.emit({.name = name,
          .kind = "rms_norm_backward",
          .accesses = {reads(x.buffer), reads(weight), reads(rstd), reads(dy.buffer), reads(rows.counts),
                       writes_or_adds(dx.buffer, accumulate_dx), writes_or_adds(dweight, accumulate_dweight),
                       writes(scratch.buffer)},
          .cost = row_cost(rows, 9.0 * static_cast<double>(x.cols),
                           x.bytes(1) + dy.bytes(1) + dx.bytes(accumulate_dx ? 2 : 1)),
          .run = [=](const RunContext& ctx) {
            kernels::rms_norm_backward(*ctx.exec, {.x = per_head(x.at(ctx), shape.heads),
                                                   .weight = ctx.data<void>(weight),
                                                   .rstd = ctx.data<float>(rstd),
                                                   .dy = per_head(dy.at(ctx), shape.heads),
                                                   .dx = per_head(dx.at(ctx), shape.heads),
                                                   .accumulate_dx = accumulate_dx,
                                                   .dweight = ctx.data<float>(dweight),
                                                   .accumulate_dweight = accumulate_dweight,
                                                   .rows = rows.times(shape.heads).at(ctx),
                                                   .workspace = scratch.at(ctx)});
          }});
}

void rope(Builder& b, const std::string& name, const Cols& x_cols, const Batch& batch, const RopeShape& shape,
          bool inverse) {
  const Operand x(b, x_cols);
  const Rows rows = batch.tokens();
  const double rotated = 2.0 * static_cast<double>(shape.half * shape.heads);
  b.emit({.name = name,
          .kind = "rope_apply",
          .accesses = {updates(x.buffer), reads(shape.table), reads(batch.positions), reads(batch.counts)},
          .cost = row_cost(rows, 3.0 * rotated, 2.0 * rotated * static_cast<double>(dtype_bytes(x.dtype))),
          .run = [=](const RunContext& ctx) {
            const Matrix m = x.at(ctx);
            kernels::rope_apply(*ctx.exec, {.x = m.data,
                                            .dtype = m.dtype,
                                            .num_heads = shape.heads,
                                            .head_stride = shape.head_dim,
                                            .row_stride = m.row_stride,
                                            .first = shape.first,
                                            .half = shape.half,
                                            .style = shape.style,
                                            .inverse = inverse,
                                            .table = ctx.data<float>(shape.table),
                                            .positions = ctx.data<std::int32_t>(batch.positions),
                                            .tokens = rows.at(ctx)});
          }});
}

void swiglu(Builder& b, const std::string& name, Buffer gate_up_buffer, Buffer row_weight, Buffer act_buffer,
            const Rows& rows) {
  const Operand gate_up(b, gate_up_buffer), act(b, act_buffer);
  b.emit({.name = name,
          .kind = "swiglu_forward",
          .accesses = {reads(gate_up.buffer), reads(row_weight), reads(rows.counts), writes(act.buffer)},
          .cost = row_cost(rows, 5.0 * static_cast<double>(act.cols), gate_up.bytes(1) + act.bytes(1)),
          .run = [=](const RunContext& ctx) {
            kernels::swiglu_forward(*ctx.exec, {.gate_up = gate_up.at(ctx),
                                                .row_weight = ctx.data<float>(row_weight),
                                                .act = act.at(ctx),
                                                .rows = rows.at(ctx)});
          }});
}

void swiglu_backward(Builder& b, const std::string& name, Buffer gate_up_buffer, Buffer row_weight,
                     Buffer dact_buffer, Buffer dgate_up_buffer, Buffer drow_weight, Buffer act_buffer,
                     const Rows& rows) {
  const Operand gate_up(b, gate_up_buffer), dact(b, dact_buffer), dgate_up(b, dgate_up_buffer),
      act(b, act_buffer);
  b.emit({.name = name,
          .kind = "swiglu_backward",
          .accesses = {reads(gate_up.buffer), reads(row_weight), reads(dact.buffer), reads(rows.counts),
                       dgate_up.buffer == gate_up.buffer ? updates(dgate_up.buffer) : writes(dgate_up.buffer),
                       writes(drow_weight), writes(act.buffer)},
          .cost = row_cost(rows, 14.0 * static_cast<double>(dact.cols),
                           gate_up.bytes(1) + dgate_up.bytes(1) + dact.bytes(1) + act.bytes(1)),
          .run = [=](const RunContext& ctx) {
            kernels::swiglu_backward(*ctx.exec, {.gate_up = gate_up.at(ctx),
                                                 .row_weight = ctx.data<float>(row_weight),
                                                 .dact = dact.at(ctx),
                                                 .dgate_up = dgate_up.at(ctx),
                                                 .drow_weight = ctx.data<float>(drow_weight),
                                                 .act = act.at(ctx),
                                                 .rows = rows.at(ctx)});
          }});
}

void add(Builder& b, const std::string& name, const Cols& x_cols, const Cols& other_cols, const Cols& y_cols,
         const Rows& rows) {
  const Operand x(b, x_cols), other(b, other_cols), y(b, y_cols);
  const bool in_place = y.buffer == x.buffer || y.buffer == other.buffer;
  b.emit({.name = name,
          .kind = "add_rows",
          .accesses = {reads(x.buffer), reads(other.buffer), reads(rows.counts),
                       writes_or_adds(y.buffer, in_place)},
          .cost = row_cost(rows, other.buffer.valid() ? static_cast<double>(x.cols) : 0.0,
                           x.bytes(1) + other.bytes(1) + y.bytes(1)),
          .run = [=](const RunContext& ctx) {
            kernels::add_rows(*ctx.exec,
                              {.a = x.at(ctx), .b = other.at(ctx), .y = y.at(ctx), .rows = rows.at(ctx)});
          }});
}

void fill_zero(Builder& b, const std::string& name, Buffer x) {
  const std::int64_t bytes = b.info(x).bytes();
  b.emit({.name = name,
          .kind = "fill_zero",
          .accesses = {writes(x)},
          .cost =
              [=](const RunCounts&) {
                return Cost{0, static_cast<double>(bytes), 0};
              },
          .run =
              [=](const RunContext& ctx) {
                kernels::fill_zero(*ctx.exec, {.data = ctx.data<void>(x), .bytes = bytes});
              }});
}

void embedding(Builder& b, const std::string& name, Buffer table_buffer, const Batch& batch,
               Buffer y_buffer) {
  const Operand table(b, table_buffer), y(b, y_buffer);
  const Rows rows = batch.tokens();
  b.emit({.name = name,
          .kind = "embedding_forward",
          .accesses = {reads(table.buffer), reads(batch.ids), reads(batch.counts), writes(y.buffer)},
          .cost = row_cost(rows, 0, 2 * y.bytes(1)),
          .run = [=](const RunContext& ctx) {
            kernels::embedding_forward(*ctx.exec, {.table = table.at(ctx),
                                                   .ids = ctx.data<std::int32_t>(batch.ids),
                                                   .y = y.at(ctx),
                                                   .tokens = rows.at(ctx)});
          }});
}

void embedding_backward(Builder& b, const std::string& name, const Batch& batch, Buffer dy_buffer,
                        Buffer dtable_buffer, std::int64_t padding_id) {
  const Operand dy(b, dy_buffer), dtable(b, dtable_buffer);
  const Rows rows = batch.tokens();
  const bool accumulate = b.accumulate(dtable.buffer);
  const double table_bytes = accumulate ? 0 : dtable.bytes(static_cast<double>(dtable.rows));
  b.emit({.name = name,
          .kind = "embedding_backward",
          .accesses = {reads(batch.ids), reads(dy.buffer), reads(batch.counts),
                       writes_or_adds(dtable.buffer, accumulate)},
          .cost =
              [=](const RunCounts& c) {
                const double r = rows.value(c);
                return Cost{r * static_cast<double>(dy.cols), dy.bytes(r) + 2 * dtable.bytes(r) + table_bytes,
                            0};
              },
          .run =
              [=](const RunContext& ctx) {
                kernels::embedding_backward(*ctx.exec, {.ids = ctx.data<std::int32_t>(batch.ids),
                                                        .dy = dy.at(ctx),
                                                        .dtable = dtable.at(ctx),
                                                        .padding_id = padding_id,
                                                        .accumulate = accumulate,
                                                        .tokens = rows.at(ctx)});
              }});
}

}  // namespace planalto::ops
