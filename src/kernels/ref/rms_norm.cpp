// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/rms_norm.h"

#include <cmath>
#include <vector>

#include "kernels/ref/element.h"

namespace planalto::kernels::reference {

namespace {

double reciprocal_rms(const ConstMatrix& x, std::int64_t r, double eps) {
  double squares = 0.0;
  for (std::int64_t c = 0; c < x.cols; ++c) squares += get(x, r, c) * get(x, r, c);
  return 1.0 / std::sqrt(squares / static_cast<double>(x.cols) + eps);
}

}  // namespace

void rms_norm_forward(const RmsNormForward& a) {
  for (std::int64_t r = 0; r < a.rows.get(); ++r) {
    const double rstd = reciprocal_rms(a.x, r, static_cast<double>(a.eps));
    if (a.rstd != nullptr) a.rstd[r] = static_cast<float>(rstd);
    for (std::int64_t c = 0; c < a.x.cols; ++c) {
      const double n = rounded(a.x.dtype, get(a.x, r, c) * rstd);
      put(a.y, r, c, n * get(a.weight, a.x.dtype, c));
    }
  }
}

void rms_norm_backward(const RmsNormBackward& a) {
  const std::int64_t d = a.x.cols;
  std::vector<double> dweight(static_cast<std::size_t>(d), 0.0);
  for (std::int64_t r = 0; r < a.rows.get(); ++r) {
    const double rstd = static_cast<double>(a.rstd[r]);
    double mean = 0.0;  // of g n, with g = dy weight and n = x rstd
    for (std::int64_t c = 0; c < d; ++c) {
      mean += get(a.dy, r, c) * get(a.weight, a.x.dtype, c) * get(a.x, r, c) * rstd / static_cast<double>(d);
    }
    for (std::int64_t c = 0; c < d; ++c) {
      const double n = get(a.x, r, c) * rstd, dy = get(a.dy, r, c);
      dweight[static_cast<std::size_t>(c)] += dy * n;
      const double dx = rstd * (dy * get(a.weight, a.x.dtype, c) - n * mean);
      put(a.dx, r, c, dx + (a.accumulate_dx ? get(a.dx, r, c) : 0.0));
    }
  }
  if (a.dweight == nullptr) return;
  for (std::int64_t c = 0; c < d; ++c) {
    const double before = a.accumulate_dweight ? static_cast<double>(a.dweight[c]) : 0.0;
    a.dweight[c] = static_cast<float>(before + dweight[static_cast<std::size_t>(c)]);
  }
}

}  // namespace planalto::kernels::reference
