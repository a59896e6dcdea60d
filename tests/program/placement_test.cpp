// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "program/placement.h"
#include "support/program_maker.h"
#include "support/random_seed.h"

namespace planalto {
namespace {

using testing::ProgramMaker;
using testing::reads;
using testing::updates;
using testing::writes;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::int64_t offset(const MemoryPlan& plan, Buffer b) {
  return plan.offsets[at(b.id)];
}

bool overlap(const BufferTable& table, const MemoryPlan& plan, Buffer a, Buffer b) {
  const auto end = [&](Buffer x) {
    return offset(plan, x) + std::max(plan.slot_strides[at(x.id)] * 2, table[x].bytes());
  };
  return offset(plan, a) < end(b) && offset(plan, b) < end(a);
}

TEST(Placement, AChainNeedsTwoNeighboursAtOnce) {
  ProgramMaker m;
  std::vector<Buffer> chain;
  for (int i = 0; i < 10; ++i) {
    chain.push_back(m.bytes("x" + std::to_string(i), 1000));  // 1024 when rounded
    std::vector<Access> accesses = {writes(chain.back())};
    if (i > 0) accesses.push_back(reads(chain[at(i - 1)]));
    m.op("compute", "op" + std::to_string(i), accesses);
  }
  const Program p = m.builder.finish();
  const MemoryPlan plan = place(m.table(), {&p});
  EXPECT_EQ(plan.programs[0].largest_live_bytes[0], 2048);
  EXPECT_EQ(plan.programs[0].transient_bytes[0], 2048);
  EXPECT_EQ(plan.programs[0].peak_op, 1);
  EXPECT_EQ(plan.arena_bytes[0], 2048);
  for (int i = 1; i < 10; ++i) EXPECT_FALSE(overlap(m.table(), plan, chain[at(i - 1)], chain[at(i)]));
}

TEST(Placement, PersistentBuffersStandFirstAndTwoProgramsShareTheRest) {
  BufferTable table;
  ProgramMaker step(table, 0, "step");
  ProgramMaker eval(table, 1, "eval");
  const Buffer w = step.persistent("w", DType::f32, 100);      // 400 bytes: 448
  const Buffer idle = step.persistent("idle", DType::f32, 1);  // no op uses it: placed all the same
  const Buffer a = step.bytes("a", 640);
  const Buffer b = eval.bytes("b", 128);
  const Buffer unused = step.bytes("unused", 64);
  step.op("compute", "a", {writes(a), reads(w)});
  eval.op("compute", "b", {writes(b), reads(w)});
  const Program p = step.builder.finish();
  const Program q = eval.builder.finish();
  const MemoryPlan plan = place(table, {&p, &q});
  EXPECT_EQ(plan.persistent_bytes[0], 448 + 64);
  EXPECT_EQ(offset(plan, idle), 0);
  EXPECT_EQ(offset(plan, w), 64);
  EXPECT_EQ(offset(plan, a), 512);
  EXPECT_EQ(offset(plan, b), 512);
  EXPECT_EQ(offset(plan, unused), -1);
  EXPECT_EQ(plan.arena_bytes[0], 512 + 640);
  EXPECT_EQ(plan.programs[1].transient_bytes[0], 128);
}

TEST(Placement, TiersHaveArenasOfTheirOwn) {
  ProgramMaker m;
  const Buffer host =
      m.table().add({.name = "h", .dtype = DType::u8, .rows = 100, .tier = Tier::host, .program = 0});
  const Buffer device = m.bytes("d", 200);
  m.op("compute", "copy", {writes(host), writes(device)});
  const Program p = m.builder.finish();
  const MemoryPlan plan = place(m.table(), {&p});
  EXPECT_EQ(offset(plan, host), 0);
  EXPECT_EQ(offset(plan, device), 0);
  EXPECT_EQ(plan.arena_bytes[static_cast<int>(Tier::host)], 128);
  EXPECT_EQ(plan.arena_bytes[static_cast<int>(Tier::device)], 256);
}

TEST(Placement, StreamsShareBytesOnlyWhereWaitsOrderThem) {
  for (const bool tied : {false, true}) {
    ProgramMaker m;
    const Buffer x = m.bytes("x", 64);
    const Buffer y = m.bytes("y", 64);
    const Buffer token = m.persistent("token", DType::u8, 64);
    m.op("compute", "x", {writes(x)});
    m.op("compute", "use_x", {updates(x), writes(token)});
    m.op("copy", "y", tied ? std::vector<Access>{writes(y), reads(token)} : std::vector<Access>{writes(y)});
    const Program p = m.builder.finish();
    const MemoryPlan plan = place(m.table(), {&p});
    EXPECT_EQ(overlap(m.table(), plan, x, y), tied);
    EXPECT_EQ(plan.programs[0].largest_live_bytes[0], tied ? 64 : 128);
    EXPECT_EQ(plan.programs[0].transient_bytes[0], tied ? 64 : 128);
  }
}

TEST(Placement, InARegionValuesOfOneIterationShareAndCarriedOnesDoNot) {
  ProgramMaker m;
  const Buffer sum = m.bytes("sum", 64);
  const Buffer a = m.bytes("a", 64);
  const Buffer b = m.bytes("b", 64);
  const Buffer c = m.bytes("c", 64);
  const Buffer after = m.bytes("after", 64);
  m.op("compute", "zero", {writes(sum)});
  m.builder.begin_repeat(4);
  m.op("compute", "a", {writes(a)});
  m.op("compute", "b", {writes(b), reads(a)});
  m.op("compute", "c", {writes(c), reads(b)});
  m.op("compute", "add", {updates(sum), reads(c)});
  m.builder.end_repeat();
  m.op("compute", "after", {writes(after), reads(sum)});
  const Program p = m.builder.finish();
  const MemoryPlan plan = place(m.table(), {&p});
  EXPECT_EQ(plan.programs[0].transient_bytes[0], 3 * 64);  // sum and two of a, b, c
  EXPECT_TRUE(overlap(m.table(), plan, a, c));
  EXPECT_FALSE(overlap(m.table(), plan, sum, a));
  EXPECT_FALSE(overlap(m.table(), plan, sum, b));
  EXPECT_FALSE(overlap(m.table(), plan, sum, c));
  EXPECT_FALSE(overlap(m.table(), plan, sum, after));
}

TEST(Placement, AValueReadInTheNextIterationLivesThroughTheRegion) {
  ProgramMaker m;
  const Buffer carried = m.bytes("carried", 64);
  const Buffer late = m.bytes("late", 64);
  m.op("compute", "first", {writes(carried)});
  m.builder.begin_repeat(4);
  m.op("compute", "use", {reads(carried)});
  m.op("compute", "late", {writes(late)});
  m.op("compute", "next", {reads(late), writes(carried)});
  m.builder.end_repeat();
  const Program p = m.builder.finish();
  EXPECT_FALSE(overlap(m.table(), place(m.table(), {&p}), carried, late));
}

// Iteration i + 1 of "copy" may run beside iteration i of "compute", so that x and y share bytes only when
// copy waits for y.
TEST(Placement, IterationsOfTwoStreamsMayOverlap) {
  for (const bool tied : {false, true}) {
    ProgramMaker m;
    const Buffer x = m.bytes("x", 64);
    const Buffer y = m.bytes("y", 64);
    const Buffer token = m.persistent("token", DType::u8, 64);
    m.builder.begin_repeat(4);
    m.op("copy", "x", {writes(x), tied ? updates(token) : reads(token)});
    m.op("compute", "y", {writes(y), reads(token)});
    m.builder.end_repeat();
    const Program p = m.builder.finish();
    EXPECT_EQ(overlap(m.table(), place(m.table(), {&p}), x, y), tied);
  }
}

TEST(Placement, ATripCountLivesUntilEveryStreamOfTheRegionHasReadIt) {
  ProgramMaker m;
  const Buffer trips = m.builder.transient("trips", DType::i64, 1, 1);
  const Buffer x = m.bytes("x", 64);
  const Buffer y = m.bytes("y", 64);
  m.op("compute", "count", {writes(trips)});
  m.builder.begin_repeat(trips, 4);
  m.op("copy", "y", {writes(y)});
  m.builder.end_repeat();
  m.op("compute", "x", {writes(x)});  // nothing else ties it to the stream "copy"
  const Program p = m.builder.finish();
  const MemoryPlan plan = place(m.table(), {&p});
  EXPECT_FALSE(overlap(m.table(), plan, trips, x));
  EXPECT_FALSE(overlap(m.table(), plan, trips, y));
}

// The region's op on "third" waits for "copy"; when the region is skipped the op after it is the first on its stream.
TEST(Placement, AFirstUseInARegionThatMayBeSkippedIsNotTheOnlyOne) {
  for (const bool may_be_skipped : {false, true}) {
    ProgramMaker m;
    const Buffer trips = m.persistent("trips", DType::i64, 1);
    const Buffer token = m.persistent("token", DType::u8, 1);
    const Buffer early = m.bytes("early", 64);
    const Buffer x = m.bytes("x", 64);
    m.op("copy", "early", {writes(early), writes(token)});
    if (may_be_skipped) m.builder.begin_repeat(trips, 4);
    if (!may_be_skipped) m.builder.begin_repeat(4);
    m.op("third", "first", {writes(x), reads(token)});
    m.builder.end_repeat();
    m.op("third", "second", {writes(x)});
    const Program p = m.builder.finish();
    EXPECT_EQ(overlap(m.table(), place(m.table(), {&p}), early, x), !may_be_skipped);
  }
}

TEST(Placement, WhatTheCallerFillsLivesFromTheStart) {
  ProgramMaker m;
  const Buffer ids = m.bytes("ids", 64, Role::input);
  const Buffer before = m.bytes("before", 64);
  const Buffer after = m.bytes("after", 64);
  m.op("compute", "before", {writes(before)});
  m.op("compute", "use", {reads(ids)});
  m.op("compute", "after", {writes(after)});
  const Program p = m.builder.finish();
  const MemoryPlan plan = place(m.table(), {&p});
  EXPECT_FALSE(overlap(m.table(), plan, ids, before));
  EXPECT_EQ(plan.arena_bytes[0], 128);
}

TEST(Placement, TwoSlotsAreTwoPlaces) {
  ProgramMaker m;
  m.builder.begin_repeat(3);
  const Buffer x = m.builder.slotted("x", DType::u8, 100, 1);
  const Buffer y = m.bytes("y", 64);
  m.op("compute", "x", {writes(x)});
  m.op("compute", "y", {writes(y), reads(x)});
  m.builder.end_repeat();
  const Program p = m.builder.finish();
  const MemoryPlan plan = place(m.table(), {&p});
  EXPECT_EQ(plan.slot_strides[at(x.id)], 128);
  EXPECT_EQ(plan.slot_strides[at(y.id)], 0);
  EXPECT_EQ(plan.programs[0].transient_bytes[0], 2 * 128 + 64);
  EXPECT_FALSE(overlap(m.table(), plan, x, y));
}

TEST(Placement, TheTopmostBufferIsOneThatIsWrittenCompletely) {
  ProgramMaker m;
  const Buffer scratch = m.bytes("scratch", 4096, Role::workspace);
  const Buffer out = m.bytes("out", 64);
  const Buffer exchange = m.bytes("exchange", 2048, Role::exchange);
  m.op("compute", "work", {writes(scratch), writes(out), writes(exchange)});
  const Program p = m.builder.finish();
  const MemoryPlan plan = place(m.table(), {&p});
  EXPECT_EQ(offset(plan, out) + 64, plan.arena_bytes[0]);
  EXPECT_FALSE(overlap(m.table(), plan, scratch, exchange));
}

TEST(Placement, BuffersOfZeroBytesTakeNoRoom) {
  ProgramMaker m;
  const Buffer none = m.bytes("none", 0);
  const Buffer some = m.bytes("some", 64);
  m.op("compute", "work", {writes(none), writes(some)});
  const Program p = m.builder.finish();
  const MemoryPlan plan = place(m.table(), {&p});
  EXPECT_GE(offset(plan, none), 0);
  EXPECT_EQ(plan.arena_bytes[0], 64);
}

// The shape of a training step: each layer keeps some buffers for its backward, in reverse order, and has
// passing ones.
Program layered_step(ProgramMaker& m, int layers, std::mt19937& random) {
  std::uniform_int_distribution<std::int64_t> bytes(1, 1 << 20);
  std::vector<std::vector<Buffer>> saved(at(layers));
  Buffer x = m.bytes("embedded", 1 << 19);
  m.op("compute", "embed", {writes(x)});
  for (int l = 0; l < layers; ++l) {
    for (int k = 0; k < 8; ++k) {
      const std::string name = std::to_string(l) + "." + std::to_string(k);
      const Buffer kept = m.bytes(name, bytes(random));
      const Buffer scratch = m.bytes(name + ".scratch", bytes(random));
      m.op("compute", name, {reads(x), writes(kept), writes(scratch)});
      saved[at(l)].push_back(kept);
      x = kept;
    }
  }
  Buffer grad = m.bytes("grad", 1 << 19);
  m.op("compute", "loss", {reads(x), writes(grad)});
  for (int l = layers - 1; l >= 0; --l) {
    for (int k = 7; k >= 0; --k) {
      const std::string name = "grad." + std::to_string(l) + "." + std::to_string(k);
      const Buffer next = m.bytes(name, bytes(random));
      m.op("compute", name, {reads(grad), reads(saved[at(l)][at(k)]), writes(next)});
      grad = next;
    }
  }
  return m.builder.finish();
}

TEST(Placement, AStepOfThousandsOfBuffersStaysWithinTenPercentOfItsLargestLiveSum) {
  std::mt19937 random(7);
  ProgramMaker m;
  const Program p = layered_step(m, 150, random);
  ASSERT_GT(m.table().size(), 3000);
  const MemoryPlan plan = place(m.table(), {&p});
  const auto live = static_cast<double>(plan.programs[0].largest_live_bytes[0]);
  EXPECT_GE(plan.programs[0].transient_bytes[0], plan.programs[0].largest_live_bytes[0]);
  EXPECT_LE(static_cast<double>(plan.programs[0].transient_bytes[0]), 1.1 * live);
  RecordProperty("over_live_permille",
                 static_cast<int>(1000.0 * static_cast<double>(plan.arena_bytes[0]) / live));
  const MemoryPlan again = place(m.table(), {&p});
  EXPECT_EQ(plan.offsets, again.offsets);
}

// On one stream the definition can be checked pair by pair: buffers whose intervals of use meet have disjoint
// bytes.
TEST(Placement, RandomProgramsOnOneStreamAreTightAndNeverShareLiveBytes) {
  const int seed = testing::random_seed();
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(testing::rerun(seed + round));
    std::mt19937 random(static_cast<unsigned>(seed + round));
    ProgramMaker m;
    const int num_buffers = 2 + static_cast<int>(random() % 60);
    const int num_ops = 2 + static_cast<int>(random() % 40);
    std::vector<Buffer> buffers;
    buffers.reserve(at(num_buffers));
    for (int b = 0; b < num_buffers; ++b)
      buffers.push_back(m.bytes("b" + std::to_string(b), 1 + random() % 5000));
    std::vector<std::vector<Access>> accesses(at(num_ops));
    std::vector<std::pair<int, int>> life;
    for (const Buffer b : buffers) {
      const int first = static_cast<int>(random() % at(num_ops));
      const int last =
          std::min(num_ops - 1, first + static_cast<int>(random() % (random() % 4 == 0 ? 40 : 5)));
      accesses[at(first)].push_back(writes(b));
      if (last > first) accesses[at(last)].push_back(reads(b));
      life.emplace_back(first, last);
    }
    for (int o = 0; o < num_ops; ++o) m.op("compute", "op" + std::to_string(o), accesses[at(o)]);
    const Program p = m.builder.finish();
    const MemoryPlan plan = place(m.table(), {&p});
    std::int64_t most = 0;
    for (int o = 0; o < num_ops; ++o) {
      std::int64_t live = 0;
      for (std::size_t b = 0; b < buffers.size(); ++b) {
        if (life[b].first <= o && o <= life[b].second) live += (m.table()[buffers[b]].bytes() + 63) / 64 * 64;
      }
      most = std::max(most, live);
    }
    EXPECT_EQ(plan.programs[0].largest_live_bytes[0], most);
    EXPECT_LE(plan.arena_bytes[0], most + most / 10);
    for (std::size_t a = 0; a < buffers.size(); ++a) {
      EXPECT_EQ(offset(plan, buffers[a]) % 64, 0);
      EXPECT_LE(offset(plan, buffers[a]) + m.table()[buffers[a]].bytes(), plan.arena_bytes[0]);
      for (std::size_t b = a + 1; b < buffers.size(); ++b) {
        const bool meet = life[a].first <= life[b].second && life[b].first <= life[a].second;
        if (meet) {
          ASSERT_FALSE(overlap(m.table(), plan, buffers[a], buffers[b]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace planalto
