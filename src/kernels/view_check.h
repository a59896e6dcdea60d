// SPDX-License-Identifier: Apache-2.0
// view_check.h: the checks of views and counts that kernels make before they enter the pool.
// Errors      internal: a wrong shape, dtype or count is a mistake of the program, not of a user
#pragma once

#include "base/error.h"
#include "base/view.h"

namespace planalto::kernels {

// m must have at least `rows` rows of exactly `cols` elements of `dtype`; `what` is "kernel: argument".
inline void check_view(const char* what, const ConstMatrix& m, std::int64_t rows, std::int64_t cols,
                       DType dtype) {
  PLANALTO_CHECK(m.rows >= rows && m.cols == cols && m.dtype == dtype && m.row_stride >= cols,
                 "{} is [{}, {}] {} with row stride {}; wanted {} rows of {} {}", what, m.rows, m.cols,
                 to_string(m.dtype), m.row_stride, rows, cols, to_string(dtype));
  PLANALTO_CHECK(m.data != nullptr || rows == 0 || cols == 0, "{} has no data for its {} rows", what, rows);
}
inline void check_float_dtype(const char* what, DType dtype) {
  PLANALTO_CHECK(dtype == DType::f32 || dtype == DType::bf16, "{} has dtype {}; legal: f32, bf16", what,
                 to_string(dtype));
}
inline void check_workspace(const char* what, const Workspace& workspace, std::int64_t bytes) {
  PLANALTO_CHECK(workspace.bytes >= bytes && (workspace.data != nullptr || bytes == 0),
                 "{} was given {} bytes of workspace and needs {}", what, workspace.bytes, bytes);
}
// The number of rows that count, which must lie in [0, capacity].
inline std::int64_t checked_rows(const char* what, const RowCount& rows) {
  const std::int64_t n = rows.get();
  PLANALTO_CHECK(n >= 0 && n <= rows.capacity * rows.multiplier, "{} is given {} rows; its capacity is {}",
                 what, n, rows.capacity * rows.multiplier);
  return n;
}

}  // namespace planalto::kernels
