// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include "base/error.h"
#include "kernels/table.h"
#include "kernels/view_check.h"

namespace planalto::kernels {

namespace {

void check_ids(const std::int32_t* ids, std::int64_t tokens, std::int64_t vocabulary) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (ids[t] < 0 || ids[t] >= vocabulary) {
      fail(ErrorKind::data, "token id {} at position {} is outside the embedding table; legal: 0 to {}",
           ids[t], t, vocabulary - 1);
    }
  }
}

}  // namespace

void embedding_forward(const ExecContext& ctx, const EmbeddingForward& a) {
  const std::int64_t tokens = checked_rows("embedding_forward: tokens", a.tokens);
  check_float_dtype("embedding_forward: table", a.table.dtype);
  check_view("embedding_forward: table", a.table, 0, a.table.cols, a.table.dtype);
  check_view("embedding_forward: y", a.y, tokens, a.table.cols, a.table.dtype);
  check_ids(a.ids, tokens, a.table.rows);
  ctx.kernels->embedding_forward(ctx, a);
}

void embedding_backward(const ExecContext& ctx, const EmbeddingBackward& a) {
  const std::int64_t tokens = checked_rows("embedding_backward: tokens", a.tokens);
  check_float_dtype("embedding_backward: dy", a.dy.dtype);
  check_view("embedding_backward: dtable", a.dtable, a.dtable.rows, a.dtable.cols, DType::f32);
  check_view("embedding_backward: dy", a.dy, tokens, a.dtable.cols, a.dy.dtype);
  check_ids(a.ids, tokens, a.dtable.rows);
  ctx.kernels->embedding_backward(ctx, a);
}

}  // namespace planalto::kernels
