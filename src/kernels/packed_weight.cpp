// SPDX-License-Identifier: Apache-2.0
#include "kernels/packed_weight.h"

#include "base/error.h"
#include "base/exec_context.h"
#include "kernels/table.h"

namespace planalto::kernels {

void pack_weight(const ExecContext& ctx, const PackWeight& a) {
  PLANALTO_CHECK(a.source != nullptr, "pack_weight without a source");
  PLANALTO_CHECK(a.copies.num >= 1 && a.copies.n >= 1 && a.copies.k >= 1, "pack_weight of {} x [{}, {}]",
                 a.copies.num, a.copies.n, a.copies.k);
  for (const void* copy : {a.copies.forward, a.copies.backward}) {
    PLANALTO_CHECK(reinterpret_cast<std::uintptr_t>(copy) % 64 == 0,
                   "pack_weight: a copy is not 64-byte aligned");
  }
  ctx.kernels->pack_weight(ctx, a);
}

}  // namespace planalto::kernels
