// SPDX-License-Identifier: Apache-2.0
#include "program/verify.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/error.h"

namespace planalto {

namespace {

constexpr std::int64_t kMostTrips = 3;
constexpr std::int64_t kAlignment = 64;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// What can be seen without running anything: indices, ranges, directions, offsets.
class ShapeCheck {
 public:
  ShapeCheck(const BufferTable& table, const Program& program, const MemoryPlan& plan)
      : table_(table), program_(program), plan_(plan) {}

  void run() const {
    require(plan_.offsets.size() == at(table_.size()) && plan_.slot_strides.size() == at(table_.size()),
            "the plan was made for a table of {} buffers, this one has {}", plan_.offsets.size(),
            table_.size());
    require(program_.waits.size() == program_.ops.size(), "waits were found for {} of {} ops",
            program_.waits.size(), program_.ops.size());
    for (int r = 0; r < static_cast<int>(program_.repeats.size()); ++r) check_region(r);
    for (int o = 0; o < static_cast<int>(program_.ops.size()); ++o) {
      check_op(o);
      for (const Wait& w : program_.waits[at(o)]) check_wait(o, w);
    }
    check_collectives();
    for (std::int32_t id = 0; id < table_.size(); ++id) check_offset(Buffer{id});
  }

 private:
  template <class... Args>
  void require(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    if (condition) return;
    fail(ErrorKind::internal, "program {}: {}", program_.name,
         fmt::format(format, std::forward<Args>(args)...));
  }

  const Op& op(int o) const { return program_.ops[at(o)]; }

  void check_region(int r) const {
    const Repeat& repeat = program_.repeats[at(r)];
    const int num_ops = static_cast<int>(program_.ops.size());
    require(repeat.first >= 0 && repeat.first <= repeat.last && repeat.last <= num_ops,
            "region {} holds ops [{}, {}) of {}", r, repeat.first, repeat.last, num_ops);
    require(repeat.fixed_trips >= 0 && repeat.max_trips >= 0, "region {} runs {} times, at most {}", r,
            repeat.fixed_trips, repeat.max_trips);
    for (int o = repeat.first; o < repeat.last; ++o) {
      require(op(o).repeat == r, "op {} stands in region {} and says {}", op(o).name, r, op(o).repeat);
    }
    if (!repeat.trip_count.valid() || repeat.first == repeat.last) return;
    const BufferInfo& count = table_[repeat.trip_count];
    require(count.dtype == DType::i64 && count.elements() >= 1 && count.slots == 1 &&
                plan_.offsets[at(repeat.trip_count.id)] >= 0,
            "trip count {} of the region of op {} is {} [{}, {}] in {} slots; legal: one placed i64",
            count.name, op(repeat.first).name, to_string(count.dtype), count.rows, count.cols, count.slots);
    int writer = -1;
    for (int o = 0; o < repeat.last; ++o) {
      for (const Access& a : op(o).accesses) {
        if (a.buffer != repeat.trip_count || a.kind == AccessKind::read) continue;
        require(op(o).repeat < 0, "op {} writes trip count {} inside a region", op(o).name, count.name);
        writer = o;
      }
    }
    require(writer == repeat.count_op,
            "trip count {} of the region of op {} is last written by {}, and streams wait for {}", count.name,
            op(repeat.first).name, name(writer), name(repeat.count_op));
    require(writer >= 0 || count.persistent || count.role == Role::input,
            "trip count {} of the region of op {} is not written before it", count.name,
            op(repeat.first).name);
  }

  std::string name(int o) const { return o < 0 ? "no op" : op(o).name; }

  void check_op(int o) const {
    const Op& x = op(o);
    require(x.stream >= 0 && at(x.stream) < program_.streams.size(), "op {} runs on stream {} of {}", x.name,
            x.stream, program_.streams.size());
    require(x.repeat < static_cast<int>(program_.repeats.size()), "op {} stands in region {} of {}", x.name,
            x.repeat, program_.repeats.size());
    if (x.repeat >= 0) {
      const Repeat& repeat = program_.repeats[at(x.repeat)];
      require(repeat.first <= o && o < repeat.last,
              "op {} says that it stands in region {}, which it does not", x.name, x.repeat);
    }
    for (const Access& a : x.accesses) {
      require(a.buffer.id >= 0 && a.buffer.id < table_.size(), "op {} uses buffer {} of {}", x.name,
              a.buffer.id, table_.size());
      const BufferInfo& info = table_[a.buffer];
      require(a.shift >= -1 && a.shift <= 1, "op {} uses buffer {} with shift {}; legal: -1 to 1", x.name,
              info.name, a.shift);
      require(info.persistent || info.program == program_.index, "op {} uses buffer {} of program {}", x.name,
              info.name, info.program);
      require(plan_.offsets[at(a.buffer.id)] >= 0, "op {} uses buffer {}, which has no place", x.name,
              info.name);
    }
  }

