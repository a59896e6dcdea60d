// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/loss_head.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace planalto::kernels::reference {
namespace {

double get(const ConstMatrix& m, std::int64_t r, std::int64_t c) {
  if (m.dtype == DType::f64) return m.row<double>(r)[c];
  if (m.dtype == DType::f32) return static_cast<double>(m.row<float>(r)[c]);
  return static_cast<double>(to_float(m.row<bf16>(r)[c]));
}

void put(const Matrix& m, std::int64_t r, std::int64_t c, double value) {
  if (m.dtype == DType::f64) m.row<double>(r)[c] = value;
  if (m.dtype == DType::f32) m.row<float>(r)[c] = static_cast<float>(value);
  if (m.dtype == DType::bf16) m.row<bf16>(r)[c] = to_bf16(static_cast<float>(value));
}

// softmax(x w^T) of a row; lse receives the logarithm of its denominator, logit that of the label.
std::vector<double> softmax_row(const LossHead& a, std::int64_t t, double& lse, double& logit) {
  std::vector<double> p(static_cast<std::size_t>(a.w.rows));
  for (std::int64_t j = 0; j < a.w.rows; ++j) {
    for (std::int64_t i = 0; i < a.x.cols; ++i)
      p[static_cast<std::size_t>(j)] += get(a.x, t, i) * get(a.w, j, i);
  }
  logit = p[static_cast<std::size_t>(a.labels[t])];
  const double highest = *std::max_element(p.begin(), p.end());
  double sum = 0.0;
  for (double& e : p) sum += (e = std::exp(e - highest));
  for (double& e : p) e /= sum;
  lse = highest + std::log(sum);
  return p;
}

}  // namespace

void loss_head(const LossHead& a) {
  const std::int64_t tokens = a.tokens.get(), vocab = a.w.rows, d = a.x.cols;
  std::vector<double> dw(static_cast<std::size_t>(vocab * d));
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<double> dx(static_cast<std::size_t>(d));
    double loss = 0.0;
    if (a.labels[t] != kIgnoredLabel) {
      double lse = 0.0, logit = 0.0;
      std::vector<double> g = softmax_row(a, t, lse, logit);
      loss = lse - logit;
      g[static_cast<std::size_t>(a.labels[t])] -= 1.0;
      const double scale = a.grad_scale != nullptr ? static_cast<double>(*a.grad_scale) : 0.0;
      for (std::int64_t j = 0; j < vocab; ++j) {
        const double gj = g[static_cast<std::size_t>(j)] * scale;
        for (std::int64_t i = 0; i < d; ++i) {
          dx[static_cast<std::size_t>(i)] += gj * get(a.w, j, i);
          dw[static_cast<std::size_t>(j * d + i)] += gj * get(a.x, t, i);
        }
      }
    }
    *a.loss_sum += loss;
    if (a.row_loss != nullptr) a.row_loss[t] = static_cast<float>(loss);
    for (std::int64_t i = 0; a.dx.data != nullptr && i < d; ++i) {
      put(a.dx, t, i, dx[static_cast<std::size_t>(i)] + (a.accumulate_dx ? get(a.dx, t, i) : 0.0));
    }
  }
  for (std::int64_t j = 0; a.dw.data != nullptr && j < vocab; ++j) {
    for (std::int64_t i = 0; i < d; ++i) {
      put(a.dw, j, i, dw[static_cast<std::size_t>(j * d + i)] + (a.accumulate_dw ? get(a.dw, j, i) : 0.0));
    }
  }
}

}  // namespace planalto::kernels::reference
