// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/permute.h"

namespace planalto::kernels::reference {

namespace {

double get(const ConstMatrix& m, std::int64_t r, std::int64_t c) {
  return static_cast<double>(m.dtype == DType::f32 ? m.row<float>(r)[c] : to_float(m.row<bf16>(r)[c]));
}

void set(const Matrix& m, std::int64_t r, std::int64_t c, double value) {
  const auto v = static_cast<float>(value);
  if (m.dtype == DType::f32) {
    m.row<float>(r)[c] = v;
  } else {
    m.row<bf16>(r)[c] = to_bf16(v);
  }
}

}  // namespace

void route_layout(const RouteLayout& a) {
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < a.num_experts; ++e) {
    a.offsets[e] = row;
    for (std::int64_t t = 0; t < a.tokens.get(); ++t) {
      for (std::int64_t k = 0; k < a.top_k; ++k) {
        if (a.ids[t * a.top_k + k] != e) continue;
        a.position[t * a.top_k + k] = static_cast<std::int32_t>(row);
        a.source_row[row] = static_cast<std::int32_t>(t);
        if (a.row_weights != nullptr) a.row_weights[row] = a.weights[t * a.top_k + k];
        ++row;
      }
    }
  }
  a.offsets[a.num_experts] = row;
}

void gather_rows(const GatherRows& a) {
  for (std::int64_t r = 0; r < a.num_rows.get(); ++r) {
    for (std::int64_t c = 0; c < a.x.cols; ++c) set(a.rows, r, c, get(a.x, a.source_row[r], c));
  }
}

void combine_rows(const CombineRows& a) {
  for (std::int64_t t = 0; t < a.tokens.get(); ++t) {
    for (std::int64_t c = 0; c < a.y.cols; ++c) {
      double sum = a.accumulate ? get(a.y, t, c) : 0.0;
      for (std::int64_t k = 0; k < a.top_k; ++k) sum += get(a.rows, a.position[t * a.top_k + k], c);
      set(a.y, t, c, sum);
    }
  }
}

void unsort_route_values(const UnsortRouteValues& a) {
  for (std::int64_t i = 0; i < a.tokens.get() * a.top_k; ++i) a.values[i] = a.sorted[a.position[i]];
}

void scatter_rows(const ScatterRows& a) {
  for (std::int64_t r = 0; r < a.num_rows.get(); ++r) {
    for (std::int64_t c = 0; c < a.rows.cols; ++c) {
      const double old = a.accumulate ? get(a.y, a.target_row[r], c) : 0.0;
      set(a.y, a.target_row[r], c, old + get(a.rows, r, c));
    }
  }
}

}  // namespace planalto::kernels::reference
