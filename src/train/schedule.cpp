// SPDX-License-Identifier: Apache-2.0
#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace planalto {

std::int64_t Schedule::decay_length() const {
  switch (kind) {
    case ScheduleKind::constant:
      return 0;
    case ScheduleKind::wsd:
      return decay_steps > 0 ? decay_steps : std::max<std::int64_t>(steps / 10, 1);
    case ScheduleKind::cosine:
    case ScheduleKind::linear:
      break;
  }
  return decay_steps > 0 ? decay_steps : std::max<std::int64_t>(steps - warmup_steps, 1);
}

std::int64_t Schedule::decay_begin() const {
  if (kind == ScheduleKind::constant) return steps;
  if (kind == ScheduleKind::wsd) return std::max(steps - decay_length(), warmup_steps);
  return warmup_steps;
}

double Schedule::at(std::int64_t step) const {
  PLANALTO_CHECK(step >= 1, "step {} of a schedule; steps count from 1", step);
  if (step <= warmup_steps)
    return learning_rate * static_cast<double>(step) / static_cast<double>(warmup_steps);
  if (kind == ScheduleKind::constant || step <= decay_begin()) return learning_rate;
  const double done =
      std::min(1.0, static_cast<double>(step - decay_begin()) / static_cast<double>(decay_length()));
  const double left =
      kind == ScheduleKind::cosine ? 0.5 * (1.0 + std::cos(std::numbers::pi * done)) : 1.0 - done;
  return learning_rate * (min_ratio + (1.0 - min_ratio) * left);
}

}  // namespace planalto
