// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.h"

#include "kernels/column_blocks.h"
#include "kernels/table.h"
#include "kernels/view_check.h"

namespace planalto::kernels {

void add_rows(const ExecContext& ctx, const AddRows& a) {
  const std::int64_t rows = checked_rows("add_rows: rows", a.rows);
  check_float_dtype("add_rows: a", a.a.dtype);
  check_float_dtype("add_rows: y", a.y.dtype);
  check_view("add_rows: a", a.a, rows, a.y.cols, a.a.dtype);
  check_view("add_rows: y", a.y, rows, a.y.cols, a.y.dtype);
  if (a.b.data != nullptr) {
    check_float_dtype("add_rows: b", a.b.dtype);
    check_view("add_rows: b", a.b, rows, a.y.cols, a.b.dtype);
  }
  ctx.kernels->add_rows(ctx, a);
}

void cast_elements(const ExecContext& ctx, const CastElements& a) {
  PLANALTO_CHECK(a.n >= 0, "cast_elements: n is {}", a.n);
  if (a.from_dtype != a.to_dtype) {
    check_float_dtype("cast_elements: from", a.from_dtype);
    check_float_dtype("cast_elements: to", a.to_dtype);
  }
  ctx.kernels->cast_elements(ctx, a);
}

void fill_zero(const ExecContext& ctx, const FillZero& a) {
  PLANALTO_CHECK(a.bytes >= 0, "fill_zero: bytes is {}", a.bytes);
  ctx.kernels->fill_zero(ctx, a);
}

std::int64_t bias_grad_workspace_bytes(std::int64_t max_rows, std::int64_t cols) {
  return column_partial_bytes(max_rows, cols);
}

void bias_grad(const ExecContext& ctx, const BiasGrad& a) {
  const std::int64_t rows = checked_rows("bias_grad: rows", a.rows);
  check_float_dtype("bias_grad: dy", a.dy.dtype);
  check_view("bias_grad: dy", a.dy, rows, a.dy.cols, a.dy.dtype);
  check_workspace("bias_grad", a.workspace, column_partial_bytes(rows, a.dy.cols));
  ctx.kernels->bias_grad(ctx, a);
}

namespace {

void check_mla(const char* what, DType dtype, std::int64_t num_heads, std::int64_t nope,
               std::int64_t rope_dim, std::int64_t kv_head_stride) {
  check_float_dtype(what, dtype);
  PLANALTO_CHECK(num_heads >= 1 && nope >= 0 && rope_dim >= 0 && kv_head_stride >= nope,
                 "{}: {} heads of {} + {} elements, kv head stride {}", what, num_heads, nope, rope_dim,
                 kv_head_stride);
}

}  // namespace

void mla_keys_forward(const ExecContext& ctx, const MlaKeysForward& a) {
  check_mla("mla_keys_forward", a.dtype, a.num_heads, a.nope, a.rope_dim, a.kv_head_stride);
  check_view("mla_keys_forward: rope", a.rope, checked_rows("mla_keys_forward: tokens", a.tokens), a.rope_dim,
             a.dtype);
  ctx.kernels->mla_keys_forward(ctx, a);
}

void mla_keys_backward(const ExecContext& ctx, const MlaKeysBackward& a) {
  check_mla("mla_keys_backward", a.dtype, a.num_heads, a.nope, a.rope_dim, a.kv_head_stride);
  check_view("mla_keys_backward: drope", a.drope, checked_rows("mla_keys_backward: tokens", a.tokens),
             a.rope_dim, a.dtype);
  ctx.kernels->mla_keys_backward(ctx, a);
}

}  // namespace planalto::kernels
