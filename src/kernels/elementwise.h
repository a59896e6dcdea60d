// SPDX-License-Identifier: Apache-2.0
// elementwise.h: sums, copies, casts and fills of matrices, the column sum of a bias gradient, and the keys of MLA.
// Shapes      as named; any row stride; extents may be zero. Each matrix of AddRows is f32 or bf16, whatever the others.
// Invariants  rows past rows.get() are neither read nor written
// Numerics    fp32 inside, one rounding; casts round to nearest even with subnormals kept on every path; between equal
//             dtypes bits are copied. Column sums: fp32 partial sums over fixed blocks of rows (column_blocks.h),
//             added in block order
// Reference   kernels/ref/elementwise.cpp
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/isa.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

// y = a + b; y may alias a or b. b.data null: y = a (copy or cast).
struct AddRows {
  ConstMatrix a{}, b{};
  Matrix y{};
  RowCount rows{};
};
// n elements from one dtype (f32 or bf16) to the other, or a plain copy (of any dtype); no overlap.
struct CastElements {
  const void* from = nullptr;
  DType from_dtype = DType::f32;
  void* to = nullptr;
  DType to_dtype = DType::bf16;
  std::int64_t n = 0;
};
struct FillZero {
  void* data = nullptr;
  std::int64_t bytes = 0;
};
// dbias[c] (+)= sum over rows of dy[r, c]
struct BiasGrad {
  ConstMatrix dy{};
  float* dbias = nullptr;
  bool accumulate = false;
  RowCount rows{};
  Workspace workspace{};
};
std::int64_t bias_grad_workspace_bytes(std::int64_t max_rows, std::int64_t cols);
// MLA keys. forward: keys[t, h] = [kv[t, h, 0 .. nope), rope[t]]. backward: dkv[t, h, 0 .. nope) = dkeys[t,
// h, 0 .. nope), drope[t] = sum over h, ascending, of dkeys[t, h, nope ..]. kv [T, H, kv_head_stride], keys
// [T, H, nope + rope_dim] dense, rope rows of any stride.
struct MlaKeysForward {
  DType dtype = DType::f32;
  std::int64_t num_heads = 1, nope = 0, rope_dim = 0, kv_head_stride = 0;
  const void* kv = nullptr;
  ConstMatrix rope{};  // [T, rope_dim]
  void* keys = nullptr;
  RowCount tokens{};
};
struct MlaKeysBackward {
  DType dtype = DType::f32;
  std::int64_t num_heads = 1, nope = 0, rope_dim = 0, kv_head_stride = 0;
  const void* dkeys = nullptr;
  void* dkv = nullptr;
  Matrix drope{};
  RowCount tokens{};
};
void add_rows(const ExecContext& ctx, const AddRows& a);
void cast_elements(const ExecContext& ctx, const CastElements& a);
void fill_zero(const ExecContext& ctx, const FillZero& a);
void bias_grad(const ExecContext& ctx, const BiasGrad& a);
void mla_keys_forward(const ExecContext& ctx, const MlaKeysForward& a);
void mla_keys_backward(const ExecContext& ctx, const MlaKeysBackward& a);

}  // namespace planalto::kernels
