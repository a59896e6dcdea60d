// SPDX-License-Identifier: Apache-2.0
// waits.cpp: what an op must wait for, from hazards through buffer slots.
// Invariants  the walk goes through a region four times: iterations 2 and 3 stand for all that follow
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "program/order.h"
#include "program/program.h"

namespace planalto {

namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// One execution of an op: outside the region that is being walked its index, inside it iteration + 1 in the
// upper half. Of two marks of one stream the greater one is the later execution.
using Mark = std::int64_t;
constexpr Mark kNone = -1;
constexpr int kIterationShift = 32;
constexpr Mark kOpMask = (Mark{1} << kIterationShift) - 1;
constexpr std::int64_t kWalkedIterations = 4;

class HazardWalk {
 public:
  HazardWalk(const BufferTable& table, Program& program)
      : table_(table), program_(program), num_streams_(static_cast<int>(program.streams.size())) {
    writers_.assign(at(table.size() * 2 * num_streams_), kNone);
    readers_ = writers_;
    program_.waits.assign(program_.ops.size(), {});
  }

  void run() {
    for (int o = 0; o < static_cast<int>(program_.ops.size()); ++o) {
      const int region = program_.ops[at(o)].repeat;
      if (region < 0) {
        visit(o, -1);
      } else {
        visit_region(program_.repeats[at(region)]);
        o = program_.repeats[at(region)].last - 1;
      }
    }
  }

 private:
  // Index of stream 0 in writers_ and readers_.
  std::size_t slot(const Access& a, std::int64_t iteration) const {
    const std::int64_t i =
        table_[a.buffer].slots == 1 ? 0 : (std::max<std::int64_t>(iteration, 0) + a.shift) & 1;
    return at((a.buffer.id * 2 + i) * num_streams_);
  }

  void need(int o, std::int64_t iteration, Mark mark) {
    if (mark == kNone) return;
    Wait wait{.op = static_cast<int>(mark & kOpMask), .lag = 0};
    const std::int64_t mark_iteration = (mark >> kIterationShift) - 1;
    if (mark_iteration >= 0)
      wait.lag = static_cast<int>(std::min<std::int64_t>(iteration - mark_iteration, 1));
    std::vector<Wait>& waits = program_.waits[at(o)];
    for (const Wait& w : waits) {
      if (w.op == wait.op && w.lag == wait.lag) return;
    }
    waits.push_back(wait);
  }

  void visit(int o, std::int64_t iteration) {
    const Op& op = program_.ops[at(o)];
    for (const Access& a : op.accesses) {
      const std::size_t first = slot(a, iteration);
      for (int t = 0; t < num_streams_; ++t) {
        if (t == op.stream) continue;
        need(o, iteration, writers_[first + at(t)]);
        if (a.kind != AccessKind::read) need(o, iteration, readers_[first + at(t)]);
      }
    }
    const Mark mark = ((iteration + 1) << kIterationShift) | o;
    for (const Access& a : op.accesses) {
      const std::size_t first = slot(a, iteration);
      if (a.kind == AccessKind::read) {
        readers_[first + at(op.stream)] = mark;
        continue;
      }
      // All earlier users are over when this op starts: to wait for it is to wait for them.
      std::fill_n(writers_.begin() + static_cast<std::ptrdiff_t>(first), num_streams_, kNone);
      std::fill_n(readers_.begin() + static_cast<std::ptrdiff_t>(first), num_streams_, kNone);
      writers_[first + at(op.stream)] = mark;
    }
  }

  // After a region the state is what any legal trip count may have left: per stream the latest of the
  // candidates.
  void visit_region(Repeat& repeat) {
    find_count_op(repeat);
    const std::int64_t trips =
        std::min(repeat.trip_count.valid() ? repeat.max_trips : repeat.fixed_trips, kWalkedIterations);
    std::vector<std::size_t> touched;
    for (int o = repeat.first; o < repeat.last; ++o) {
      for (const Access& a : program_.ops[at(o)].accesses) {
        for (int i = 0; i < 2 * num_streams_; ++i)
          touched.push_back(at(a.buffer.id) * 2 * at(num_streams_) + at(i));
      }
    }
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    std::vector<Mark> writers(touched.size(), kNone);
    std::vector<Mark> readers(touched.size(), kNone);
    for (std::int64_t iteration = 0; iteration <= trips; ++iteration) {
      if (may_end_after(repeat, iteration)) {
        for (std::size_t k = 0; k < touched.size(); ++k) {
          writers[k] = std::max(writers[k], without_iteration(writers_[touched[k]]));
          readers[k] = std::max(readers[k], without_iteration(readers_[touched[k]]));
        }
      }
      if (iteration == trips) break;
      for (int o = repeat.first; o < repeat.last; ++o) visit(o, iteration);
    }
    for (std::size_t k = 0; k < touched.size(); ++k) {
      writers_[touched[k]] = writers[k];
      readers_[touched[k]] = readers[k];
    }
    if (!repeat.trip_count.valid()) return;
    const std::size_t count = slot({.buffer = repeat.trip_count}, -1);
    for (int o = repeat.first; o < repeat.last; ++o) readers_[count + at(program_.ops[at(o)].stream)] = o;
  }

  static Mark without_iteration(Mark mark) { return mark == kNone ? kNone : mark & kOpMask; }

  // The last two walked iterations stand for even and odd trip counts beyond them.
  static bool may_end_after(const Repeat& repeat, std::int64_t iterations) {
    if (repeat.trip_count.valid()) return true;
    if (repeat.fixed_trips <= kWalkedIterations) return iterations == repeat.fixed_trips;
    return iterations >= kWalkedIterations - 1;
  }

  void find_count_op(Repeat& repeat) {
    repeat.count_op = -1;
    if (!repeat.trip_count.valid()) return;
    const std::size_t count = slot({.buffer = repeat.trip_count}, -1);
    for (int t = 0; t < num_streams_; ++t) {
      if (writers_[count + at(t)] == kNone) continue;
      PLANALTO_CHECK(repeat.count_op < 0, "program {}: trip count {} may have two last writers, {} and {}",
                     program_.name, table_[repeat.trip_count].name, program_.ops[at(repeat.count_op)].name,
                     program_.ops[at(writers_[count + at(t)])].name);
      repeat.count_op = static_cast<int>(writers_[count + at(t)]);
    }
    PLANALTO_CHECK(repeat.count_op < 0 || program_.ops[at(repeat.count_op)].repeat < 0,
                   "program {}: trip count {} is written inside a region, by {}", program_.name,
                   table_[repeat.trip_count].name, program_.ops[at(repeat.count_op)].name);
  }

  const BufferTable& table_;
  Program& program_;
  std::int64_t num_streams_;
  std::vector<Mark>
      writers_;  // by buffer, slot, stream: the last write that somebody may still have to wait for
  std::vector<Mark> readers_;
};

}  // namespace

void find_waits(const BufferTable& table, Program& program) {
  HazardWalk(table, program).run();
  ProgramOrder::remove_implied_waits(program);
}

}  // namespace planalto
