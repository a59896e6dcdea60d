// SPDX-License-Identifier: Apache-2.0
#include "kernels/permute.h"

#include "base/error.h"
#include "kernels/expert_ids.h"
#include "kernels/router.h"
#include "kernels/table.h"

namespace planalto::kernels {

namespace {

void check_matrix(const char* name, const ConstMatrix& m) {
  PLANALTO_CHECK(m.dtype == DType::f32 || m.dtype == DType::bf16, "{} is {}; legal: f32, bf16", name,
                 to_string(m.dtype));
  PLANALTO_CHECK(m.row_stride >= m.cols && m.cols >= 0, "{} has {} columns and a row stride of {}", name,
                 m.cols, m.row_stride);
}

void check_move(const ConstMatrix& from, const ConstMatrix& to) {
  check_matrix("the source", from);
  check_matrix("the target", to);
  PLANALTO_CHECK(from.cols == to.cols, "rows of {} columns into rows of {}", from.cols, to.cols);
}

void check_rows(std::int64_t rows, std::int64_t limit) {
  PLANALTO_CHECK(rows >= 0 && rows <= limit, "{} rows; legal: 0 to {}", rows, limit);
}

}  // namespace

void route_layout(const ExecContext& ctx, const RouteLayout& a) {
  const std::int64_t tokens = a.tokens.get();
  PLANALTO_CHECK(a.num_experts >= 1 && a.num_experts <= kMaxExperts, "num_experts {}; legal: 1 to {}",
                 a.num_experts, kMaxExperts);
  PLANALTO_CHECK(a.top_k >= 1 && a.top_k <= kMaxTopK, "top_k {}; legal: 1 to {}", a.top_k, kMaxTopK);
  check_rows(tokens * a.top_k, std::int64_t{1} << 31);
  PLANALTO_CHECK(a.row_weights == nullptr || a.weights != nullptr, "row_weights without weights");
  check_expert_ids(ctx, "route_layout", a.ids, tokens, a.top_k, a.num_experts, IdOrder::any);
  ctx.kernels->route_layout(ctx, a);
  for (std::int64_t e = 0; a.counts != nullptr && e < a.num_experts; ++e) {
    PLANALTO_CHECK(a.counts[e] == a.offsets[e + 1] - a.offsets[e],
                   "counts[{}] is {}, the ids hold {} routes to it", e, a.counts[e],
                   a.offsets[e + 1] - a.offsets[e]);
  }
}

void gather_rows(const ExecContext& ctx, const GatherRows& a) {
  check_move(a.x, a.rows);
  PLANALTO_CHECK(a.x.dtype == a.rows.dtype, "gather copies: {} into {}", to_string(a.x.dtype),
                 to_string(a.rows.dtype));
  check_rows(a.num_rows.get(), a.rows.rows);
  ctx.kernels->gather_rows(ctx, a);
}

void combine_rows(const ExecContext& ctx, const CombineRows& a) {
  check_move(a.rows, a.y);
  check_rows(a.tokens.get(), a.y.rows);
  PLANALTO_CHECK(a.top_k >= 1 && a.top_k <= kMaxTopK, "top_k {}; legal: 1 to {}", a.top_k, kMaxTopK);
  ctx.kernels->combine_rows(ctx, a);
}

void unsort_route_values(const ExecContext& ctx, const UnsortRouteValues& a) {
  ctx.kernels->unsort_route_values(ctx, a);
}

void scatter_rows(const ExecContext& ctx, const ScatterRows& a) {
  check_move(a.rows, a.y);
  check_rows(a.num_rows.get(), a.rows.rows);
  ctx.kernels->scatter_rows(ctx, a);
}

}  // namespace planalto::kernels
