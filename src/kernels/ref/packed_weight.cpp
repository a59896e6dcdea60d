// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/packed_weight.h"

#include <algorithm>

#include "base/dtype.h"

namespace planalto::kernels::reference {

namespace {

// value(matrix, line, d) at [matrix][line / W][d / 2][line % W][d % 2]
template <class Value>
void fill(void* copy, std::int64_t num, std::int64_t lines, std::int64_t depth, std::int64_t w,
          const Value& value) {
  const std::int64_t panels = (lines + w - 1) / w, padded = (depth + 31) / 32 * 32;
  auto* out = static_cast<bf16*>(copy);
  for (std::int64_t e = 0; e < num; ++e) {
    for (std::int64_t p = 0; p < panels; ++p) {
      for (std::int64_t d = 0; d < padded; ++d) {
        for (std::int64_t i = 0; i < w; ++i) {
          const std::int64_t line = p * w + i;
          const bool inside = line < lines && d < depth;
          out[(((e * panels + p) * (padded / 2) + d / 2) * w + i) * 2 + d % 2] =
              inside ? value(e, line, d) : bf16{0};
        }
      }
    }
  }
}

}  // namespace

void pack_weight(const PackWeight& a, std::int64_t panel_lines) {
  const PackedCopies& c = a.copies;
  const auto at = [&](std::int64_t e, std::int64_t n, std::int64_t k) {
    return to_bf16(a.source[(e * c.n + n) * c.k + k]);
  };
  if (c.forward != nullptr) fill(c.forward, c.num, c.n, c.k, panel_lines, at);
  if (c.backward != nullptr)
    fill(c.backward, c.num, c.k, c.n, panel_lines,
         [&](std::int64_t e, std::int64_t line, std::int64_t d) { return at(e, d, line); });
}

}  // namespace planalto::kernels::reference
