// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/optimizer.h"

#include <cmath>

#include "kernels/ref/element.h"

namespace planalto::kernels::reference {

void adamw_update(const AdamWUpdate& a) {
  if (a.skip != nullptr && *a.skip != 0) return;
  const AdamWScalars& s = *a.scalars;
  for (std::int64_t i = 0; i < a.n; ++i) {
    const double g = static_cast<double>(a.grad[i]) *
                     static_cast<double>(a.grad_factor != nullptr ? *a.grad_factor : 1.0F);
    const double m = s.beta1 * static_cast<double>(a.m[i]) + (1.0 - s.beta1) * g;
    const double v = s.beta2 * static_cast<double>(a.v[i]) + (1.0 - s.beta2) * g * g;
    double p = static_cast<double>(a.master[i]) * (1.0 - s.learning_rate * static_cast<double>(a.decay));
    p -= s.learning_rate * (m / s.correction1) / (std::sqrt(v / s.correction2) + s.eps);
    a.m[i] = static_cast<float>(m);
    a.v[i] = static_cast<float>(v);
    a.master[i] = static_cast<float>(p);
    if (a.weight != nullptr) put(a.weight, DType::bf16, i, static_cast<double>(a.master[i]));
  }
}

void sum_squares(const SumSquares& a) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < a.n; ++i) sum += static_cast<double>(a.x[i]) * static_cast<double>(a.x[i]);
  *a.sum = sum;
}

}  // namespace planalto::kernels::reference
