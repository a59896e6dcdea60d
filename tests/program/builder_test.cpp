// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/program_maker.h"

namespace planalto {
namespace {

using ::testing::ElementsAre;
using testing::ProgramMaker;
using testing::reads;
using testing::updates;
using testing::writes;

std::vector<std::string> names(const Program& p) {
  std::vector<std::string> result;
  for (const Op& op : p.ops) result.push_back(op.name);
  return result;
}

void emit(Builder& b, const std::string& name, std::vector<Access> accesses, bool keep = false) {
  Op op;
  op.name = name;
  op.accesses = std::move(accesses);
  op.keep = keep;
  b.emit(std::move(op));
}

TEST(Builder, ScopesPrefixOpsAndBuffers) {
  ProgramMaker m;
  Builder& b = m.builder;
  {
    auto layer = b.scope("layers.3");
    auto moe = b.scope("moe");
    const Buffer x = b.transient("act", DType::f32, 2, 2);
    EXPECT_EQ(b.info(x).name, "layers.3.moe.act");
    emit(b, "gate_up", {writes(x)}, true);
  }
  emit(b, "after", {}, true);
  EXPECT_THAT(names(b.finish()), ElementsAre("layers.3.moe.gate_up", "after"));
}

TEST(Builder, OpsWhoseResultsNobodyReadsAreRemoved) {
  ProgramMaker m;
  const Buffer used = m.bytes("used", 1);
  const Buffer tail = m.bytes("tail", 1);
  const Buffer tail2 = m.bytes("tail2", 1);
  const Buffer out = m.persistent("out", DType::u8, 1);
  emit(m.builder, "used", {writes(used)});
  emit(m.builder, "tail", {writes(tail), reads(used)});
  emit(m.builder, "tail2", {writes(tail2), reads(tail)});
  emit(m.builder, "out", {updates(out), reads(used)});
  EXPECT_THAT(names(m.builder.finish()), ElementsAre("used", "out"));
}

TEST(Builder, AWriteThatTheNextIterationReadsIsAlive) {
  ProgramMaker m;
  const Buffer carried = m.bytes("carried", 1);
  const Buffer dead = m.bytes("dead", 1);
  const Buffer out = m.persistent("out", DType::u8, 1);
  emit(m.builder, "first", {writes(carried)});
  m.builder.begin_repeat(2);
  emit(m.builder, "dead", {writes(dead)});
  emit(m.builder, "out", {writes(out), reads(carried)});
  emit(m.builder, "next", {writes(carried)});
  m.builder.end_repeat();
  const Program p = m.builder.finish();
  EXPECT_THAT(names(p), ElementsAre("first", "out", "next"));
  EXPECT_EQ(p.repeats[0].first, 1);
  EXPECT_EQ(p.repeats[0].last, 3);
}

// Emits an op for each thing that it is told about one buffer.
class Reporter : public Listener {
 public:
  explicit Reporter(Buffer b) : buffer_(b) {}
  void before_first_use(Builder& b, Buffer x) override {
    if (x == buffer_) emit(b, "first", {reads(x)}, true);
  }
  void after_last_use(Builder& b, Buffer x) override {
    if (x == buffer_) emit(b, "last", {reads(x)}, true);
  }
  void gradient_complete(Builder& b, Buffer x) override {
    if (x == buffer_) emit(b, "complete", {reads(x)}, true);
  }
  void at_end(Builder& b) override { emit(b, "end", {}, true); }

 private:
  Buffer buffer_;
};

TEST(Builder, ListenersAreToldOnceAndWhatTheyEmitStandsThere) {
  ProgramMaker m;
  const Buffer grad = m.persistent("grad", DType::f32, 1, Role::gradient);
  Reporter reporter(grad);
  m.builder.add_listener(&reporter);
  m.op("compute", "before", {});
  m.op("compute", "write", {writes(grad)});
  m.op("side", "both", {reads(grad), updates(grad)});
  m.op("compute", "read", {reads(grad), reads(grad)});
  m.op("compute", "after", {});
  const Program p = m.builder.finish();
  EXPECT_THAT(names(p),
              ElementsAre("before", "first", "write", "both", "complete", "read", "last", "after", "end"));
  EXPECT_EQ(p.ops[4].stream, p.ops[3].stream);
}

TEST(Builder, ARegionIsOnePlaceToListeners) {
  ProgramMaker m;
  const Buffer grad = m.persistent("grad", DType::f32, 1, Role::gradient);
  Reporter reporter(grad);
  m.builder.add_listener(&reporter);
  m.op("compute", "before", {});
  m.builder.begin_repeat(3);
  m.op("compute", "other", {});
  m.op("compute", "add", {updates(grad)});
  m.builder.end_repeat();
  m.op("compute", "after", {});
  const Program p = m.builder.finish();
  EXPECT_THAT(names(p), ElementsAre("before", "first", "other", "add", "complete", "last", "after", "end"));
  EXPECT_EQ(p.repeats[0].first, 2);
  EXPECT_EQ(p.repeats[0].last, 4);
  for (const int outside : {1, 4, 5}) EXPECT_EQ(p.ops[static_cast<std::size_t>(outside)].repeat, -1);
}

TEST(Builder, TheFirstWriteOfAGradientOverwritesTheOthersAccumulate) {
  ProgramMaker m;
  const Buffer grad = m.persistent("grad", DType::f32, 1, Role::gradient);
  EXPECT_FALSE(m.builder.accumulate(grad));
  EXPECT_TRUE(m.builder.accumulate(grad));
}

}  // namespace
}  // namespace planalto
