// SPDX-License-Identifier: Apache-2.0
#include "program/order.h"

#include <algorithm>
#include <cstddef>

#include "base/error.h"

namespace planalto {

namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

void join(std::vector<int>& into, const std::vector<int>& other) {
  for (std::size_t t = 0; t < into.size(); ++t) into[t] = std::max(into[t], other[t]);
}

// Later ops first: what they imply makes the earlier ones superfluous.
void sort_waits(std::vector<Wait>& waits) {
  std::sort(waits.begin(), waits.end(),
            [](const Wait& a, const Wait& b) { return a.lag != b.lag ? a.lag < b.lag : a.op > b.op; });
}

}  // namespace

struct ProgramOrder::Body {
  std::vector<Clock> entry;  // by stream: known when the region is entered
  std::vector<Clock> start;  // by stream: known in iteration 0 of what stands before the region
  std::vector<Clock> same;   // by stream: known of the present iteration
};

ProgramOrder::ProgramOrder(const Program& program) : program_(program) {
  std::vector<std::vector<Wait>> waits = program.waits;
  walk(waits, false);
}

ProgramOrder::ProgramOrder(const Program& program, std::vector<std::vector<Wait>>& waits, bool remove_implied)
    : program_(program) {
  walk(waits, remove_implied);
}

void ProgramOrder::remove_implied_waits(Program& program) {
  for (std::vector<Wait>& w : program.waits) sort_waits(w);
  ProgramOrder(program, program.waits, true);
}

void ProgramOrder::walk(std::vector<std::vector<Wait>>& waits, bool remove_implied) {
  const std::size_t num_ops = program_.ops.size();
  PLANALTO_CHECK(waits.size() == num_ops, "program {}: waits of {} of {} ops were found", program_.name,
                 waits.size(), num_ops);
  const Clock nothing(program_.streams.size(), -1);
  known_.assign(program_.streams.size(), nothing);
  start_.assign(num_ops, nothing);
  over_.assign(num_ops, nothing);
  same_.assign(num_ops, nothing);
  last_.assign(num_ops, nothing);
  for (int o = 0; o < static_cast<int>(num_ops); ++o) {
    const int r = region(o);
    if (r < 0) {
      visit_op(o, waits[at(o)], remove_implied);
    } else {
      visit_region(r, waits, remove_implied);
      o = program_.repeats[at(r)].last - 1;
    }
  }
}

void ProgramOrder::visit_op(int o, std::vector<Wait>& waits, bool remove_implied) {
  Clock& known = known_[at(stream(o))];
  std::erase_if(waits, [&](const Wait& w) {
    if (remove_implied && known[at(stream(w.op))] >= w.op) return true;
    join(known, over_[at(w.op)]);
    return false;
  });
  start_[at(o)] = known;
  known[at(stream(o))] = o;
  over_[at(o)] = known;
}

void ProgramOrder::visit_region(int r, std::vector<std::vector<Wait>>& waits, bool remove_implied) {
  const Repeat& repeat = program_.repeats[at(r)];
  const Clock nothing(program_.streams.size(), -1);
  Body body{known_, {}, std::vector<Clock>(program_.streams.size(), nothing)};
  if (repeat.count_op >= 0) {
    for (int o = repeat.first; o < repeat.last; ++o)
      join(body.entry[at(stream(o))], over_[at(repeat.count_op)]);
  }
  body.start = body.entry;
  for (int o = repeat.first; o < repeat.last; ++o) same_iteration(o, body, waits[at(o)], remove_implied);
  // A stream starts an iteration knowing what it knew at the end of the one before.
  std::vector<Clock> known = body.same;
  for (int o = repeat.first; o < repeat.last; ++o) next_iteration(o, known, waits[at(o)], remove_implied);
  leave_region(r, body);
}

// In iteration 0 waits of lag 1 wait for nothing, so they add nothing to what is known of the ops before the
// region; and a chain of waits from one iteration to itself has none of them.
void ProgramOrder::same_iteration(int o, Body& body, std::vector<Wait>& waits, bool remove_implied) {
  Clock& start = body.start[at(stream(o))];
  Clock& same = body.same[at(stream(o))];
  std::erase_if(waits, [&](const Wait& w) {
    if (w.lag != 0) return false;
    const std::size_t t = at(stream(w.op));
    const bool inside = region(w.op) == region(o);
    if (remove_implied && (inside ? same : start)[t] >= w.op) return true;
    if (inside) {
      join(start, start_[at(w.op)]);
      join(same, same_[at(w.op)]);
      same[t] = std::max(same[t], w.op);
    } else {
      join(start, over_[at(w.op)]);
    }
    return false;
  });
  start_[at(o)] = start;
  same_[at(o)] = same;
  same[at(stream(o))] = o;
}

void ProgramOrder::next_iteration(int o, std::vector<Clock>& known, std::vector<Wait>& waits,
                                  bool remove_implied) {
  Clock& last = known[at(stream(o))];
  std::erase_if(waits, [&](const Wait& w) {
    if (region(w.op) != region(o)) return false;
    if (w.lag == 0) {
      join(last, last_[at(w.op)]);
      return false;
    }
    const std::size_t t = at(stream(w.op));
    if (remove_implied && last[t] >= w.op) return true;
    join(last, same_[at(w.op)]);
    last[t] = std::max(last[t], w.op);
    return false;
  });
  last_[at(o)] = last;
}

// A region that may be skipped teaches its streams nothing that they did not know when they entered it.
void ProgramOrder::leave_region(int r, const Body& body) {
  const Repeat& repeat = program_.repeats[at(r)];
  for (int o = repeat.first; o < repeat.last; ++o) {
    const int s = stream(o);
    Clock& over = over_[at(o)];
    over = body.entry[at(s)];
    if (!repeat.may_be_skipped()) {
      join(over, start_[at(o)]);
      join(over, same_[at(o)]);
    }
    over[at(s)] = o;
    known_[at(s)] = over;
  }
}

bool ProgramOrder::before(int p, int o) const {
  if (region(p) >= 0 && region(p) == region(o)) return false;
  return stream(p) == stream(o) ? p < o : start_[at(o)][at(stream(p))] >= p;
}

bool ProgramOrder::before_in_iteration(int p, int o) const {
  return stream(p) == stream(o) ? p < o : same_[at(o)][at(stream(p))] >= p;
}

bool ProgramOrder::before_next_iteration(int p, int o) const {
  return stream(p) == stream(o) || last_[at(o)][at(stream(p))] >= p;
}

}  // namespace planalto
