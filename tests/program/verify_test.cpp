// SPDX-License-Identifier: Apache-2.0
// Each test breaks a sound program in one way and expects the ops and buffers to be named.
#include "program/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/program_maker.h"

namespace planalto {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ProgramMaker;
using testing::reads;
using testing::updates;
using testing::writes;

std::string complaint(const BufferTable& table, const Program& p, const MemoryPlan& plan) {
  try {
    verify(table, p, plan);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::internal);
    return e.what();
  }
  return "";
}

std::string complaint(ProgramMaker& m) {
  const Program p = m.builder.finish();
  return complaint(m.table(), p, place(m.table(), {&p}));
}

// Two streams, a region with a trip count, slots, a carried sum.
struct Sound {
  ProgramMaker m;
  Buffer trips = m.builder.transient("trips", DType::i64, 1, 1);
  Buffer sum = m.bytes("sum", 64);
  Buffer slots, a, b;
  Program p;
  MemoryPlan plan;

  Sound() {
    m.op("compute", "count", {writes(trips), writes(sum)});  // 0
    m.builder.begin_repeat(trips, 8);
    slots = m.builder.slotted("slots", DType::u8, 64, 1);
    a = m.bytes("a", 64);
    b = m.bytes("b", 64);
    m.op("copy", "fetch", {writes(slots)});            // 1
    m.op("compute", "a", {writes(a), reads(slots)});   // 2
    m.op("compute", "b", {writes(b), reads(a)});       // 3
    m.op("compute", "add", {updates(sum), reads(b)});  // 4
    m.builder.end_repeat();
    m.op("copy", "store", {reads(sum)});  // 5
    p = m.builder.finish();
    plan = place(m.table(), {&p});
  }
  std::string complaint() const { return planalto::complaint(const_cast<Sound*>(this)->m.table(), p, plan); }
  std::int64_t& offset(Buffer x) { return plan.offsets[static_cast<std::size_t>(x.id)]; }
};

TEST(Verify, ASoundProgramPasses) {
  EXPECT_EQ(Sound().complaint(), "");
}

TEST(Verify, EveryWaitIsNeeded) {
  const Sound sound;
  int waits = 0;
  for (std::size_t o = 0; o < sound.p.ops.size(); ++o) {
    for (std::size_t w = 0; w < sound.p.waits[o].size(); ++w) {
      Sound broken;
      broken.p.waits[o].erase(broken.p.waits[o].begin() + static_cast<std::ptrdiff_t>(w));
      EXPECT_THAT(broken.complaint(), HasSubstr("neither waits for the other"))
          << "op " << o << ", wait " << w;
      ++waits;
    }
  }
  EXPECT_GE(waits, 3);
}

TEST(Verify, TheTripCountIsWaitedFor) {
  Sound s;
  s.p.repeats[0].count_op = -1;
  EXPECT_THAT(s.complaint(),
              AllOf(HasSubstr("trip count trips"), HasSubstr("written by count"), HasSubstr("no op")));
}

TEST(Verify, ATripCountOfNobody) {
  ProgramMaker m;
  const Buffer trips = m.builder.transient("trips", DType::i64, 1, 1);
  m.builder.begin_repeat(trips, 8);
  m.op("compute", "work", {reads(trips)});
  m.builder.end_repeat();
  EXPECT_THAT(complaint(m), HasSubstr("trip count trips of the region of op work is not written before it"));
}

TEST(Verify, ReadsBeforeWrites) {
  ProgramMaker m;
  const Buffer x = m.bytes("x", 64);
  m.op("compute", "use", {reads(x)});
  EXPECT_THAT(complaint(m), HasSubstr("op use reads buffer x, which nothing wrote before it"));
}

TEST(Verify, AnUpdateReadsToo) {
  ProgramMaker m;
  const Buffer x = m.bytes("x", 64);
  m.op("compute", "add", {updates(x)});
  EXPECT_THAT(complaint(m), HasSubstr("op add reads buffer x"));
}

TEST(Verify, PersistentBuffersAndInputsHoldValuesFromTheStart) {
  ProgramMaker m;
  const Buffer x = m.persistent("x", DType::u8, 64);
  const Buffer ids = m.bytes("ids", 64, Role::input);
  m.op("compute", "add", {updates(x), reads(ids)});
  EXPECT_EQ(complaint(m), "");
}

TEST(Verify, WhatOnlyARegionWroteIsMissingWhenItIsSkipped) {
  for (const bool fixed : {true, false}) {
    ProgramMaker m;
    const Buffer trips = m.persistent("trips", DType::i64, 1);
    const Buffer x = m.bytes("x", 64);
    if (fixed) m.builder.begin_repeat(2);
    if (!fixed) m.builder.begin_repeat(trips, 2);
    m.op("compute", "write", {writes(x)});
    m.builder.end_repeat();
    m.op("compute", "use", {reads(x)});
    const std::string expected =
        "program test: op use reads buffer x, which nothing wrote before it (regions of 0 trips)";
    EXPECT_EQ(complaint(m), fixed ? "" : expected);
  }
}

TEST(Verify, TheSecondSlotIsWrittenBeforeItIsRead) {
  ProgramMaker m;
  m.builder.begin_repeat(3);
  const Buffer x = m.builder.slotted("x", DType::u8, 64, 1);
  m.op("compute", "use_last", {reads(x, -1)});  // legal: nothing to read in iteration 0
  m.op("compute", "use_next", {reads(x, 1)});   // slot 1 in iteration 0
  m.op("compute", "write", {writes(x)});
  m.builder.end_repeat();
  EXPECT_THAT(complaint(m), HasSubstr("op use_next reads buffer x"));
}

