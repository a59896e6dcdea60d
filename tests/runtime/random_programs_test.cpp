// SPDX-License-Identifier: Apache-2.0
// Random programs on three streams, placed, verified and run with random delays, give what the serial execution in program
// order gives: every op sees the same bytes, every persistent buffer ends the same.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "program/verify.h"
#include "runtime/executor.h"
#include "support/program_maker.h"
#include "support/random_seed.h"

namespace planalto {
namespace {

using testing::ProgramMaker;
using testing::reads;
using testing::updates;
using testing::writes;

constexpr std::int64_t kMostTrips = 4;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15ULL)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 29)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 32);
}

// Where the bodies of one program write down what they saw.
struct Log {
  std::vector<std::uint64_t> seen;  // by op and iteration
  std::uint64_t delays = 0;         // 0: none; else decides which executions dawdle
};

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {
    for (int i = 0; i < 3; ++i) add("persistent" + std::to_string(i), true);
    const int transients = 2 + below(10);
    for (int i = 0; i < transients; ++i) add("transient" + std::to_string(i), false);
    wanted_ = maker.persistent("wanted", DType::i64, 1, Role::input);
    trips_ = maker.table().add({.name = "trips", .dtype = DType::i64, .rows = 1, .program = 0});
    const int parts = 1 + below(4);
    for (int i = 0; i < parts; ++i) {
      const int ops = below(6);
      for (int k = 0; k < ops; ++k) emit(random_accesses(pool_, defined_));
      if (below(2) == 0) region();
    }
    for (int k = 0; k < 2; ++k) emit(random_accesses(pool_, defined_));
    log->seen.assign(at(num_ops_ * (kMostTrips + 1)), 0);
  }

  Buffer wanted() const { return wanted_; }

  ProgramMaker maker;
  std::shared_ptr<Log> log = std::make_shared<Log>();

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  void add(const std::string& name, bool persistent) {
    const std::int64_t rows = 1 + below(40);
    const Buffer b = maker.table().add({.name = name,
                                        .dtype = DType::i64,
                                        .rows = rows,
                                        .persistent = persistent,
                                        .program = persistent ? -1 : 0});
    pool_.push_back(b);
    defined_.push_back(persistent);
  }

  std::string stream() {
    const char* const names[] = {"compute", "copy", "third"};
    return names[below(3)];
  }

  // One to three buffers of the pool, each read or updated only when something was written there; notes what is written.
  std::vector<Access> random_accesses(const std::vector<Buffer>& pool, std::vector<char>& defined) {
    std::vector<Access> result;
    const int count = 1 + below(3);
    for (int i = 0; i < count; ++i) {
      const std::size_t k = at(below(static_cast<int>(pool.size())));
      const bool again =
          std::any_of(result.begin(), result.end(), [&](const Access& a) { return a.buffer == pool[k]; });
      if (again) continue;
      const int kind = defined[k] != 0 ? below(4) : 3;
      result.push_back(kind < 2 ? reads(pool[k]) : kind == 2 ? updates(pool[k]) : writes(pool[k]));
      defined[k] = 1;
    }
    return result;
  }

  void region() {
    const bool fixed = below(3) == 0;
    const std::int64_t fixed_trips = below(4);
    std::vector<Access> own;  // what an op of the body may do with two-slot buffers
    std::vector<Access> duties;
    const int slotted = below(3);
    for (int i = 0; i < slotted; ++i) {
      const Buffer b = maker.table().add({.name = "slots" + std::to_string(num_slotted_++),
                                          .dtype = DType::i64,
                                          .rows = 1 + below(40),
                                          .slots = 2,
                                          .program = 0});
      const bool prefetched = below(2) == 0;
      if (prefetched) {
        emit({writes(b)});  // iteration 0 finds it, each iteration writes for the next
        duties.push_back(writes(b, 1));
        own.push_back(reads(b));
      } else {
        duties.push_back(writes(b));
        own.push_back(reads(b, -1));
      }
    }
    if (!fixed) count();
    if (fixed) maker.builder.begin_repeat(fixed_trips);
    if (!fixed) maker.builder.begin_repeat(trips_, kMostTrips);
    std::vector<char> inside = defined_;
    const int ops = 1 + below(7);
    for (int k = 0; k < ops; ++k) {
      std::vector<Access> accesses = random_accesses(pool_, inside);
      if (!own.empty() && below(2) == 0) accesses.push_back(own[at(below(static_cast<int>(own.size())))]);
      if (!duties.empty() && (below(2) == 0 || k == ops - 1)) {
        const Access duty = duties.back();
        duties.pop_back();
        accesses.insert(accesses.begin(), duty);        // first: emit() drops a second mention
        own.push_back(reads(duty.buffer, duty.shift));  // from here on in the body
        if (below(2) == 0) own.push_back(updates(duty.buffer, duty.shift));
      }
      emit(accesses);
    }
    for (const Access& duty : duties) emit({duty});
    maker.builder.end_repeat();
    if (fixed && fixed_trips > 0) defined_ = inside;
  }

  void count() {
    const Buffer from = wanted_;
    const Buffer to = trips_;
    ++num_ops_;
    maker.op(stream(), "count", {reads(from), writes(to)},
             [=](const RunContext& c) { *c.data<std::int64_t>(to) = *c.data<std::int64_t>(from); });
  }

  void emit(const std::vector<Access>& accesses) {
    const int op = num_ops_++;
    // An op may name a buffer once: a write and a read of one slot in one op say nothing of their order.
    std::vector<Access> once;
    for (const Access& a : accesses) {
      const bool known =
          std::any_of(once.begin(), once.end(), [&](const Access& b) { return a.buffer == b.buffer; });
      if (!known) once.push_back(a);
    }
    maker.op(stream(), "op" + std::to_string(op), once,
             [this, op, once, l = log](const RunContext& c) { body(op, once, *l, c); });
  }

  void body(int op, const std::vector<Access>& accesses, Log& l, const RunContext& c) const {
    std::uint64_t hash = mix(static_cast<std::uint64_t>(op), static_cast<std::uint64_t>(c.iteration));
    if (l.delays != 0) dawdle(mix(hash, l.delays));
    const auto skipped = [&](const Access& a) {
      return maker_table()[a.buffer].slots == 2 && c.iteration + a.shift < 0;
    };
    for (const Access& a : accesses) {
      if (a.kind == AccessKind::write || skipped(a)) continue;
      const auto* data = c.data<std::uint64_t>(a.buffer, a.shift);
      for (std::int64_t i = 0; i < maker_table()[a.buffer].rows; ++i) hash = mix(hash, data[i]);
    }
    l.seen[at(op * (kMostTrips + 1) + c.iteration)] = hash;
    for (const Access& a : accesses) {
      if (a.kind == AccessKind::read || skipped(a)) continue;
      auto* data = c.data<std::uint64_t>(a.buffer, a.shift);
      for (std::int64_t i = 0; i < maker_table()[a.buffer].rows; ++i)
        data[i] = mix(hash, static_cast<std::uint64_t>(i));
    }
  }

  static void dawdle(std::uint64_t hash) {
    if (hash % 8 == 0) std::this_thread::yield();
    if (hash % 8 == 1) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(hash / 8 % 30);
      while (std::chrono::steady_clock::now() < end) {
      }
    }
    if (hash % 256 == 2) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  const BufferTable& maker_table() const { return maker.builder.table(); }

  std::mt19937 random_;
  std::vector<Buffer> pool_;
  std::vector<char> defined_;
  Buffer wanted_, trips_;
  int num_ops_ = 0;
  int num_slotted_ = 0;
};

