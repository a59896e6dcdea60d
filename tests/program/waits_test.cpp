// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "support/program_maker.h"

namespace planalto {

static bool operator==(const Wait& a, const Wait& b) {
  return a.op == b.op && a.lag == b.lag;
}
static std::ostream& operator<<(std::ostream& out, const Wait& w) {
  return out << w.op << "/" << w.lag;
}

namespace {

using testing::ProgramMaker;
using testing::reads;
using testing::updates;
using testing::writes;
using Waits = std::vector<Wait>;

TEST(Waits, NoneBetweenOpsOfOneStream) {
  ProgramMaker m;
  const Buffer x = m.bytes("x", 64);
  m.op("compute", "write", {writes(x)});
  m.op("compute", "read", {reads(x)});
  m.op("compute", "again", {updates(x)});
  const Program p = m.builder.finish();
  for (const Waits& w : p.waits) EXPECT_TRUE(w.empty());
}

TEST(Waits, ReadAfterWriteWriteAfterReadWriteAfterWrite) {
  ProgramMaker m;
  const Buffer x = m.bytes("x", 64);
  m.op("compute", "write", {writes(x)});   // 0
  m.op("copy", "read", {reads(x)});        // 1: read after write
  m.op("compute", "write2", {writes(x)});  // 2: write after read
  m.op("copy", "write3", {writes(x)});     // 3: write after write
  const Program p = m.builder.finish();
  EXPECT_EQ(p.waits[0], Waits{});
  EXPECT_EQ(p.waits[1], (Waits{{0, 0}}));
  EXPECT_EQ(p.waits[2], (Waits{{1, 0}}));
  EXPECT_EQ(p.waits[3], (Waits{{2, 0}}));
}

TEST(Waits, ReadersOfOneValueDoNotWaitForEachOther) {
  ProgramMaker m;
  const Buffer x = m.bytes("x", 64);
  m.op("compute", "write", {writes(x)});
  m.op("a", "read", {reads(x)});
  m.op("b", "read", {reads(x)});
  m.op("compute", "write2", {writes(x)});  // waits for both
  const Program p = m.builder.finish();
  EXPECT_EQ(p.waits[1], (Waits{{0, 0}}));
  EXPECT_EQ(p.waits[2], (Waits{{0, 0}}));
  EXPECT_EQ(p.waits[3], (Waits{{2, 0}, {1, 0}}));
}

TEST(Waits, LeavesOutWhatFollowsFromStreamOrderAndFromOtherWaits) {
  ProgramMaker m;
  const Buffer x = m.bytes("x", 64);
  const Buffer y = m.bytes("y", 64);
  const Buffer z = m.bytes("z", 64);
  m.op("compute", "x", {writes(x)});           // 0
  m.op("compute", "y", {writes(y)});           // 1
  m.op("copy", "both", {reads(x), reads(y)});  // 2: of one stream the later one is enough
  m.op("copy", "again", {reads(x)});           // 3: its stream has waited
  m.op("copy", "z", {writes(z)});              // 4
  m.op("third", "xz", {reads(x), reads(z)});   // 5: z was made by a stream that had waited for x
  const Program p = m.builder.finish();
  EXPECT_EQ(p.waits[2], (Waits{{1, 0}}));
  EXPECT_EQ(p.waits[3], Waits{});
  EXPECT_EQ(p.waits[5], (Waits{{4, 0}}));
}

TEST(Waits, ABufferOfOneSlotTiesTheStreamsOfARegionTogether) {
  ProgramMaker m;
  const Buffer x = m.bytes("x", 64);
  m.builder.begin_repeat(5);
  m.op("copy", "fetch", {writes(x)});  // 0: the use of the iteration before is over
  m.op("compute", "use", {reads(x)});  // 1
  m.builder.end_repeat();
  const Program p = m.builder.finish();
  EXPECT_EQ(p.waits[0], (Waits{{1, 1}}));
  EXPECT_EQ(p.waits[1], (Waits{{0, 0}}));
}

TEST(Waits, TwoSlotsAndAShiftLetAFetchRunOneIterationAhead) {
  ProgramMaker m;
  m.builder.begin_repeat(7);
  const Buffer x = m.builder.slotted("x", DType::u8, 64, 1);
  m.op("copy", "fetch_next", {writes(x, 1)});  // 0: writes the slot that iteration - 1 used
  m.op("compute", "use", {reads(x)});          // 1: written an iteration ago
  m.builder.end_repeat();
  const Program p = m.builder.finish();
  EXPECT_EQ(p.waits[0], (Waits{{1, 1}}));
  EXPECT_EQ(p.waits[1], (Waits{{0, 1}}));
}

TEST(Waits, AHazardOverTwoIterationsBecomesLagOne) {
  ProgramMaker m;
  m.builder.begin_repeat(7);
  const Buffer x = m.builder.slotted("x", DType::u8, 64, 1);
  m.op("copy", "fetch", {writes(x)});
  m.op("compute", "use", {reads(x)});
  m.builder.end_repeat();
  const Program p = m.builder.finish();
  EXPECT_EQ(p.waits[0], (Waits{{1, 1}}));
  EXPECT_EQ(p.waits[1], (Waits{{0, 0}}));
}

TEST(Waits, AcrossARegionThatMayBeSkippedTheOpBeforeItIsWaitedForToo) {
  for (const bool may_be_skipped : {false, true}) {
    ProgramMaker m;
    const Buffer x = m.bytes("x", 64);
    const Buffer trips = m.persistent("trips", DType::i64, 1);
    m.op("a", "before", {writes(x)});  // 0
    if (may_be_skipped) {
      m.builder.begin_repeat(trips, 3);
    } else {
      m.builder.begin_repeat(3);
    }
    m.op("b", "inside", {writes(x)});  // 1
    m.builder.end_repeat();
    m.op("compute", "after", {reads(x)});  // 2
    const Program p = m.builder.finish();
    EXPECT_EQ(p.waits[1], (Waits{{0, 0}}));
    EXPECT_EQ(p.waits[2], (may_be_skipped ? Waits{{1, 0}, {0, 0}} : Waits{{1, 0}}));
  }
}

TEST(Waits, TheTripCountIsReadByEveryStreamOfTheRegion) {
  ProgramMaker m;
  const Buffer trips = m.builder.transient("trips", DType::i64, 1, 1);
  const Buffer x = m.bytes("x", 64);
  m.op("compute", "count", {writes(trips)});  // 0
  m.builder.begin_repeat(trips, 4);
  m.op("copy", "work", {writes(x)});  // 1: its stream waits at the entry, not the op
  m.builder.end_repeat();
  m.op("compute", "recount", {writes(trips)});  // 2: only when the copy stream has read the count
  const Program p = m.builder.finish();
  EXPECT_EQ(p.repeats[0].count_op, 0);
  EXPECT_EQ(p.waits[1], Waits{});
  EXPECT_EQ(p.waits[2], (Waits{{1, 0}}));
}

TEST(Waits, OutsideARegionASlotIsThatOfIterationZero) {
  ProgramMaker m;
  m.builder.begin_repeat(1);
  const Buffer x = m.builder.slotted("x", DType::u8, 64, 1);
  m.op("compute", "slot_0", {reads(x)});     // 0
  m.op("compute", "slot_1", {reads(x, 1)});  // 1
  m.op("compute", "neither", {});            // 2
  m.builder.end_repeat();
  m.op("copy", "0", {writes(x)});      // 3
  m.op("third", "1", {writes(x, 1)});  // 4
  const Program p = m.builder.finish();
  EXPECT_EQ(p.waits[3], (Waits{{0, 0}}));
  EXPECT_EQ(p.waits[4], (Waits{{1, 0}}));
}

}  // namespace
}  // namespace planalto