// In iteration 0 the body leaves the slot of the iteration before alone, so that nothing is in slot 1.
TEST(Verify, AnAbsentSlotIsNotWritten) {
  ProgramMaker m;
  m.builder.begin_repeat(3);
  const Buffer x = m.builder.slotted("x", DType::u8, 64, 1);
  m.op("compute", "write_last", {writes(x, -1)});
  m.op("compute", "use_next", {reads(x, 1)});
  m.builder.end_repeat();
  EXPECT_THAT(complaint(m), HasSubstr("op use_next reads buffer x"));
}

TEST(Verify, LiveBuffersAtTheSameBytes) {
  Sound s;
  ASSERT_NE(s.offset(s.b), s.offset(s.a));
  s.offset(s.b) = s.offset(s.sum);
  EXPECT_THAT(s.complaint(), HasSubstr("op add reads buffer sum, whose bytes op b overwrote"));
}

TEST(Verify, StreamsThatOverlapInTimeAtTheSameBytes) {
  Sound s;
  s.offset(s.b) = s.offset(s.slots) + 64;  // the slot that fetch fills beside it
  EXPECT_THAT(s.complaint(),
              AllOf(HasSubstr("op fetch (stream copy) uses buffer slots"), HasSubstr("at the same bytes")));
}

TEST(Verify, PersistentBuffersShareWithNobody) {
  ProgramMaker m;
  const Buffer w = m.persistent("w", DType::u8, 64);
  const Buffer x = m.bytes("x", 64);
  m.op("compute", "write", {writes(x)});
  const Program p = m.builder.finish();
  MemoryPlan plan = place(m.table(), {&p});
  plan.offsets[static_cast<std::size_t>(x.id)] = plan.offsets[static_cast<std::size_t>(w.id)];
  EXPECT_THAT(complaint(m.table(), p, plan), HasSubstr("buffers w and x share bytes"));
}

TEST(Verify, OffsetsLieInTheArena) {
  Sound s;
  s.offset(s.a) = s.plan.arena_bytes[0];
  EXPECT_THAT(s.complaint(), HasSubstr("buffer a ends at"));
  s.offset(s.a) = 32;
  EXPECT_THAT(s.complaint(), HasSubstr("not multiples of 64"));
  s.offset(s.a) = -1;
  EXPECT_THAT(s.complaint(), HasSubstr("op a uses buffer a, which has no place"));
}

TEST(Verify, WaitsPointBack) {
  Sound s;
  s.p.waits[1].push_back({.op = 4, .lag = 0});
  EXPECT_THAT(s.complaint(), HasSubstr("op fetch waits for op add, which comes later"));
  Sound t;
  t.p.waits[5].push_back({.op = 4, .lag = 1});
  EXPECT_THAT(t.complaint(), HasSubstr("op store waits for op add with lag 1"));
  Sound u;
  u.p.waits[3].push_back({.op = 2, .lag = 0});
  EXPECT_THAT(u.complaint(), HasSubstr("op b waits for op a of its own stream"));
}

TEST(Verify, FingerprintsDifferWhereRanksWouldDisagree) {
  const Sound same;
  const std::uint64_t expected = fingerprint(const_cast<Sound&>(same).m.table(), same.p);
  const auto changed = [&](auto change) {
    Sound s;
    EXPECT_EQ(fingerprint(s.m.table(), s.p), expected);
    change(s);
    return fingerprint(s.m.table(), s.p);
  };
  EXPECT_NE(changed([](Sound& s) { s.p.ops[2].name += "x"; }), expected);
  EXPECT_NE(changed([](Sound& s) { s.p.ops[2].kind = "other"; }), expected);
  EXPECT_NE(changed([](Sound& s) { std::swap(s.p.ops[2], s.p.ops[3]); }), expected);
  EXPECT_NE(changed([](Sound& s) { s.p.ops[2].accesses.pop_back(); }), expected);
  EXPECT_NE(changed([](Sound& s) { s.p.waits[2].clear(); }), expected);
  EXPECT_NE(changed([](Sound& s) { s.p.repeats[0].max_trips = 9; }), expected);
  EXPECT_NE(changed([](Sound& s) { s.p.groups.push_back({.name = "world"}); }), expected);
  EXPECT_NE(changed([](Sound& s) { s.p.ops[2].group = 0; }), expected);
  EXPECT_NE(changed([](Sound& s) { s.p.target.isa = static_cast<kernels::Isa>(2); }), expected);
}

// Ranks stand in different places of the same groups, and their programs are the same.
TEST(Verify, FingerprintIsTheSameOnAllRanksOfAGroup) {
  const auto of_rank = [](int rank, std::vector<int> ranks) {
    Sound s;
    s.p.groups.push_back({.name = "world", .ranks = std::move(ranks), .rank = rank});
    return fingerprint(s.m.table(), s.p);
  };
  EXPECT_EQ(of_rank(0, {0, 1}), of_rank(1, {0, 1}));
  EXPECT_NE(of_rank(0, {0, 1}), of_rank(0, {0, 2}));
}

TEST(Verify, CollectivesOfAGroupOnTwoStreams) {
  Sound s;
  s.p.groups = {{.name = "world"}, {.name = "data"}};
  s.p.ops[0].group = s.p.ops[2].group = 0;
  s.p.ops[1].group = s.p.ops[5].group = 1;
  EXPECT_EQ(s.complaint(), "");
  s.p.ops[5].group = 0;
  EXPECT_THAT(s.complaint(), AllOf(HasSubstr("ops count and store are collectives of group world"),
                                   HasSubstr("streams 0 and 1; legal: one stream a group")));
  s.p.ops[5].group = 2;
  EXPECT_THAT(s.complaint(), HasSubstr("op store is a collective of group 2 of 2"));
}

}  // namespace
}  // namespace planalto
