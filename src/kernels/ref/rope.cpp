// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/rope.h"

#include "kernels/ref/element.h"

namespace planalto::kernels::reference {

void rope_apply(const RopeApply& a) {
  for (std::int64_t t = 0; t < a.tokens.get(); ++t) {
    for (std::int64_t h = 0; h < a.num_heads; ++h) {
      for (std::int64_t i = 0; i < a.half; ++i) {
        const float* angles = a.table + a.positions[t] * 2 * a.half;
        const double c = static_cast<double>(angles[i]);
        const double s = static_cast<double>(angles[a.half + i]) * (a.inverse ? -1.0 : 1.0);
        const std::int64_t head = t * a.row_stride + h * a.head_stride + a.first;
        const std::int64_t first = head + (a.style == RopeStyle::halves ? i : 2 * i);
        const std::int64_t second = head + (a.style == RopeStyle::halves ? i + a.half : 2 * i + 1);
        const double u = get(a.x, a.dtype, first), v = get(a.x, a.dtype, second);
        put(a.x, a.dtype, first, u * c - v * s);
        put(a.x, a.dtype, second, v * c + u * s);
      }
    }
  }
}

}  // namespace planalto::kernels::reference
