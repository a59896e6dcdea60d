// SPDX-License-Identifier: Apache-2.0
#include "program/builder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace planalto {

const char* to_string(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::exchange:
      return "exchange";
    case Phase::optimizer:
      return "optimizer";
    case Phase::data:
      return "data";
  }
  return "?";
}

Builder::Builder(BufferTable& table, const Target& target, std::string program_name, int program_index)
    : table_(table), target_(target) {
  program_.name = std::move(program_name);
  program_.index = program_index;
  program_.target = target;
  program_.streams.push_back({"compute", true});
}

Buffer Builder::transient(std::string_view name, DType dtype, std::int64_t rows, std::int64_t cols,
                          Role role) {
  return table_.add({.name = prefix_ + std::string(name),
                     .dtype = dtype,
                     .rows = rows,
                     .cols = cols,
                     .role = role,
                     .program = program_.index});
}

Buffer Builder::slotted(std::string_view name, DType dtype, std::int64_t rows, std::int64_t cols, Role role) {
  PLANALTO_CHECK(open_repeat_ >= 0, "buffer {} has two slots, which only a Repeat addresses", name);
  return table_.add({.name = prefix_ + std::string(name),
                     .dtype = dtype,
                     .rows = rows,
                     .cols = cols,
                     .role = role,
                     .slots = 2,
                     .program = program_.index});
}

Buffer Builder::workspace(std::string_view name, std::int64_t bytes) {
  if (bytes == 0) return Buffer{};
  return transient(name, DType::u8, bytes, 1, Role::workspace);
}

Buffer Builder::persistent(BufferInfo info) {
  info.persistent = true;
  return table_.add(std::move(info));
}

void Builder::emit(Op op) {
  op.name = prefix_ + op.name;
  op.phase = phase_;
  op.stream = stream_;
  op.repeat = open_repeat_;
  std::erase_if(op.accesses, [](const Access& a) { return !a.buffer.valid(); });
  program_.ops.push_back(std::move(op));
}

Builder::Scope::Scope(Builder& b, std::string_view name) : builder_(b), old_size_(b.prefix_.size()) {
  b.prefix_ += name;
  b.prefix_ += '.';
}

Builder::Scope::~Scope() {
  builder_.prefix_.resize(old_size_);
}

int Builder::stream(std::string_view name, bool compute) {
  for (std::size_t i = 0; i < program_.streams.size(); ++i) {
    if (program_.streams[i].name == name) return static_cast<int>(i);
  }
  program_.streams.push_back({std::string(name), compute});
  return static_cast<int>(program_.streams.size()) - 1;
}

int Builder::group(const CommGroup& group) {
  for (std::size_t i = 0; i < program_.groups.size(); ++i) {
    const CommGroup& g = program_.groups[i];
    if (g.name != group.name) continue;
    PLANALTO_CHECK(g.ranks == group.ranks && g.rank == group.rank, "two groups are called {}", g.name);
    return static_cast<int>(i);
  }
  PLANALTO_CHECK(group.rank >= 0 && static_cast<std::size_t>(group.rank) < group.ranks.size(),
                 "group {}: rank {} of {}", group.name, group.rank, group.ranks.size());
  program_.groups.push_back(group);
  return static_cast<int>(program_.groups.size()) - 1;
}

void Builder::begin_repeat(std::int64_t fixed_trips) {
  PLANALTO_CHECK(open_repeat_ < 0, "regions do not nest");
  open_repeat_ = static_cast<int>(program_.repeats.size());
  const int at = static_cast<int>(program_.ops.size());
  program_.repeats.push_back({.first = at, .last = at, .fixed_trips = fixed_trips, .max_trips = fixed_trips});
}

void Builder::begin_repeat(Buffer trip_count, std::int64_t max_trips) {
  begin_repeat(max_trips);
  program_.repeats.back().trip_count = trip_count;
}

void Builder::end_repeat() {
  PLANALTO_CHECK(open_repeat_ >= 0, "no region is open");
  program_.repeats.back().last = static_cast<int>(program_.ops.size());
  open_repeat_ = -1;
}

Program Builder::finish() {
  PLANALTO_CHECK(open_repeat_ < 0, "program {}: a region is still open", program_.name);
  remove_dead_ops();
  ask_listeners();
  find_waits(table_, program_);
  return std::move(program_);
}

