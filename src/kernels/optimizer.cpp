// SPDX-License-Identifier: Apache-2.0
#include "kernels/optimizer.h"

#include "kernels/square_blocks.h"
#include "kernels/table.h"
#include "kernels/view_check.h"

namespace planalto::kernels {

std::int64_t sum_squares_workspace_bytes(std::int64_t n) {
  return num_square_blocks(n) * 8;
}

void adamw_update(const ExecContext& ctx, const AdamWUpdate& a) {
  PLANALTO_CHECK(a.n >= 0, "adamw_update: n is {}", a.n);
  PLANALTO_CHECK(a.scalars != nullptr, "adamw_update: no scalars");
  PLANALTO_CHECK(a.n == 0 || (a.grad != nullptr && a.master != nullptr && a.m != nullptr && a.v != nullptr),
                 "adamw_update: {} elements without grad, master, m or v", a.n);
  const PackedCopies& c = a.packed;
  PLANALTO_CHECK(c.num == 0 || (c.num * c.n * c.k == a.n && a.weight == nullptr),
                 "adamw_update: packed copies of {} x [{}, {}] for {} elements{}", c.num, c.n, c.k, a.n,
                 a.weight == nullptr ? "" : ", and a plain one");
  for (const void* copy : {c.forward, c.backward}) {
    PLANALTO_CHECK(reinterpret_cast<std::uintptr_t>(copy) % 64 == 0,
                   "adamw_update: a packed copy is not 64-byte aligned");
  }
  ctx.kernels->adamw_update(ctx, a);
}

void sum_squares(const ExecContext& ctx, const SumSquares& a) {
  PLANALTO_CHECK(a.n >= 0 && a.sum != nullptr, "sum_squares: n is {}, sum {}", a.n,
                 a.sum != nullptr ? "given" : "null");
  check_workspace("sum_squares", a.workspace, sum_squares_workspace_bytes(a.n));
  ctx.kernels->sum_squares(ctx, a);
}

}  // namespace planalto::kernels
