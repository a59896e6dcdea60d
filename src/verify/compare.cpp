// SPDX-License-Identifier: Apache-2.0
#include "verify/compare.h"

#include <cmath>
#include <limits>

namespace planalto {

Difference difference(std::span<const float> ours, std::span<const float> reference) {
  Difference d;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (ours.size() != reference.size()) {
    d.max_abs = d.max_relative = d.rms = d.l2 = kInfinity;
    return d;
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double r = reference[i];
    double e = std::abs(ours[i] - r);
    if (!std::isfinite(e)) e = kInfinity;
    if (e > d.max_abs || d.worst < 0) {
      d.max_abs = e;
      d.worst = static_cast<std::int64_t>(i);
    }
    d.max_reference = std::max(d.max_reference, std::abs(r));
    if (r != 0.0) d.max_relative = std::max(d.max_relative, e / std::abs(r));
    d.l2 += e * e;
    d.l2_reference += r * r;
  }
  d.rms = ours.empty() ? 0.0 : std::sqrt(d.l2 / static_cast<double>(ours.size()));
  d.l2 = std::sqrt(d.l2);
  d.l2_reference = std::sqrt(d.l2_reference);
  return d;
}

void Worst::add(double error, const std::string& note) {
  if (!any_ || !(error <= row_.error)) {
    row_.error = error;
    row_.note = note;
  }
  any_ = true;
  row_.passed = row_.error <= row_.tolerance;
}

}  // namespace planalto