// Every buffer has memory of its own, ops run in program order.
class Serial {
 public:
  explicit Serial(const BufferTable& table) {
    for (const BufferInfo& info : table.infos()) {
      memory_.emplace_back(at(2 * info.rows), 0x5A5A5A5A5A5A5A5AULL);
      base_.push_back(memory_.back().data());
      strides_.push_back(info.slots == 2 ? info.bytes() : 0);
    }
  }
  void run(const Program& p) {
    RunContext c;
    c.base = base_.data();
    c.slot_stride = strides_.data();
    for (std::size_t o = 0; o < p.ops.size(); ++o) {
      const int region = p.ops[o].repeat;
      if (region < 0) {
        c.iteration = 0;
        p.ops[o].run(c);
        continue;
      }
      const Repeat& r = p.repeats[at(region)];
      const std::int64_t trips =
          r.trip_count.valid() ? static_cast<std::int64_t>(data(r.trip_count)[0]) : r.fixed_trips;
      for (c.iteration = 0; c.iteration < trips; ++c.iteration) {
        for (int i = r.first; i < r.last; ++i) p.ops[at(i)].run(c);
      }
      o = at(r.last - 1);
    }
  }
  std::uint64_t* data(Buffer b) { return memory_[at(b.id)].data(); }

 private:
  std::vector<std::vector<std::uint64_t>> memory_;
  std::vector<void*> base_;
  std::vector<std::int64_t> strides_;
};

