// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <cmath>

#include "kernels/table.h"
#include "kernels/view_check.h"

namespace planalto::kernels {

void rope_apply(const ExecContext& ctx, const RopeApply& a) {
  const std::int64_t tokens = checked_rows("rope_apply: tokens", a.tokens);
  check_float_dtype("rope_apply: x", a.dtype);
  PLANALTO_CHECK(a.num_heads >= 0 && a.first >= 0 && a.half >= 0, "rope_apply: {} heads, first {}, half {}",
                 a.num_heads, a.first, a.half);
  PLANALTO_CHECK(tokens == 0 || (a.x != nullptr && a.table != nullptr && a.positions != nullptr),
                 "rope_apply: {} tokens without x, table or positions", tokens);
  ctx.kernels->rope_apply(ctx, a);
}

void rope_table(const RopeTable& a) {
  for (std::int64_t p = 0; p < a.max_positions; ++p) {
    float* row = a.table + p * 2 * a.half;
    for (std::int64_t i = 0; i < a.half; ++i) {
      const double angle = static_cast<double>(p) * a.inv_freq[i];
      row[i] = static_cast<float>(std::cos(angle) * a.scale);
      row[a.half + i] = static_cast<float>(std::sin(angle) * a.scale);
    }
  }
}

}  // namespace planalto::kernels