  // Collectives of one group meet their partners by order alone, and only a stream keeps order.
  void check_collectives() const {
    std::vector<int> first(program_.groups.size(), -1);
    for (int o = 0; o < static_cast<int>(program_.ops.size()); ++o) {
      const int g = op(o).group;
      if (g < 0) continue;
      require(at(g) < program_.groups.size(), "op {} is a collective of group {} of {}", op(o).name, g,
              program_.groups.size());
      if (first[at(g)] < 0) first[at(g)] = o;
      const Op& other = op(first[at(g)]);
      require(op(o).stream == other.stream,
              "ops {} and {} are collectives of group {} on streams {} and {}; legal: one stream a group",
              other.name, op(o).name, program_.groups[at(g)].name, other.stream, op(o).stream);
    }
  }

  void check_wait(int o, const Wait& w) const {
    require(w.op >= 0 && at(w.op) < program_.ops.size(), "op {} waits for op {} of {}", op(o).name, w.op,
            program_.ops.size());
    const bool one_region = op(o).repeat >= 0 && op(o).repeat == op(w.op).repeat;
    require(w.lag == 0 || (w.lag == 1 && one_region),
            "op {} waits for op {} with lag {}; legal: 0, inside a region 1", op(o).name, op(w.op).name,
            w.lag);
    require(w.lag == 1 || w.op < o, "op {} waits for op {}, which comes later", op(o).name, op(w.op).name);
    require(op(w.op).stream != op(o).stream, "op {} waits for op {} of its own stream", op(o).name,
            op(w.op).name);
  }

  void check_offset(Buffer b) const {
    const BufferInfo& info = table_[b];
    const std::int64_t offset = plan_.offsets[at(b.id)];
    const std::int64_t stride = plan_.slot_strides[at(b.id)];
    if (offset < 0) {
      require(!info.persistent, "persistent buffer {} has no place", info.name);
      return;
    }
    require(offset % kAlignment == 0 && stride % kAlignment == 0,
            "buffer {} at offset {}, stride {}: not multiples of {}", info.name, offset, stride, kAlignment);
    require(info.slots == 1 ? stride == 0 : stride >= info.bytes(),
            "slots of buffer {} have {} bytes and a stride of {}", info.name, info.bytes(), stride);
    const std::int64_t arena = plan_.arena_bytes[static_cast<std::size_t>(info.tier)];
    require(offset + stride + info.bytes() <= arena, "buffer {} ends at {} in a {} arena of {} bytes",
            info.name, offset + stride + info.bytes(), to_string(info.tier), arena);
  }

  const BufferTable& table_;
  const Program& program_;
  const MemoryPlan& plan_;
};

// A slot of a buffer as a range of bytes. Item 2 * id + slot.
struct Item {
  Tier tier = Tier::device;
  std::int64_t begin = 0, end = 0;
};

// By item: the other items that share bytes with it. Only what the program uses, and persistent buffers, which share with none.
std::vector<std::vector<int>> find_overlaps(const BufferTable& table, const Program& program,
                                            const MemoryPlan& plan) {
  std::vector<Item> items(at(2 * table.size()));
  std::vector<char> used(at(table.size()), 0);
  for (const Op& op : program.ops) {
    for (const Access& a : op.accesses) used[at(a.buffer.id)] = 1;
  }
  std::vector<int> order;
  for (std::int32_t id = 0; id < table.size(); ++id) {
    const BufferInfo& info = table[{id}];
    if (info.bytes() == 0 || (used[at(id)] == 0 && !info.persistent)) continue;
    for (int slot = 0; slot < info.slots; ++slot) {
      const std::int64_t begin = plan.offsets[at(id)] + slot * plan.slot_strides[at(id)];
      items[at(2 * id + slot)] = {info.tier, begin, begin + info.bytes()};
      order.push_back(2 * id + slot);
    }
  }
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    const Item& x = items[at(a)];
    const Item& y = items[at(b)];
    if (x.tier != y.tier) return x.tier < y.tier;
    return x.begin != y.begin ? x.begin < y.begin : a < b;
  });
  std::vector<std::vector<int>> overlaps(items.size());
  std::vector<int> open;  // items that may reach into the ones to come
  for (const int b : order) {
    std::erase_if(open, [&](int a) {
      return items[at(a)].tier != items[at(b)].tier || items[at(a)].end <= items[at(b)].begin;
    });
    for (const int a : open) {
      const BufferInfo& x = table[{a / 2}];
      const BufferInfo& y = table[{b / 2}];
      if (x.persistent || y.persistent) {
        fail(ErrorKind::internal,
             "program {}: buffers {} and {} share bytes, and a persistent one is always in use", program.name,
             x.name, y.name);
      }
      overlaps[at(a)].push_back(b);
      overlaps[at(b)].push_back(a);
    }
    open.push_back(b);
  }
  return overlaps;
}

