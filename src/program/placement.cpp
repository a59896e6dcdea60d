// SPDX-License-Identifier: Apache-2.0
#include "program/placement.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "program/lifetime.h"
#include "program/order.h"
#include "program/pack.h"

namespace planalto {

namespace {

constexpr int kNumTiers = 3;
constexpr int kSeveral = -1;
// Ops at which the live sum of a program with several streams is completed to a largest set, highest sums
// first.
constexpr std::size_t kOpsExamined = 64;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::int64_t slot_stride(const BufferInfo& info) {
  return info.slots == 1 ? 0 : align_up(info.bytes());
}
std::int64_t placed_bytes(const BufferInfo& info) {
  return align_up(info.bytes()) * info.slots;
}

// How a transient is used by its program.
struct Life {
  Buffer buffer{};
  int start = 0, end = 0;  // first and last op in program order; a whole region where it lives through one
  std::vector<std::vector<int>>
      firsts;             // by stream: the op that uses it first; where regions may be skipped, each that may
  std::vector<int> last;  // by stream: the last op that uses it, -1: none
  std::vector<int> regions;     // in which it is used
  bool iteration_only = false;  // begins and ends inside one iteration of a region
  bool from_start = false;      // holds what the caller put there before the program
  int stream = kSeveral;        // of all its uses
};

class ProgramPlacement {
 public:
  ProgramPlacement(const BufferTable& table, const Program& program)
      : table_(table), program_(program), order_(program), by_buffer_(at(table.size()), -1) {
    for (int o = 0; o < static_cast<int>(program.ops.size()); ++o) {
      const Op& op = program.ops[at(o)];
      for (const Access& a : op.accesses) note_use(o, a);
      if (op.repeat < 0 || !program.repeats[at(op.repeat)].trip_count.valid()) continue;
      note_use(o, {.buffer = program.repeats[at(op.repeat)].trip_count});  // read by its stream at the entry
    }
    const std::vector<char> in_iteration = lives_in_iteration(table, program);
    for (Life& life : lives_) {
      life.iteration_only = in_iteration[at(life.buffer.id)] != 0;
      if (!life.iteration_only) live_through_regions(life);
      if (life.from_start) life.start = 0;
    }
  }

  ProgramPlan place_all(MemoryPlan& plan) {
    ProgramPlan result;
    for (int tier = 0; tier < kNumTiers; ++tier) place_tier(static_cast<Tier>(tier), plan, result);
    return result;
  }

 private:
  void note_use(int o, const Access& a) {
    const BufferInfo& info = table_[a.buffer];
    if (info.persistent) return;
    PLANALTO_CHECK(info.program == program_.index,
                   "buffer {} belongs to program {}, and op {} of program {} uses it", info.name,
                   info.program, program_.ops[at(o)].name, program_.index);
    int& index = by_buffer_[at(a.buffer.id)];
    const Op& op = program_.ops[at(o)];
    if (index < 0) {
      index = static_cast<int>(lives_.size());
      Life life;
      life.buffer = a.buffer;
      life.start = o;
      life.stream = op.stream;
      life.firsts.resize(program_.streams.size());
      life.last.assign(program_.streams.size(), -1);
      life.from_start = filled_by_caller(info, op, a.buffer);
      lives_.push_back(std::move(life));
    }
    Life& life = lives_[at(index)];
    life.end = o;
    note_first(life.firsts[at(op.stream)], o);
    life.last[at(op.stream)] = o;
    if (life.stream != op.stream) life.stream = kSeveral;
    if (op.repeat >= 0 && (life.regions.empty() || life.regions.back() != op.repeat))
      life.regions.push_back(op.repeat);
  }

  void note_first(std::vector<int>& firsts, int o) const {
    if (!firsts.empty()) {
      const int region = program_.ops[at(firsts.back())].repeat;
      if (region < 0 || region == program_.ops[at(o)].repeat ||
          !program_.repeats[at(region)].may_be_skipped())
        return;
    }
    firsts.push_back(o);
  }

