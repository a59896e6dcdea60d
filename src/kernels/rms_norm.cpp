// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm.h"

#include "kernels/column_blocks.h"
#include "kernels/table.h"
#include "kernels/view_check.h"

namespace planalto::kernels {

std::int64_t rms_norm_backward_workspace_bytes(std::int64_t max_rows, std::int64_t d) {
  return column_partial_bytes(max_rows, d);
}

void rms_norm_forward(const ExecContext& ctx, const RmsNormForward& a) {
  const std::int64_t rows = checked_rows("rms_norm_forward: rows", a.rows);
  check_float_dtype("rms_norm_forward: x", a.x.dtype);
  check_view("rms_norm_forward: x", a.x, rows, a.x.cols, a.x.dtype);
  check_view("rms_norm_forward: y", a.y, rows, a.x.cols, a.x.dtype);
  ctx.kernels->rms_norm_forward(ctx, a);
}

void rms_norm_backward(const ExecContext& ctx, const RmsNormBackward& a) {
  const std::int64_t rows = checked_rows("rms_norm_backward: rows", a.rows);
  check_float_dtype("rms_norm_backward: x", a.x.dtype);
  check_view("rms_norm_backward: x", a.x, rows, a.x.cols, a.x.dtype);
  check_view("rms_norm_backward: dy", a.dy, rows, a.x.cols, a.x.dtype);
  check_view("rms_norm_backward: dx", a.dx, rows, a.x.cols, a.x.dtype);
  if (a.dweight != nullptr)
    check_workspace("rms_norm_backward", a.workspace, column_partial_bytes(rows, a.x.cols));
  ctx.kernels->rms_norm_backward(ctx, a);
}

}  // namespace planalto::kernels