// The program unrolled for one trip count: every execution with what its stream knows to be over when it starts.
class UnrolledCheck {
 public:
  UnrolledCheck(const BufferTable& table, const Program& program,
                const std::vector<std::vector<int>>& overlaps, std::int64_t trips)
      : table_(table),
        program_(program),
        overlaps_(overlaps),
        trips_(trips),
        num_streams_(program.streams.size()) {
    const Clock nothing(num_streams_, -1);
    clocks_.assign(num_streams_, nothing);
    past_.resize(num_streams_);
    last_execution_.assign(program.ops.size(), {});
    this_iteration_.assign(program.ops.size(), {});
    iteration_before_.assign(program.ops.size(), {});
    writes_.assign(overlaps.size() * num_streams_, -1);
    reads_ = writes_;
    value_.assign(overlaps.size(), kNothing);
    for (std::int32_t id = 0; id < table.size(); ++id) {
      if (table[{id}].persistent || table[{id}].role == Role::input)
        value_[at(2 * id)] = value_[at(2 * id + 1)] = kGood;
    }
  }

  void run() {
    for (int o = 0; o < static_cast<int>(program_.ops.size()); ++o) {
      const int r = program_.ops[at(o)].repeat;
      if (r < 0) {
        execute(o, 0);
        continue;
      }
      const Repeat& repeat = program_.repeats[at(r)];
      const std::int64_t trips = std::min(
          repeat.trip_count.valid() ? std::min(trips_, repeat.max_trips) : repeat.fixed_trips, kMostTrips);
      enter(repeat);
      for (std::int64_t i = 0; i < trips; ++i) {
        for (int k = repeat.first; k < repeat.last; ++k) execute(k, i);
        for (int k = repeat.first; k < repeat.last; ++k) iteration_before_[at(k)] = this_iteration_[at(k)];
      }
      o = repeat.last - 1;
    }
  }

 private:
  using Clock = std::vector<int>;  // by stream: the last event known to be over
  // The contents of an item: nothing was written, they are good, or the op that wrote other bytes there.
  static constexpr int kNothing = -2;
  static constexpr int kGood = -1;
  struct Event {
    int stream = -1;  // -1: there was none
    int number = -1;  // on its stream
    Clock known;      // after it
  };

  static void join(Clock& into, const Clock& other) {
    for (std::size_t t = 0; t < into.size(); ++t) into[t] = std::max(into[t], other[t]);
  }

  Event add_event(int stream, int op) {
    past_[at(stream)].push_back(op);
    Event e{stream, static_cast<int>(past_[at(stream)].size()) - 1, {}};
    clocks_[at(stream)][at(stream)] = e.number;
    e.known = clocks_[at(stream)];
    return e;
  }

  // Each stream of the region reads the trip count. Until it runs an op of the region, whoever waits for that op waits for this.
  void enter(const Repeat& repeat) {
    std::vector<Event> entered(num_streams_);
    for (int o = repeat.first; o < repeat.last; ++o) {
      const int s = program_.ops[at(o)].stream;
      if (entered[at(s)].stream < 0) {
        if (repeat.trip_count.valid() && repeat.count_op >= 0)
          join(clocks_[at(s)], last_execution_[at(repeat.count_op)].known);
        entered[at(s)] = add_event(s, o);
        if (repeat.trip_count.valid()) touch(s, o, {.buffer = repeat.trip_count}, 0);
      }
      last_execution_[at(o)] = entered[at(s)];
    }
  }

