// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include "base/error.h"
#include "base/exec_context.h"
#include "kernels/cpu/attention_workspace.h"
#include "kernels/table.h"

namespace planalto::kernels {
namespace {

void check_offsets(const char* what, const std::int32_t* offsets, std::int64_t num, std::int64_t capacity) {
  PLANALTO_CHECK(offsets != nullptr && offsets[0] >= 0, "{} offsets are null or begin below 0", what);
  for (std::int64_t i = 0; i < num; ++i) {
    PLANALTO_CHECK(offsets[i] <= offsets[i + 1], "{} offsets descend at document {}: {}, {}", what, i,
                   offsets[i], offsets[i + 1]);
  }
  PLANALTO_CHECK(offsets[num] <= capacity, "{} offsets end at row {} of {}", what, offsets[num], capacity);
}

void check(const AttentionShape& s, const Documents& d, const Workspace& w, std::int64_t needed_bytes) {
  PLANALTO_CHECK(s.dtype == DType::f32 || s.dtype == DType::bf16, "dtype {}", to_string(s.dtype));
  PLANALTO_CHECK(s.num_kv_heads > 0 && s.num_heads > 0 && s.num_heads % s.num_kv_heads == 0,
                 "{} heads share {} key heads", s.num_heads, s.num_kv_heads);
  PLANALTO_CHECK(s.qk_dim > 0 && s.v_dim > 0 && s.window >= 0, "dims {} and {}, window {}", s.qk_dim, s.v_dim,
                 s.window);
  PLANALTO_CHECK(d.num.get() >= 0, "{} documents", d.num.get());
  check_offsets("query", d.q_offsets, d.num.get(), s.max_q_rows);
  check_offsets("key", d.kv_offsets, d.num.get(), s.max_kv_rows);
  PLANALTO_CHECK(w.bytes >= needed_bytes && reinterpret_cast<std::uintptr_t>(w.data) % 64 == 0,
                 "workspace of {} bytes at {}; needed: {}, on a multiple of 64", w.bytes, w.data,
                 needed_bytes);
}

}  // namespace

std::int64_t attention_forward_workspace_bytes(const AttentionShape& s, Isa /*isa*/, int num_threads) {
  return num_threads * 4 * attention_cut::forward_floats(s.qk_dim, s.v_dim);
}
std::int64_t attention_backward_workspace_bytes(const AttentionShape& s, Isa /*isa*/, int num_threads) {
  return num_threads * 4 * attention_cut::backward_floats(s.qk_dim, s.v_dim, s.max_kv_rows);
}

void attention_forward(const ExecContext& ctx, const AttentionForward& a) {
  check(a.shape, a.documents, a.workspace,
        attention_forward_workspace_bytes(a.shape, ctx.kernels->isa, ctx.pool->num_threads()));
  ctx.kernels->attention_forward(ctx, a);
}

void attention_backward(const ExecContext& ctx, const AttentionBackward& a) {
  check(a.shape, a.documents, a.workspace,
        attention_backward_workspace_bytes(a.shape, ctx.kernels->isa, ctx.pool->num_threads()));
  PLANALTO_CHECK(a.lse != nullptr, "backward needs the forward pass's lse");
  PLANALTO_CHECK(a.dsinks == nullptr || a.sinks != nullptr, "dsinks wanted, but there are no sinks");
  ctx.kernels->attention_backward(ctx, a);
}

}  // namespace planalto::kernels