void set_persistent(const BufferTable& table, Buffer wanted, std::int64_t trips,
                    const std::function<void*(Buffer)>& address) {
  for (std::int32_t id = 0; id < table.size(); ++id) {
    const BufferInfo& info = table[{id}];
    if (!info.persistent) continue;
    auto* data = static_cast<std::uint64_t*>(address({id}));
    for (std::int64_t i = 0; i < info.rows; ++i)
      data[i] = mix(static_cast<std::uint64_t>(id), static_cast<std::uint64_t>(i));
  }
  *static_cast<std::int64_t*>(address(wanted)) = trips;
}

void compare_with_serial(unsigned seed) {
  Generator g(seed);
  const BufferTable& table = g.maker.table();
  const Program p = g.maker.builder.finish();
  const MemoryPlan plan = place(table, {&p});
  ASSERT_NO_THROW(verify(table, p, plan));
  ASSERT_GE(plan.programs[0].transient_bytes[0], plan.programs[0].largest_live_bytes[0]);
  ThreadPool pool(1);
  Executor executor(table, plan, {&p}, {.pool = &pool}, {.measure = seed % 4 == 0});
  const int runs = seed % 8 == 1 ? 2 : 1;
  for (int run = 0; run < runs; ++run) {
    const std::int64_t trips =
        static_cast<std::int64_t>(mix(seed, static_cast<std::uint64_t>(run)) % (kMostTrips + 1));
    std::fill(g.log->seen.begin(), g.log->seen.end(), 0);
    g.log->delays = 0;
    Serial serial(table);
    set_persistent(table, g.wanted(), trips, [&](Buffer b) { return serial.data(b); });
    serial.run(p);
    const std::vector<std::uint64_t> expected = g.log->seen;
    std::fill(g.log->seen.begin(), g.log->seen.end(), 0);
    g.log->delays = mix(seed, 77 + static_cast<std::uint64_t>(run));
    set_persistent(table, g.wanted(), trips, [&](Buffer b) { return executor.address(b); });
    executor.run(0);
    ASSERT_EQ(g.log->seen, expected) << trips << " trips";
    for (std::int32_t id = 0; id < table.size(); ++id) {
      const BufferInfo& info = table[{id}];
      if (!info.persistent) continue;
      ASSERT_EQ(std::memcmp(executor.address({id}), serial.data({id}), at(info.bytes())), 0) << info.name;
    }
  }
}

// More with --gtest_repeat=N, each time from a new seed. On a busy machine the threads wait for the scheduler at every event.
constexpr int kPrograms = 2500;

TEST(RandomPrograms, GiveWhatTheSerialExecutionGives) {
  const int seed = testing::random_seed();
  for (int i = 0; i < kPrograms && !HasFatalFailure(); ++i) {
    SCOPED_TRACE(testing::rerun(seed + i));
    compare_with_serial(static_cast<unsigned>(seed + i));
  }
}

}  // namespace
}  // namespace planalto