  void execute(int o, std::int64_t iteration) {
    const Op& op = program_.ops[at(o)];
    for (const Wait& w : program_.waits[at(o)]) {
      const bool inside = op.repeat >= 0 && program_.ops[at(w.op)].repeat == op.repeat;
      const Event& e =
          inside ? (w.lag == 0 ? this_iteration_ : iteration_before_)[at(w.op)] : last_execution_[at(w.op)];
      if (inside && w.lag == 1 && iteration == 0) continue;
      join(clocks_[at(op.stream)], e.known);
    }
    last_execution_[at(o)] = this_iteration_[at(o)] = add_event(op.stream, o);
    for (const Access& a : op.accesses) {
      if (a.kind != AccessKind::write) touch(op.stream, o, a, iteration);
    }
    for (const Access& a : op.accesses) {
      if (a.kind == AccessKind::write) touch(op.stream, o, a, iteration);
    }
  }

  void touch(int stream, int o, const Access& a, std::int64_t iteration) {
    const BufferInfo& info = table_[a.buffer];
    const int slot = info.slots == 1 ? 0 : static_cast<int>((iteration + a.shift) & 1);
    const int item = 2 * a.buffer.id + slot;
    check_order(stream, o, a, item, item);
    for (const int other : overlaps_[at(item)]) check_order(stream, o, a, item, other);
    // In iteration 0 there is no slot of the iteration before: the body leaves it alone.
    const bool absent = info.slots == 2 && iteration + a.shift < 0;
    if (a.kind != AccessKind::write && !absent) check_value(o, item);
    std::vector<int>& events = a.kind == AccessKind::read ? reads_ : writes_;
    events[at(item) * num_streams_ + at(stream)] = static_cast<int>(past_[at(stream)].size()) - 1;
    if (a.kind == AccessKind::read || absent) return;
    value_[at(item)] = kGood;
    for (const int other : overlaps_[at(item)]) {
      if (value_[at(other)] == kGood) value_[at(other)] = o;
    }
  }

  void check_value(int o, int item) const {
    const int value = value_[at(item)];
    if (value == kGood) return;
    const std::string& reader = program_.ops[at(o)].name;
    const std::string& buffer = table_[{item / 2}].name;
    if (value == kNothing) {
      fail(ErrorKind::internal,
           "program {}: op {} reads buffer {}, which nothing wrote before it (regions of {} trips)",
           program_.name, reader, buffer, trips_);
    }
    fail(ErrorKind::internal,
         "program {}: op {} reads buffer {}, whose bytes op {} overwrote (regions of {} trips)",
         program_.name, reader, buffer, program_.ops[at(value)].name, trips_);
  }

  // Earlier uses of `other` by other streams are over, those that a conflict is possible with.
  void check_order(int stream, int o, const Access& a, int item, int other) const {
    const Clock& known = clocks_[at(stream)];
    for (std::size_t t = 0; t < num_streams_; ++t) {
      if (t == at(stream)) continue;
      int event = writes_[at(other) * num_streams_ + t];
      if (a.kind != AccessKind::read) event = std::max(event, reads_[at(other) * num_streams_ + t]);
      if (event <= known[t]) continue;
      const std::string& x = table_[{item / 2}].name;
      const std::string& y = table_[{other / 2}].name;
      fail(ErrorKind::internal,
           "program {}: op {} (stream {}) uses buffer {}, op {} (stream {}) uses {}{}, and neither waits for "
           "the other",
           program_.name, program_.ops[at(o)].name, program_.streams[at(stream)].name, x,
           program_.ops[at(past_[t][at(event)])].name, program_.streams[t].name, y,
           item == other ? "" : " at the same bytes");
    }
  }

  const BufferTable& table_;
  const Program& program_;
  const std::vector<std::vector<int>>& overlaps_;
  std::int64_t trips_;
  std::size_t num_streams_;
  std::vector<Clock> clocks_;                                              // by stream
  std::vector<std::vector<int>> past_;                                     // by stream: the op of each event
  std::vector<Event> last_execution_, this_iteration_, iteration_before_;  // by op
  std::vector<int> writes_, reads_;  // by item and stream: the last event
  std::vector<int> value_;           // by item
};

}  // namespace

void verify(const BufferTable& table, const Program& program, const MemoryPlan& plan) {
  ShapeCheck(table, program, plan).run();
  const std::vector<std::vector<int>> overlaps = find_overlaps(table, program, plan);
  const bool counts_vary = std::any_of(program.repeats.begin(), program.repeats.end(),
                                       [](const Repeat& r) { return r.trip_count.valid(); });
  for (std::int64_t trips = counts_vary ? 0 : kMostTrips; trips <= kMostTrips; ++trips) {
    UnrolledCheck(table, program, overlaps, trips).run();
  }
}

}  // namespace planalto
