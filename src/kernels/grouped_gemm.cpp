// SPDX-License-Identifier: Apache-2.0
#include "kernels/grouped_gemm.h"

#include "base/error.h"
#include "base/exec_context.h"
#include "kernels/cpu/gemm_geometry.h"
#include "kernels/segment_check.h"
#include "kernels/table.h"

namespace planalto::kernels {

namespace {

bool is_float(DType t) {
  return t == DType::f32 || t == DType::bf16;
}

void check_view(const char* name, const ConstMatrix& m, std::int64_t rows, std::int64_t cols) {
  PLANALTO_CHECK(is_float(m.dtype), "{} is {}, legal: f32, bf16", name, to_string(m.dtype));
  PLANALTO_CHECK(m.rows >= rows && m.cols == cols, "{} is {} x {}, needs {} x {}", name, m.rows, m.cols, rows,
                 cols);
  PLANALTO_CHECK(m.row_stride >= m.cols, "{}: row stride {} is below its {} columns", name, m.row_stride,
                 m.cols);
  PLANALTO_CHECK(m.data != nullptr || rows * cols == 0, "{} of {} x {} has no data", name, rows, cols);
}

// A packed copy stands in for the weight's values; its shape still comes from the view.
void check_weight(const ConstMatrix& w, const void* packed, std::int64_t rows, std::int64_t cols) {
  if (packed == nullptr) return check_view("w", w, rows, cols);
  PLANALTO_CHECK(w.dtype == DType::bf16 && w.rows >= rows && w.cols == cols,
                 "the packed w is {} {} x {}, needs bf16 {} x {}", to_string(w.dtype), w.rows, w.cols, rows,
                 cols);
  PLANALTO_CHECK(reinterpret_cast<std::uintptr_t>(packed) % 64 == 0, "the packed w is not 64-byte aligned");
}

void check_workspace(const ExecContext& ctx, const Workspace& w, const GroupedGemmDescription& d) {
  const std::int64_t needed = grouped_gemm_workspace_bytes(d, ctx.kernels->isa, ctx.pool->num_threads());
  PLANALTO_CHECK(w.data != nullptr && w.bytes >= needed, "workspace of {} bytes, needs {}", w.bytes, needed);
  PLANALTO_CHECK(reinterpret_cast<std::uintptr_t>(w.data) % 64 == 0, "workspace is not 64-byte aligned");
}

DType common_dtype(const ConstMatrix& a, const ConstMatrix& b) {
  return a.dtype == DType::bf16 && b.dtype == DType::bf16 ? DType::bf16 : DType::f32;
}

}  // namespace

std::int64_t grouped_gemm_workspace_bytes(const GroupedGemmDescription& d, Isa isa, int num_threads) {
  const GemmGeometry g = gemm_geometry(isa, gemm_uses_pairs(isa, d.dtype == DType::bf16));
  const std::int64_t depth = d.pass == GemmPass::forward      ? d.k
                             : d.pass == GemmPass::grad_input ? d.n
                                                              : d.max_rows;
  return gemm_schedule_bytes(d.num_segments) + num_threads * gemm_scratch(g, depth).bytes;
}

void grouped_gemm_forward(const ExecContext& ctx, const GroupedGemmForward& a) {
  const std::int64_t rows = check_segments(a.segments, a.rows), n = a.y.cols, k = a.x.cols;
  check_view("x", a.x, rows, k);
  check_weight(a.w, a.packed, a.segments.num * n, k);
  check_view("y", a.y, rows, n);
  const GroupedGemmDescription d{
      GemmPass::forward, common_dtype(a.x, a.w), a.rows.capacity * a.rows.multiplier, n, k, a.segments.num};
  check_workspace(ctx, a.workspace, d);
  ctx.kernels->grouped_gemm_forward(ctx, a);
}

void grouped_gemm_grad_input(const ExecContext& ctx, const GroupedGemmGradInput& a) {
  const std::int64_t rows = check_segments(a.segments, a.rows), n = a.dy.cols, k = a.dx.cols;
  check_view("dy", a.dy, rows, n);
  check_weight(a.w, a.packed, a.segments.num * n, k);
  check_view("dx", a.dx, rows, k);
  const GroupedGemmDescription d{
      GemmPass::grad_input, common_dtype(a.dy, a.w), a.rows.capacity * a.rows.multiplier, n, k,
      a.segments.num};
  check_workspace(ctx, a.workspace, d);
  ctx.kernels->grouped_gemm_grad_input(ctx, a);
}

void grouped_gemm_grad_weight(const ExecContext& ctx, const GroupedGemmGradWeight& a) {
  const std::int64_t rows = check_segments(a.segments, a.rows), n = a.dy.cols, k = a.x.cols;
  check_view("dy", a.dy, rows, n);
  check_view("x", a.x, rows, k);
  check_view("dw", a.dw, a.segments.num * n, k);
  PLANALTO_CHECK(a.dw.dtype == DType::f32, "dw is {}, legal: f32", to_string(a.dw.dtype));
  const GroupedGemmDescription d{
      GemmPass::grad_weight, common_dtype(a.dy, a.x), a.rows.capacity * a.rows.multiplier, n, k,
      a.segments.num};
  check_workspace(ctx, a.workspace, d);
  ctx.kernels->grouped_gemm_grad_weight(ctx, a);
}

}  // namespace planalto::kernels
