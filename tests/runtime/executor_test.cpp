// SPDX-License-Identifier: Apache-2.0
#include "runtime/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <string>

#include "support/allocation_counter.h"
#include "support/program_maker.h"

namespace planalto {
namespace {

using ::testing::HasSubstr;
using testing::ProgramMaker;
using testing::reads;
using testing::updates;
using testing::writes;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// A program with its plan and an executor of one worker.
struct Running {
  ProgramMaker& maker;
  Program program;
  MemoryPlan plan;
  ThreadPool pool{1};
  Executor executor;

  explicit Running(ProgramMaker& m, ExecutorOptions options = {})
      : maker(m),
        program(m.builder.finish()),
        plan(place(m.table(), {&program})),
        executor(m.table(), plan, {&program}, {.pool = &pool}, options) {}
};

TEST(Executor, RunsOpsInOrderOnTheCallersThread) {
  ProgramMaker m;
  const Buffer x = m.persistent("x", DType::i64, 4);
  const std::thread::id caller = std::this_thread::get_id();
  m.op("compute", "iota", {writes(x)}, [=](const RunContext& c) {
    std::iota(c.data<std::int64_t>(x), c.data<std::int64_t>(x) + 4, 1);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
  m.op("compute", "square", {updates(x)}, [=](const RunContext& c) {
    for (int i = 0; i < 4; ++i) c.data<std::int64_t>(x)[i] *= c.data<std::int64_t>(x)[i];
  });
  Running r(m);
  for (int run = 0; run < 3; ++run) {
    r.executor.run(0);
    EXPECT_EQ(r.executor.data<std::int64_t>(x)[3], 16);
  }
}

// Each of the two ops ends only when the other one has begun: it hangs if they cannot overlap in time.
TEST(Executor, OpsOfTwoStreamsOverlap) {
  ProgramMaker m;
  const Buffer x = m.persistent("x", DType::u8, 64);
  const Buffer y = m.persistent("y", DType::u8, 64);
  std::atomic<int> begun{0};
  const auto meet = [&](const RunContext&) {
    begun.fetch_add(1);
    while (begun.load() % 2 != 0) std::this_thread::yield();
  };
  m.op("compute", "one", {writes(x)}, meet);
  m.op("copy", "other", {writes(y)}, meet);
  Running r(m, {.time_ops = true});
  for (int run = 0; run < 10; ++run) {
    r.executor.run(0);
    const OpTime one = r.executor.op_times(0, 0)[0];
    const OpTime other = r.executor.op_times(0, 1)[0];
    EXPECT_LT(one.start_ns, other.end_ns);
    EXPECT_LT(other.start_ns, one.end_ns);
  }
  EXPECT_EQ(begun.load(), 20);
}

TEST(Executor, ARegionRunsAsOftenAsItsCountSaysOnEveryStream) {
  ProgramMaker m;
  const Buffer wanted = m.persistent("wanted", DType::i64, 1);
  const Buffer trips = m.builder.transient("trips", DType::i64, 1, 1);
  const Buffer sum = m.persistent("sum", DType::i64, 1);
  const Buffer copies = m.persistent("copies", DType::i64, 1);
  m.op("compute", "count", {reads(wanted), writes(trips), writes(sum), writes(copies)},
       [=](const RunContext& c) {
         *c.data<std::int64_t>(trips) = *c.data<std::int64_t>(wanted);
         *c.data<std::int64_t>(sum) = *c.data<std::int64_t>(copies) = 0;
       });
  m.builder.begin_repeat(trips, 100);
  const Buffer x = m.builder.slotted("x", DType::i64, 1, 1);
  m.op("copy", "fetch", {writes(x), updates(copies)}, [=](const RunContext& c) {
    *c.data<std::int64_t>(x) = c.iteration;
    ++*c.data<std::int64_t>(copies);
  });
  m.op("compute", "add", {reads(x), updates(sum)},
       [=](const RunContext& c) { *c.data<std::int64_t>(sum) += *c.data<std::int64_t>(x); });
  m.builder.end_repeat();
  const Buffer twice = m.persistent("twice", DType::i64, 1);
  m.op("third", "after", {reads(sum), writes(twice)},
       [=](const RunContext& c) { *c.data<std::int64_t>(twice) = 2 * *c.data<std::int64_t>(sum); });
  Running r(m);
  for (const std::int64_t n : {3, 0, 100, 1, 2}) {
    *r.executor.data<std::int64_t>(wanted) = n;
    r.executor.run(0);
    EXPECT_EQ(*r.executor.data<std::int64_t>(copies), n);
    EXPECT_EQ(*r.executor.data<std::int64_t>(twice), n * (n - 1));
  }
  for (const std::int64_t n : {-1, 101}) {
    *r.executor.data<std::int64_t>(wanted) = n;
    try {
      r.executor.run(0);
      ADD_FAILURE() << n << " trips were accepted";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(),
                  HasSubstr("trip count trips of the region that begins here says " + std::to_string(n)));
      EXPECT_THAT(e.what(), HasSubstr("0 to 100"));
    }
  }
}

TEST(Executor, AnErrorNamesOpAndStreamStopsTheOthersAndLeavesTheExecutorUsable) {
  ProgramMaker m;
  const Buffer x = m.persistent("x", DType::u8, 64);
  std::atomic<int> failing{0};
  std::atomic<int> after{0};
  m.builder.begin_repeat(10);
  m.op("copy", "make", {writes(x)}, [&](const RunContext& c) {
    if (failing.load() == 1 && c.iteration == 3) fail(ErrorKind::io, "the disk is gone");
    if (failing.load() == 2) throw std::runtime_error("plain");
    if (failing.load() == 3) throw 5;
  });
  m.op("compute", "use", {reads(x)});
  m.builder.end_repeat();
  m.op("compute", "last", {reads(x)}, [&](const RunContext&) { ++after; });
  Running r(m);
  const auto message = [&](int how, ErrorKind kind) {
    failing = how;
    try {
      r.executor.run(0);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), kind);
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(message(1, ErrorKind::io), "program test, op make, stream copy: the disk is gone");
    EXPECT_THAT(message(2, ErrorKind::internal), HasSubstr("op make, stream copy: plain"));
    EXPECT_THAT(message(3, ErrorKind::internal), HasSubstr("unknown type"));
    EXPECT_EQ(after.load(), round);
    failing = 0;
    r.executor.run(0);
    EXPECT_EQ(after.load(), round + 1);
  }
}

TEST(Executor, ProgramsShareBuffersAndThreads) {
  BufferTable table;
  ProgramMaker a(table, 0, "a");
  ProgramMaker b(table, 1, "b");
  const Buffer x = a.persistent("x", DType::i64, 1);
  a.op("compute", "set", {writes(x)}, [=](const RunContext& c) { *c.data<std::int64_t>(x) = 5; });
  b.op("copy", "add", {updates(x)}, [=](const RunContext& c) { *c.data<std::int64_t>(x) += 1; });
  b.op("third", "double", {updates(x)}, [=](const RunContext& c) { *c.data<std::int64_t>(x) *= 2; });
  const Program p = a.builder.finish();
  const Program q = b.builder.finish();
  const MemoryPlan plan = place(table, {&p, &q});
  ThreadPool pool(2);
  Executor executor(table, plan, {&p, &q}, {.pool = &pool});
  executor.run(0);
  executor.run(1);
  executor.run(1);
  EXPECT_EQ(*executor.data<std::int64_t>(x), ((5 + 1) * 2 + 1) * 2);
}

TEST(Executor, StreamZeroHasTheRanksPoolAndOthersOneThread) {
  ProgramMaker m;
  ThreadPool pool(3);
  int threads[2] = {0, 0};
  m.op("compute", "a", {}, [&](const RunContext& c) { threads[0] = c.exec->pool->num_threads(); });
  m.op("side", "b", {}, [&](const RunContext& c) { threads[1] = c.exec->pool->num_threads(); });
  const Program p = m.builder.finish();
  const MemoryPlan plan = place(m.table(), {&p});
  Executor executor(m.table(), plan, {&p}, {.pool = &pool});
  executor.run(0);
  EXPECT_EQ(threads[0], 3);
  EXPECT_EQ(threads[1], 1);
}

TEST(Executor, RunAllocatesNothing) {
  if (!testing::allocations_can_be_counted())
    GTEST_SKIP() << "a sanitizer stands where allocations are counted";
  {
    testing::AllocationCounter counter;
    auto* p = new int(3);
    const std::int64_t seen = counter.stop();
    delete p;
    ASSERT_EQ(seen, 1);
  }
  for (const bool debug : {false, true}) {
    ProgramMaker m;
    const Buffer sum = m.persistent("sum", DType::i64, 1);
    m.op("compute", "zero", {writes(sum)}, [=](const RunContext& c) { *c.data<std::int64_t>(sum) = 0; });
    m.builder.begin_repeat(50);
    const Buffer x = m.builder.slotted("x", DType::i64, 1, 1);
    m.op("copy", "fetch", {writes(x)}, [=](const RunContext& c) { *c.data<std::int64_t>(x) = c.iteration; });
    m.op("compute", "add", {reads(x), updates(sum)},
         [=](const RunContext& c) { *c.data<std::int64_t>(sum) += *c.data<std::int64_t>(x); });
    m.builder.end_repeat();
    Running r(m, {.measure = debug, .time_ops = debug});
    testing::AllocationCounter counter;
    for (int run = 0; run < 20; ++run) r.executor.run(0);
    EXPECT_EQ(counter.stop(), 0);
    EXPECT_EQ(*r.executor.data<std::int64_t>(sum), 49 * 50 / 2);
  }
}

TEST(Executor, TimesEachIteration) {
  ProgramMaker m;
  const Buffer x = m.persistent("x", DType::u8, 64);
  m.builder.begin_repeat(5);
  m.op("compute", "a", {writes(x)});
  m.builder.end_repeat();
  Running r(m, {.time_ops = true});
  r.executor.run(0);
  const auto times = r.executor.op_times(0, 0);
  ASSERT_EQ(times.size(), at(5));
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_GT(times[i].start_ns, 0);
    EXPECT_GE(times[i].end_ns, times[i].start_ns);
    EXPECT_GE(times[i].start_ns, i > 0 ? times[i - 1].end_ns : 1);
  }
}

// Stands for a group of two whose other rank always contributes `other`.
class AddsOther final : public Communicator {
 public:
  explicit AddsOther(std::int64_t other) : other_(other) {}
  int size() const override { return 2; }
  int rank() const override { return 0; }
  void all_reduce(const planalto::Run& v, Reduction) override {
    for (std::int64_t i = 0; i < v.count; ++i) static_cast<std::int64_t*>(v.data)[i] += other_;
  }
  void reduce_scatter(const ConstRun&, const planalto::Run&, Reduction) override {}
  void all_gather(const ConstRun&, const planalto::Run&) override {}
  void all_to_all_v(const ConstRun&, std::span<const std::int64_t>, const planalto::Run&,
                    std::span<const std::int64_t>) override {}
  void send(const ConstRun&, int) override {}
  void receive(const planalto::Run&, int) override {}
  void barrier() override {}
  void abort(const char*) noexcept override {}

