// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/swiglu.h"

#include <cmath>

#include "kernels/ref/element.h"

namespace planalto::kernels::reference {

void swiglu_forward(const SwigluForward& a) {
  const std::int64_t f = a.act.cols;
  for (std::int64_t r = 0; r < a.rows.get(); ++r) {
    const double w = a.row_weight != nullptr ? static_cast<double>(a.row_weight[r]) : 1.0;
    for (std::int64_t c = 0; c < f; ++c) {
      const double gate = get(a.gate_up, r, c), up = get(a.gate_up, r, f + c);
      put(a.act, r, c, w * gate / (1.0 + std::exp(-gate)) * up);
    }
  }
}

void swiglu_backward(const SwigluBackward& a) {
  const std::int64_t f = a.dact.cols;
  for (std::int64_t r = 0; r < a.rows.get(); ++r) {
    const double w = a.row_weight != nullptr ? static_cast<double>(a.row_weight[r]) : 1.0;
    double drow_weight = 0.0;
    for (std::int64_t c = 0; c < f; ++c) {
      const double gate = get(a.gate_up, r, c), up = get(a.gate_up, r, f + c), dact = get(a.dact, r, c);
      const double s = 1.0 / (1.0 + std::exp(-gate)), silu = gate * s;
      put(a.dgate_up, r, c, w * dact * up * s * (1.0 + gate * (1.0 - s)));
      put(a.dgate_up, r, f + c, w * dact * silu);
      if (a.act.data != nullptr) put(a.act, r, c, w * silu * up);
      drow_weight += dact * silu * up;
    }
    if (a.drow_weight != nullptr) a.drow_weight[r] = static_cast<float>(drow_weight);
  }
}

}  // namespace planalto::kernels::reference
