// SPDX-License-Identifier: Apache-2.0
#include "kernels/loss_head.h"

#include <algorithm>

#include "base/error.h"
#include "base/exec_context.h"
#include "kernels/cpu/loss_head_workspace.h"
#include "kernels/grouped_gemm.h"
#include "kernels/table.h"

namespace planalto::kernels {
namespace {

void check_matrix(const char* name, const ConstMatrix& m, std::int64_t rows, std::int64_t cols) {
  PLANALTO_CHECK(m.dtype == DType::f32 || m.dtype == DType::bf16, "{} is {}", name, to_string(m.dtype));
  PLANALTO_CHECK(m.rows >= rows && m.cols == cols && m.row_stride >= cols,
                 "{} is [{}, {}] of stride {}; needed: [{}, {}]", name, m.rows, m.cols, m.row_stride, rows,
                 cols);
}

void check_labels(const std::int32_t* labels, std::int64_t tokens, std::int64_t vocab) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (labels[t] == kIgnoredLabel || (labels[t] >= 0 && labels[t] < vocab)) continue;
    fail(ErrorKind::data, "label {} of row {} is no token id; legal: 0 .. {}, or {} (not trained)", labels[t],
         t, vocab - 1, kIgnoredLabel);
  }
}

}  // namespace

std::int64_t loss_head_workspace_bytes(const LossHeadDescription& d, Isa isa, int num_threads) {
  const LossHeadLayout l = loss_head_layout(d.max_tokens, d.vocab, d.tile_rows);
  std::int64_t product = 0;
  for (const GemmPass pass : {GemmPass::forward, GemmPass::grad_input, GemmPass::grad_weight}) {
    if (pass != GemmPass::forward && !d.gradients) continue;
    product = std::max(
        product, grouped_gemm_workspace_bytes(
                     {.pass = pass, .dtype = d.dtype, .max_rows = l.tile_rows, .n = d.vocab, .k = d.d}, isa,
                     num_threads));
  }
  return l.product + product;
}

void loss_head(const ExecContext& ctx, const LossHead& a) {
  const std::int64_t tokens = a.tokens.get(), capacity = a.tokens.capacity * a.tokens.multiplier;
  const bool gradients = a.dx.data != nullptr || a.dw.data != nullptr;
  PLANALTO_CHECK(tokens >= 0 && tokens <= capacity && a.tile_rows > 0, "{} tokens of {}, tiles of {}", tokens,
                 capacity, a.tile_rows);
  check_matrix("x", a.x, tokens, a.x.cols);
  check_matrix("w", a.w, a.w.rows, a.x.cols);
  const bool packed = a.packed_forward != nullptr;
  PLANALTO_CHECK(a.w.data != nullptr || (packed && (a.dx.data == nullptr || a.packed_backward != nullptr)),
                 "w has no data, and its copies are not all there");
  PLANALTO_CHECK(a.x.dtype == a.w.dtype, "x is {}, w {}", to_string(a.x.dtype), to_string(a.w.dtype));
  if (a.dx.data != nullptr) check_matrix("dx", a.dx, tokens, a.x.cols);
  if (a.dw.data != nullptr) check_matrix("dw", a.dw, a.w.rows, a.x.cols);
  PLANALTO_CHECK(a.dw.data == nullptr || a.dw.dtype == DType::f32, "dw is {}, legal: f32",
                 to_string(a.dw.dtype));
  PLANALTO_CHECK(a.loss_sum != nullptr && (a.labels != nullptr || tokens == 0),
                 "no labels or no place for the loss");
  PLANALTO_CHECK(!gradients || a.grad_scale != nullptr, "gradients are wanted, but there is no grad_scale");
  const std::int64_t needed = loss_head_workspace_bytes({.dtype = a.x.dtype,
                                                         .max_tokens = capacity,
                                                         .d = a.x.cols,
                                                         .vocab = a.w.rows,
                                                         .tile_rows = a.tile_rows,
                                                         .gradients = gradients},
                                                        ctx.kernels->isa, ctx.pool->num_threads());
  PLANALTO_CHECK(a.workspace.bytes >= needed && reinterpret_cast<std::uintptr_t>(a.workspace.data) % 64 == 0,
                 "workspace of {} bytes at {}; needed: {}, on a multiple of 64", a.workspace.bytes,
                 a.workspace.data, needed);
  check_labels(a.labels, tokens, a.w.rows);
  ctx.kernels->loss_head(ctx, a);
}

}  // namespace planalto::kernels