 private:
  std::int64_t other_;
};

struct WithGroups {
  ProgramMaker m;
  Buffer x = m.persistent("x", DType::i64, 1);

  explicit WithGroups(std::vector<int> ranks) {
    const int data = m.builder.group({.name = "data", .ranks = ranks, .rank = 0});
    const int world = m.builder.group({.name = "world", .ranks = ranks, .rank = 0});
    EXPECT_EQ(m.builder.group({.name = "data", .ranks = ranks, .rank = 0}), data);
    m.op("compute", "one", {writes(x)}, [=, b = x](const RunContext& c) { *c.data<std::int64_t>(b) = 1; });
    for (const int group : {world, data}) {
      m.op("compute", "reduce", {updates(x)}, [=, b = x](const RunContext& c) {
        c.communicators[group]->all_reduce({c.data<void>(b), DType::i64, 1}, Reduction::sum);
      });
    }
  }
};

TEST(Executor, GivesEachOpTheCommunicatorOfItsGroup) {
  WithGroups g({0, 1});
  std::vector<std::string> made;
  ExecutorOptions options;
  options.make_communicator = [&](const CommGroup& group) {
    made.push_back(group.name);
    return std::make_unique<AddsOther>(group.name == "data" ? 10 : 100);
  };
  Running r(g.m, options);
  r.executor.run(0);
  EXPECT_EQ(*r.executor.data<std::int64_t>(g.x), 111);
  EXPECT_THAT(made, ::testing::ElementsAre("data", "world"));
}

TEST(Executor, AGroupOfOneNeedsNobody) {
  WithGroups g({0});
  Running r(g.m);
  r.executor.run(0);
  EXPECT_EQ(*r.executor.data<std::int64_t>(g.x), 1);
  WithGroups two({0, 1});
  EXPECT_THROW(Running other(two.m), Error);
}

}  // namespace
}  // namespace planalto
