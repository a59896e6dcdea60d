// SPDX-License-Identifier: Apache-2.0
// Arenas, poison and what is measured with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "runtime/arena.h"
#include "runtime/executor.h"
#include "runtime/memory_limit.h"
#include "support/program_maker.h"

namespace planalto {
namespace {

using ::testing::HasSubstr;
using testing::ProgramMaker;
using testing::reads;
using testing::updates;
using testing::writes;

// A NaN whose most significant bit of the fraction is clear.
TEST(Poison, IsASignallingNanInFp32AndInBothHalvesAsBf16) {
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(kPoison)));
  EXPECT_EQ(kPoison & 0x00400000U, 0U);
  for (const std::uint32_t half : {kPoison & 0xFFFFU, kPoison >> 16}) {
    EXPECT_TRUE(std::isnan(to_float(bf16{static_cast<std::uint16_t>(half)})));
    EXPECT_EQ(half & 0x0040U, 0U);
  }
}

TEST(Poison, FindsTheLastElementThatWasWritten) {
  alignas(8) std::byte data[101];
  for (std::int64_t bytes = 0; bytes <= 101; ++bytes) {
    poison(data, 101);
    EXPECT_EQ(written_bytes(data, bytes, 1), 0);
    for (std::int64_t written = 0; written < bytes; ++written) {
      data[written] = std::byte{0};
      EXPECT_EQ(written_bytes(data, bytes, 1), written + 1);
      EXPECT_EQ(written_bytes(data, bytes, 4), std::min(bytes, written / 4 * 4 + 4));
    }
  }
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t size = 0;
  std::int64_t resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Arena, PagesCountOnceTheyAreTouched) {
  constexpr std::int64_t kBytes = std::int64_t{64} << 20;
  const std::int64_t before = resident_bytes();
  Arena arena(kBytes, Tier::device);
  EXPECT_LT(resident_bytes() - before, kBytes / 4);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.data()) % (std::uintptr_t{2} << 20), 0U);
  poison(arena.data(), arena.bytes());
  EXPECT_GT(resident_bytes() - before, kBytes * 3 / 4);
  Arena other = std::move(arena);
  EXPECT_EQ(written_bytes(other.data(), other.bytes(), 4), 0);
}

TEST(Arena, MoreThanTheLimitIsRefusedWithBothNumbers) {
  const std::int64_t asked = std::int64_t{1} << 50;
  try {
    const Arena arena(asked, Tier::host);
    ADD_FAILURE() << "2^50 bytes were mapped";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::memory);
    EXPECT_THAT(e.what(), HasSubstr("host arena"));
    EXPECT_THAT(e.what(), HasSubstr(std::to_string(asked)));
    EXPECT_THAT(e.what(), HasSubstr(std::to_string(memory_limit().bytes)));
  }
}

