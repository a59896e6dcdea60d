// SPDX-License-Identifier: Apache-2.0
// schedule.h: the learning rate of a step.
// Invariants  a function of the number of the update alone: microbatches do not enter, a skipped step does not count
// Numerics    double
// Units       steps are optimizer updates, counted from 1
#pragma once

#include <cstdint>

namespace planalto {

enum class ScheduleKind { constant, cosine, linear, wsd };

struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double learning_rate = 0.0;  // the highest
  double min_ratio = 0.0;      // of it, at the end of the decay and after
  std::int64_t steps = 1;      // of the whole run
  std::int64_t warmup_steps =
      0;  // from 0 upwards in equal parts: step s has learning_rate * s / warmup_steps
  // cosine, linear: length of the decay, which follows the warm-up (0: the rest of the run).
  // wsd: length of the linear decay at the end of the run, after a stable stretch (0: a tenth of the run).
  std::int64_t decay_steps = 0;

  double at(std::int64_t step) const;
  // The last step before the decay, and the number of steps that it takes. constant: steps, 0.
  std::int64_t decay_begin() const;
  std::int64_t decay_length() const;
};

}  // namespace planalto
