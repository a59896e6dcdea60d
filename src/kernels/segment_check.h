// SPDX-License-Identifier: Apache-2.0
// segment_check.h: the check of segment offsets that grouped kernels make before they enter the pool.
// Errors      internal: offsets that descend, do not begin at 0 or pass the last valid row
#pragma once

#include "base/error.h"
#include "kernels/grouped_gemm.h"

namespace planalto::kernels {

// The rows that the segments cover.
inline std::int64_t check_segments(const Segments& s, const RowCount& rows) {
  const std::int64_t valid = rows.get();
  PLANALTO_CHECK(s.num >= 1, "{} segments, at least 1", s.num);
  PLANALTO_CHECK(valid >= 0 && valid <= rows.capacity * rows.multiplier, "{} rows, capacity {}", valid,
                 rows.capacity * rows.multiplier);
  if (s.offsets == nullptr) {
    PLANALTO_CHECK(s.num == 1, "{} segments without offsets", s.num);
    return valid;
  }
  PLANALTO_CHECK(s.offsets[0] == 0, "the first offset is {}, not 0", s.offsets[0]);
  for (std::int64_t e = 0; e < s.num; ++e) {
    PLANALTO_CHECK(s.offsets[e] <= s.offsets[e + 1], "offset {} is {}, below {} before it", e + 1,
                   s.offsets[e + 1], s.offsets[e]);
  }
  PLANALTO_CHECK(s.offsets[s.num] <= valid, "the last offset is {}, there are {} rows", s.offsets[s.num],
                 valid);
  return s.offsets[s.num];
}

}  // namespace planalto::kernels