class FakeRoot {
 public:
  FakeRoot() : path_(std::filesystem::temp_directory_path() / ("planalto_root_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    write("/proc/meminfo", "MemTotal:       24000000 kB\nMemFree: 5 kB\n");
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(
        (path_.string() + file).substr(0, (path_.string() + file).rfind('/')));
    std::ofstream(path_.string() + file) << text;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(MemoryLimit, C037IsTheContainersNotTheHosts) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  {
    FakeRoot root;
    EXPECT_EQ(memory_limit(root.path()).bytes, 24000000LL * 1024);
    EXPECT_EQ(memory_limit(root.path()).source, "/proc/meminfo");
    root.write("/proc/self/cgroup", "0::/\n");
    root.write("/sys/fs/cgroup/memory.max", "2147483648\n");
    EXPECT_EQ(memory_limit(root.path()).bytes, 2 * kGiB);
    EXPECT_EQ(memory_limit(root.path()).source, "/sys/fs/cgroup/memory.max");
  }
  {
    FakeRoot root;  // nested: the smallest above the process holds
    root.write("/proc/self/cgroup", "0::/slice/job/step\n");
    root.write("/sys/fs/cgroup/slice/memory.max", "2147483648\n");
    root.write("/sys/fs/cgroup/slice/job/memory.max", "3221225472\n");
    root.write("/sys/fs/cgroup/slice/job/step/memory.max", "max\n");
    root.write("/sys/fs/cgroup/other/memory.max", "1\n");
    EXPECT_EQ(memory_limit(root.path()).bytes, 2 * kGiB);
    EXPECT_EQ(memory_limit(root.path()).source, "/sys/fs/cgroup/slice/memory.max");
  }
  {
    FakeRoot root;  // version 1; the path is the host's, the container sees its own group as the mount
    root.write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n");
    root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
    EXPECT_EQ(memory_limit(root.path()).bytes, 2 * kGiB);
    root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // no limit
    EXPECT_EQ(memory_limit(root.path()).source, "/proc/meminfo");
  }
}

void fill(const RunContext& c, Buffer b, std::int64_t bytes, int shift = 0) {
  std::memset(c.address(b, shift), 1, static_cast<std::size_t>(bytes));
}

TEST(Measure, WrittenEqualsPlannedAndNamesWhatWasNotFilled) {
  ProgramMaker m;
  const Buffer weight = m.persistent("weight", DType::f32, 33);
  const Buffer full = m.builder.transient("full", DType::f32, 16, 1);
  const Buffer partly = m.builder.transient("partly", DType::bf16, 100, 1, Role::workspace);
  const Buffer never = m.builder.transient("never", DType::u8, 300, 1, Role::workspace);
  m.op("compute", "write", {reads(weight), writes(full), writes(partly), writes(never)},
       [=](const RunContext& c) {
         fill(c, full, 64);
         fill(c, partly, 70);
       });
  const Program p = m.builder.finish();
  const MemoryPlan plan = place(m.table(), {&p});
  ThreadPool pool(1);
  Executor executor(m.table(), plan, {&p}, {.pool = &pool}, {.measure = true});
  std::memset(executor.address(weight), 0, 33 * 4);
  for (int run = 0; run < 2; ++run) executor.run(0);
  const MemoryReport report = executor.memory_report();
  EXPECT_EQ(report.persistent[0].planned, 132);
  EXPECT_EQ(report.persistent[0].written, 132);
  EXPECT_EQ(report.transient[0].planned, plan.arena_bytes[0]);
  EXPECT_EQ(report.transient[0].written, plan.arena_bytes[0]);
  ASSERT_EQ(report.underfilled.size(), 2U);
  EXPECT_EQ(report.underfilled[0].buffer, partly);
  EXPECT_EQ(report.underfilled[0].filled, 70);
  EXPECT_EQ(report.underfilled[0].capacity, 200);
  EXPECT_EQ(report.underfilled[1].buffer, never);
  EXPECT_EQ(report.underfilled[1].filled, 0);
}

// x and y share bytes in each iteration; what the one wrote is not taken for the other's.
TEST(Measure, LooksAtEachIterationOfARegion) {
  ProgramMaker m;
  const Buffer token = m.persistent("token", DType::u8, 64);
  const Buffer x = m.bytes("x", 640);
  const Buffer y = m.bytes("y", 640);
  m.builder.begin_repeat(6);
  const Buffer slots = m.builder.slotted("slots", DType::u8, 64, 1);
  m.op("compute", "x", {writes(x), writes(slots)}, [=](const RunContext& c) {
    fill(c, x, 640);
    fill(c, slots, 10 + c.iteration);
  });
  m.op("compute", "y", {writes(y), reads(slots), updates(token)},
       [=](const RunContext& c) { fill(c, y, c.iteration * 10); });
  m.builder.end_repeat();
  const Program p = m.builder.finish();
  const MemoryPlan plan = place(m.table(), {&p});
  ASSERT_EQ(plan.programs[0].transient_bytes[0], 640 + 2 * 64);
  ThreadPool pool(1);
  Executor executor(m.table(), plan, {&p}, {.pool = &pool}, {.measure = true});
  executor.run(0);
  const MemoryReport report = executor.memory_report();
  ASSERT_EQ(report.underfilled.size(), 3U);
  EXPECT_EQ(report.underfilled[0].buffer, token);
  EXPECT_EQ(report.underfilled[1].buffer, y);
  EXPECT_EQ(report.underfilled[1].filled, 50);
  EXPECT_EQ(report.underfilled[2].buffer, slots);
  EXPECT_EQ(report.underfilled[2].filled, 15);
}

// Idle rows of a buffer hold what was there before. An op that reads them by mistake gives the right sum on fresh pages.
TEST(Measure, C017RowsThatNobodyWroteAreNan) {
  ProgramMaker m;
  const Buffer rows = m.builder.transient("rows", DType::f32, 8, 1);
  const Buffer sum = m.persistent("sum", DType::f32, 2);
  m.op("compute", "five", {writes(rows)}, [=](const RunContext& c) {
    for (int i = 0; i < 5; ++i) c.data<float>(rows)[i] = 1;
  });
  m.op("compute", "sum", {reads(rows), writes(sum)}, [=](const RunContext& c) {
    float* s = c.data<float>(sum);
    s[0] = s[1] = 0;
    for (int i = 0; i < 5; ++i) s[0] += c.data<float>(rows)[i];
    for (int i = 0; i < 8; ++i) s[1] += 1.0F * c.data<float>(rows)[i];
  });
  const Program p = m.builder.finish();
  const MemoryPlan plan = place(m.table(), {&p});
  ThreadPool pool(1);
  for (const bool measure : {false, true}) {
    Executor executor(m.table(), plan, {&p}, {.pool = &pool}, {.measure = measure});
    for (int step = 0; step < 3; ++step) {
      executor.run(0);
      EXPECT_EQ(executor.data<float>(sum)[0], 5.0F);
      EXPECT_EQ(std::isnan(executor.data<float>(sum)[1]), measure);
    }
  }
}

TEST(Measure, WhatTheCallerFilledIsLeftAlone) {
  ProgramMaker m;
  const Buffer ids = m.builder.transient("ids", DType::i64, 4, 1, Role::input);
  const Buffer before = m.bytes("before", 64);
  const Buffer out = m.persistent("out", DType::i64, 1);
  m.op("compute", "other", {writes(before)}, [=](const RunContext& c) { fill(c, before, 64); });
  m.op("compute", "read", {reads(ids), writes(out)},
       [=](const RunContext& c) { *c.data<std::int64_t>(out) = c.data<std::int64_t>(ids)[3]; });
  const Program p = m.builder.finish();
  const MemoryPlan plan = place(m.table(), {&p});
  ThreadPool pool(1);
  Executor executor(m.table(), plan, {&p}, {.pool = &pool}, {.measure = true});
  executor.data<std::int64_t>(ids)[3] = 17;
  executor.run(0);
  EXPECT_EQ(*executor.data<std::int64_t>(out), 17);
}

}  // namespace
}  // namespace planalto
