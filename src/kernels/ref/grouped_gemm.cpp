// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/grouped_gemm.h"

namespace planalto::kernels::reference {

namespace {

double get(const ConstMatrix& m, std::int64_t r, std::int64_t c) {
  if (m.dtype == DType::f64) return m.row<double>(r)[c];
  if (m.dtype == DType::bf16) return to_float(m.row<bf16>(r)[c]);
  return m.row<float>(r)[c];
}

void put(const Matrix& m, std::int64_t r, std::int64_t c, double value, bool accumulate) {
  if (accumulate) value += get(m, r, c);
  if (m.dtype == DType::f64) {
    m.row<double>(r)[c] = value;
  } else if (m.dtype == DType::bf16) {
    m.row<bf16>(r)[c] = to_bf16(static_cast<float>(value));
  } else {
    m.row<float>(r)[c] = static_cast<float>(value);
  }
}

std::int64_t begin(const Segments& s, std::int64_t e) {
  return s.offsets == nullptr ? 0 : s.offsets[e];
}
std::int64_t end(const Segments& s, const RowCount& rows, std::int64_t e) {
  return s.offsets == nullptr ? rows.get() : s.offsets[e + 1];
}

}  // namespace

void grouped_gemm_forward(const GroupedGemmForward& a) {
  const std::int64_t n = a.y.cols, k = a.x.cols;
  const ConstMatrix bias{a.bias, a.w.dtype, a.segments.num, n, n};
  for (std::int64_t e = 0; e < a.segments.num; ++e) {
    for (std::int64_t r = begin(a.segments, e); r < end(a.segments, a.rows, e); ++r) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = a.bias != nullptr ? get(bias, e, j) : 0.0;
        for (std::int64_t i = 0; i < k; ++i) sum += get(a.x, r, i) * get(a.w, e * n + j, i);
        put(a.y, r, j, sum, a.accumulate);
      }
    }
  }
}

void grouped_gemm_grad_input(const GroupedGemmGradInput& a) {
  const std::int64_t n = a.dy.cols, k = a.dx.cols;
  for (std::int64_t e = 0; e < a.segments.num; ++e) {
    for (std::int64_t r = begin(a.segments, e); r < end(a.segments, a.rows, e); ++r) {
      for (std::int64_t i = 0; i < k; ++i) {
        double sum = 0.0;
        for (std::int64_t j = 0; j < n; ++j) sum += get(a.dy, r, j) * get(a.w, e * n + j, i);
        put(a.dx, r, i, sum, a.accumulate);
      }
    }
  }
}

void grouped_gemm_grad_weight(const GroupedGemmGradWeight& a) {
  const std::int64_t n = a.dy.cols, k = a.x.cols;
  for (std::int64_t e = 0; e < a.segments.num; ++e) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t i = 0; i < k; ++i) {
        double sum = 0.0;
        for (std::int64_t r = begin(a.segments, e); r < end(a.segments, a.rows, e); ++r) {
          sum += get(a.dy, r, j) * get(a.x, r, i);
        }
        put(a.dw, e * n + j, i, sum, a.accumulate);
      }
    }
  }
}

}  // namespace planalto::kernels::reference
