// SPDX-License-Identifier: Apache-2.0
// schedule_test.cpp: values worked out by hand for each kind.
#include "train/schedule.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace planalto {
namespace {

Schedule schedule(ScheduleKind kind, std::int64_t decay_steps = 0) {
  return {.kind = kind,
          .learning_rate = 1.0,
          .min_ratio = 0.1,
          .steps = 100,
          .warmup_steps = 10,
          .decay_steps = decay_steps};
}

// The steps of C051 are updates: how many microbatches make one cannot be said to a schedule at all.
TEST(Schedule, C051StepsAreUpdates) {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::wsd}) {
    EXPECT_DOUBLE_EQ(schedule(kind).at(1), 0.1);
    EXPECT_DOUBLE_EQ(schedule(kind).at(5), 0.5);
    EXPECT_DOUBLE_EQ(schedule(kind).at(10), 1.0);
    EXPECT_DOUBLE_EQ(schedule(kind).at(100), kind == ScheduleKind::constant ? 1.0 : 0.1);
    EXPECT_DOUBLE_EQ(schedule(kind).at(1000), kind == ScheduleKind::constant ? 1.0 : 0.1);
  }
}

TEST(Schedule, CosineAndLinear) {
  // One third of the decay: cos(60 degrees) = 1/2. Half: 0.
  EXPECT_NEAR(schedule(ScheduleKind::cosine).at(40), 0.1 + 0.9 * 0.75, 1e-15);
  EXPECT_NEAR(schedule(ScheduleKind::cosine).at(55), 0.1 + 0.9 * 0.5, 1e-15);
  EXPECT_NEAR(schedule(ScheduleKind::linear).at(40), 0.1 + 0.9 * 2.0 / 3.0, 1e-15);
  EXPECT_NEAR(schedule(ScheduleKind::linear, 30).at(25), 0.1 + 0.9 * 0.5, 1e-15);
  EXPECT_NEAR(schedule(ScheduleKind::linear, 30).at(41), 0.1, 1e-15);
}

TEST(Schedule, WarmupStableDecay) {
  EXPECT_EQ(schedule(ScheduleKind::wsd).decay_begin(), 90);
  EXPECT_DOUBLE_EQ(schedule(ScheduleKind::wsd).at(90), 1.0);
  EXPECT_NEAR(schedule(ScheduleKind::wsd).at(95), 0.1 + 0.9 * 0.5, 1e-15);
  EXPECT_DOUBLE_EQ(schedule(ScheduleKind::wsd, 40).at(60), 1.0);
  EXPECT_NEAR(schedule(ScheduleKind::wsd, 40).at(70), 0.1 + 0.9 * 0.75, 1e-15);
}

TEST(Schedule, Edges) {
  Schedule none = schedule(ScheduleKind::cosine);
  none.warmup_steps = 0;
  none.steps = 1;
  EXPECT_DOUBLE_EQ(none.at(1), 0.1);
  Schedule all_warmup = schedule(ScheduleKind::linear);
  all_warmup.warmup_steps = 100;
  EXPECT_DOUBLE_EQ(all_warmup.at(100), 1.0);
  EXPECT_THROW(none.at(0), Error);
}

}  // namespace
}  // namespace planalto
