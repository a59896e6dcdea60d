// SPDX-License-Identifier: Apache-2.0
#include "kernels/swiglu.h"

#include "kernels/table.h"
#include "kernels/view_check.h"

namespace planalto::kernels {

void swiglu_forward(const ExecContext& ctx, const SwigluForward& a) {
  const std::int64_t rows = checked_rows("swiglu_forward: rows", a.rows);
  check_float_dtype("swiglu_forward: act", a.act.dtype);
  check_view("swiglu_forward: act", a.act, rows, a.act.cols, a.act.dtype);
  check_view("swiglu_forward: gate_up", a.gate_up, rows, 2 * a.act.cols, a.act.dtype);
  ctx.kernels->swiglu_forward(ctx, a);
}

void swiglu_backward(const ExecContext& ctx, const SwigluBackward& a) {
  const std::int64_t rows = checked_rows("swiglu_backward: rows", a.rows), f = a.dact.cols;
  check_float_dtype("swiglu_backward: dact", a.dact.dtype);
  check_view("swiglu_backward: dact", a.dact, rows, f, a.dact.dtype);
  check_view("swiglu_backward: gate_up", a.gate_up, rows, 2 * f, a.dact.dtype);
  check_view("swiglu_backward: dgate_up", a.dgate_up, rows, 2 * f, a.dact.dtype);
  if (a.act.data != nullptr) check_view("swiglu_backward: act", a.act, rows, f, a.dact.dtype);
  ctx.kernels->swiglu_backward(ctx, a);
}

}  // namespace planalto::kernels
