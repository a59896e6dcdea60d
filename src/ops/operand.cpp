// SPDX-License-Identifier: Apache-2.0
#include "ops/operand.h"

#include "base/error.h"

namespace planalto::ops {

double Rows::value(const RunCounts& c) const {
  const auto m = static_cast<double>(multiplier);
  switch (kind) {
    case RowKind::tokens:
      return c.tokens * m;
    case RowKind::documents:
      return c.documents * m;
    case RowKind::fixed:
      return static_cast<double>(capacity) * m;
  }
  return 0;
}

Operand::Operand(const Builder& b, const Cols& c) : buffer(c.buffer), first(c.first) {
  if (!buffer.valid()) return;
  const BufferInfo& info = b.info(buffer);
  dtype = info.dtype;
  rows = info.rows;
  row_stride = info.cols;
  cols = c.num < 0 ? info.cols - c.first : c.num;
  PLANALTO_CHECK(first >= 0 && first + cols <= info.cols, "columns {} .. {} of buffer {} with {}", first,
                 first + cols, info.name, info.cols);
}

kernels::PackedCopies Weight::copies(const RunContext& ctx) const {
  if (plain.valid() || (!forward.valid() && !backward.valid())) return {};
  return {.num = num,
          .n = rows / num,
          .k = cols,
          .forward = ctx.data<void>(forward),
          .backward = ctx.data<void>(backward)};
}

WeightOperand::WeightOperand(const Builder& b, const Weight& w) : plain(b, w.plain) {
  PLANALTO_CHECK(w.plain.valid() || w.forward.valid() || w.backward.valid(), "a weight in no form");
  rows = w.plain.valid() ? plain.rows : w.rows;
  cols = w.plain.valid() ? plain.cols : w.cols;
}

double WeightOperand::bytes() const {
  const DType dtype = plain.buffer.valid() ? plain.dtype : DType::bf16;
  return static_cast<double>(rows * cols * dtype_bytes(dtype));
}

Matrix Operand::at(const RunContext& ctx) const {
  if (!buffer.valid()) return {};
  char* base = static_cast<char*>(ctx.address(buffer));
  return {base + first * dtype_bytes(dtype), dtype, rows, cols, row_stride};
}

}  // namespace planalto::ops