// An op lives when it has an effect of its own, writes a persistent buffer, or writes what a live op reads. A region is walked
// twice, so that what a later iteration reads keeps its writer alive. Recompute relies on this: a block that is emitted
// again leaves its unused tail here.
void Builder::remove_dead_ops() {
  std::vector<Op>& ops = program_.ops;
  std::vector<char> live(ops.size(), 0);
  std::vector<char> wanted(static_cast<std::size_t>(table_.size()), 0);
  auto visit = [&](int i) {
    Op& op = ops[static_cast<std::size_t>(i)];
    bool is_live = op.keep || live[static_cast<std::size_t>(i)] != 0;
    for (const Access& a : op.accesses) {
      if (a.kind == AccessKind::read) continue;
      is_live = is_live || table_[a.buffer].persistent || wanted[static_cast<std::size_t>(a.buffer.id)] != 0;
    }
    if (!is_live) return;
    live[static_cast<std::size_t>(i)] = 1;
    for (const Access& a : op.accesses) {
      if (a.kind != AccessKind::write) wanted[static_cast<std::size_t>(a.buffer.id)] = 1;
    }
  };
  for (const Repeat& r : program_.repeats) {
    if (r.trip_count.valid()) wanted[static_cast<std::size_t>(r.trip_count.id)] = 1;
  }
  for (int i = static_cast<int>(ops.size()) - 1; i >= 0; --i) {
    const int region = ops[static_cast<std::size_t>(i)].repeat;
    if (region >= 0 && i == program_.repeats[static_cast<std::size_t>(region)].last - 1) {
      for (int j = i; j >= program_.repeats[static_cast<std::size_t>(region)].first; --j) visit(j);
    }
    visit(i);
  }
  std::vector<int> kept_before(ops.size() + 1, 0);
  for (std::size_t i = 0; i < ops.size(); ++i) kept_before[i + 1] = kept_before[i] + live[i];
  for (Repeat& r : program_.repeats) {
    r.first = kept_before[static_cast<std::size_t>(r.first)];
    r.last = kept_before[static_cast<std::size_t>(r.last)];
  }
  std::vector<Op> kept;
  kept.reserve(ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (live[i] != 0) kept.push_back(std::move(ops[i]));
  }
  ops = std::move(kept);
}

// A region is one place to the listeners: what they emit for a buffer that is used in it stands before or after it, so that it
// happens once, and a gradient that rounds accumulate is complete after the last of them.
void Builder::ask_listeners() {
  if (listeners_.empty()) return;
  const std::vector<Op> old = std::move(program_.ops);
  program_.ops.clear();
  std::vector<Uses> uses(static_cast<std::size_t>(table_.size()));
  for (int i = 0; i < static_cast<int>(old.size()); ++i) {
    for (const Access& a : old[static_cast<std::size_t>(i)].accesses) {
      Uses& u = uses[static_cast<std::size_t>(a.buffer.id)];
      if (u.first < 0) u.first = i;
      u.last = i;
      if (a.kind != AccessKind::read) u.last_write = i;
    }
  }
  const int num_ops = static_cast<int>(old.size());
  for (int i = 0; i < num_ops;) {
    const int region = old[static_cast<std::size_t>(i)].repeat;
    const int end = region < 0 ? i + 1 : program_.repeats[static_cast<std::size_t>(region)].last;
    for (int k = i; k < end; ++k) tell_first_uses(old[static_cast<std::size_t>(k)], k, uses);
    const int moved = static_cast<int>(program_.ops.size());
    program_.ops.insert(program_.ops.end(), old.begin() + i, old.begin() + end);
    if (region >= 0) {
      program_.repeats[static_cast<std::size_t>(region)].first = moved;
      program_.repeats[static_cast<std::size_t>(region)].last = moved + end - i;
    }
    for (int k = i; k < end; ++k) tell_last_uses(old[static_cast<std::size_t>(k)], k, uses);
    i = end;
  }
  stream_ = 0;
  phase_ = Phase::optimizer;
  for (Listener* l : listeners_) l->at_end(*this);
}

void Builder::tell(const Op& op, Buffer b, void (Listener::*event)(Builder&, Buffer)) {
  for (Listener* l : listeners_) {
    phase_ = op.phase;
    stream_ = op.stream;
    (l->*event)(*this, b);
  }
}

void Builder::tell_first_uses(const Op& op, int index, std::vector<Uses>& uses) {
  for (const Access& a : op.accesses) {
    Uses& u = uses[static_cast<std::size_t>(a.buffer.id)];
    if (u.first != index) continue;
    u.first = -1;  // told once, though the op may name it twice
    tell(op, a.buffer, &Listener::before_first_use);
  }
}

void Builder::tell_last_uses(const Op& op, int index, std::vector<Uses>& uses) {
  for (const Access& a : op.accesses) {
    Uses& u = uses[static_cast<std::size_t>(a.buffer.id)];
    if (u.last_write == index && table_[a.buffer].role == Role::gradient) {
      u.last_write = -1;
      tell(op, a.buffer, &Listener::gradient_complete);
    }
    if (u.last != index) continue;
    u.last = -1;
    tell(op, a.buffer, &Listener::after_last_use);
  }
}

}  // namespace planalto