  void live_through_regions(Life& life) {
    for (const int r : life.regions) {
      life.start = std::min(life.start, program_.repeats[at(r)].first);
      life.end = std::max(life.end, program_.repeats[at(r)].last - 1);
    }
  }

  template <class Before>
  bool all_uses(const Life& a, const Life& b, Before before) const {
    for (const int p : a.last) {
      if (p < 0) continue;
      for (const std::vector<int>& firsts : b.firsts) {
        for (const int o : firsts) {
          if (!before(p, o)) return false;
        }
      }
    }
    return true;
  }

  // Whether a and b, of which a starts first in program order, may be in use at one time.
  bool conflict(const Life& a, const Life& b) const {
    if (b.start <= a.end) return true;
    if (a.stream == b.stream && a.stream != kSeveral) return false;
    if (!a.iteration_only || !b.iteration_only || a.regions != b.regions) {
      return !all_uses(a, b, [&](int p, int o) { return order_.before(p, o); });
    }
    // a of an iteration, b of that iteration, a of the next: each must be over before the next begins.
    return !all_uses(a, b, [&](int p, int o) { return order_.before_in_iteration(p, o); }) ||
           !all_uses(b, a, [&](int p, int o) { return order_.before_next_iteration(p, o); });
  }

  int blemish(const Life& life) const {
    const BufferInfo& info = table_[life.buffer];
    if (info.role == Role::workspace) return 4;
    if (info.role == Role::exchange) return 3;
    if (info.role == Role::input) return 2;
    bool always_written = life.regions.empty();
    for (const int r : life.regions)
      always_written = always_written || !program_.repeats[at(r)].may_be_skipped();
    return always_written ? 0 : 1;
  }

  void place_tier(Tier tier, MemoryPlan& plan, ProgramPlan& result) {
    std::vector<const Life*> lives;
    for (const Life& life : lives_) {
      if (table_[life.buffer].tier == tier) lives.push_back(&life);
    }
    std::stable_sort(lives.begin(), lives.end(),
                     [](const Life* a, const Life* b) { return a->start < b->start; });
    std::vector<Block> blocks;
    blocks.reserve(lives.size());
    for (const Life* life : lives) {
      blocks.push_back({placed_bytes(table_[life->buffer]), life->start, life->end, blemish(*life)});
    }
    Conflicts conflicts(lives.size());
    for (std::size_t i = 0; i < lives.size(); ++i) {
      for (std::size_t j = i + 1; j < lives.size(); ++j) {
        if (conflict(*lives[i], *lives[j])) {
          conflicts.add(i, j);
        } else if (program_.streams.size() == 1) {
          break;
        }
      }
    }
    int peak_op = -1;
    const std::int64_t live = largest_live(blocks, conflicts, peak_op);
    const Packing packing = pack(blocks, conflicts, live);
    const std::size_t t = static_cast<std::size_t>(tier);
    result.largest_live_bytes[t] = live;
    result.transient_bytes[t] = blocks.empty() ? 0 : packing.extent;
    if (tier == Tier::device) result.peak_op = peak_op;
    for (std::size_t i = 0; i < lives.size(); ++i) {
      plan.offsets[at(lives[i]->buffer.id)] = plan.persistent_bytes[t] + packing.offsets[i];
    }
  }

  // Buffers that live at one op in program order are all in conflict with each other; with several streams
  // others may be in conflict with all of them too. Any such set is a lower bound of every placement.
  std::int64_t largest_live(const std::vector<Block>& blocks, const Conflicts& conflicts,
                            int& peak_op) const {
    const std::size_t num_ops = program_.ops.size();
    std::vector<std::int64_t> live(num_ops + 1, 0);
    for (const Block& b : blocks) {
      live[at(b.start)] += b.bytes;
      live[at(b.end) + 1] -= b.bytes;
    }
    std::partial_sum(live.begin(), live.end(), live.begin());
    live.resize(num_ops);
    if (blocks.empty()) return 0;
    std::vector<std::size_t> ops(num_ops);
    std::iota(ops.begin(), ops.end(), std::size_t{0});
    std::stable_sort(ops.begin(), ops.end(), [&](std::size_t a, std::size_t b) { return live[a] > live[b]; });
    std::int64_t best = live[ops[0]];
    peak_op = static_cast<int>(ops[0]);
    if (program_.streams.size() == 1) return best;
    std::vector<std::size_t> by_size(blocks.size());
    std::iota(by_size.begin(), by_size.end(), std::size_t{0});
    std::stable_sort(by_size.begin(), by_size.end(),
                     [&](std::size_t a, std::size_t b) { return blocks[a].bytes > blocks[b].bytes; });
    for (std::size_t k = 0; k < std::min(ops.size(), kOpsExamined); ++k) {
      const std::int64_t sum =
          live[ops[k]] + others_beside(static_cast<int>(ops[k]), blocks, conflicts, by_size);
      if (sum <= best) continue;
      best = sum;
      peak_op = static_cast<int>(ops[k]);
    }
    return best;
  }

  static std::int64_t others_beside(int op, const std::vector<Block>& blocks, const Conflicts& conflicts,
                                    const std::vector<std::size_t>& by_size) {
    std::vector<std::size_t> members;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (blocks[b].start <= op && op <= blocks[b].end) members.push_back(b);
    }
    std::int64_t sum = 0;
    for (const std::size_t b : by_size) {
      if (blocks[b].start <= op && op <= blocks[b].end) continue;
      if (!std::all_of(members.begin(), members.end(), [&](std::size_t m) { return conflicts.has(b, m); }))
        continue;
      members.push_back(b);
      sum += blocks[b].bytes;
    }
    return sum;
  }

  const BufferTable& table_;
  const Program& program_;
  ProgramOrder order_;
  std::vector<int> by_buffer_;  // index into lives_, -1: not used
  std::vector<Life> lives_;
};

// Scratch, inputs and statistics first, so that the last byte belongs to a buffer that is written completely.
int persistent_rank(Role role) {
  switch (role) {
    case Role::workspace:
      return 0;
    case Role::exchange:
      return 1;
    case Role::input:
      return 2;
    case Role::statistic:
      return 3;
    case Role::boundary:
      return 4;
    case Role::activation:
      return 5;
    case Role::optimizer_state:
      return 6;
    case Role::gradient:
      return 7;
    case Role::parameter:
      return 8;
  }
  return 0;
}

void place_persistent(const BufferTable& table, MemoryPlan& plan) {
  std::vector<Buffer> buffers;
  for (std::int32_t id = 0; id < table.size(); ++id) {
    if (table[{id}].persistent) buffers.push_back({id});
  }
  // By name, not by id: the order in which programs were built leaves no trace.
  std::sort(buffers.begin(), buffers.end(), [&](Buffer a, Buffer b) {
    const BufferInfo& x = table[a];
    const BufferInfo& y = table[b];
    return std::make_tuple(persistent_rank(x.role), std::cref(x.name), a.id) <
           std::make_tuple(persistent_rank(y.role), std::cref(y.name), b.id);
  });
  for (const Buffer b : buffers) {
    std::int64_t& end = plan.persistent_bytes[static_cast<std::size_t>(table[b].tier)];
    plan.offsets[at(b.id)] = end;
    end += placed_bytes(table[b]);
  }
}

}  // namespace

MemoryPlan place(const BufferTable& table, const std::vector<const Program*>& programs) {
  MemoryPlan plan;
  plan.offsets.assign(at(table.size()), -1);
  plan.slot_strides.reserve(at(table.size()));
  for (const BufferInfo& info : table.infos()) plan.slot_strides.push_back(slot_stride(info));
  place_persistent(table, plan);
  for (const Program* program : programs) {
    plan.programs.push_back(ProgramPlacement(table, *program).place_all(plan));
    for (std::size_t t = 0; t < kNumTiers; ++t) {
      plan.arena_bytes[t] = std::max(plan.arena_bytes[t], plan.programs.back().transient_bytes[t]);
    }
  }
  for (std::size_t t = 0; t < kNumTiers; ++t) plan.arena_bytes[t] += plan.persistent_bytes[t];
  return plan;
}

}  // namespace planalto
