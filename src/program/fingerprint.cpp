// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>

#include "base/hash.h"
#include "program/verify.h"

namespace planalto {

namespace {

class Hasher {
 public:
  void add(std::int64_t value) { hash_.update(std::as_bytes(std::span(&value, 1))); }
  void add(const std::string& text) {
    add(static_cast<std::int64_t>(text.size()));
    hash_.update(text);
  }
  void add(const BufferInfo& b) {
    add(b.name);
    for (const std::int64_t v :
         {static_cast<std::int64_t>(b.dtype), b.rows, b.cols, static_cast<std::int64_t>(b.tier),
          static_cast<std::int64_t>(b.role), std::int64_t{b.persistent}, std::int64_t{b.slots}}) {
      add(v);
    }
  }
  std::uint64_t digest() const { return hash_.digest(); }

 private:
  Xxh3Stream hash_;
};

}  // namespace

std::uint64_t fingerprint(const BufferTable& table, const Program& program) {
  Hasher h;
  h.add(program.name);
  h.add(static_cast<std::int64_t>(program.target.isa));
  h.add(static_cast<std::int64_t>(program.streams.size()));
  for (const Stream& s : program.streams) h.add(s.name);
  // Where a rank stands in a group differs from rank to rank; who is in it does not.
  h.add(static_cast<std::int64_t>(program.groups.size()));
  for (const CommGroup& g : program.groups) {
    h.add(g.name);
    h.add(static_cast<std::int64_t>(g.ranks.size()));
    for (const int rank : g.ranks) h.add(rank);
  }
  h.add(static_cast<std::int64_t>(program.ops.size()));
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    const Op& op = program.ops[o];
    h.add(op.name);
    h.add(op.kind);
    for (const std::int64_t v : {static_cast<std::int64_t>(op.phase), std::int64_t{op.stream},
                                 std::int64_t{op.repeat}, std::int64_t{op.group}}) {
      h.add(v);
    }
    h.add(static_cast<std::int64_t>(op.accesses.size()));
    for (const Access& a : op.accesses) {
      h.add(table[a.buffer]);
      h.add(static_cast<std::int64_t>(a.kind));
      h.add(a.shift);
    }
    h.add(static_cast<std::int64_t>(program.waits[o].size()));
    for (const Wait& w : program.waits[o]) {
      h.add(w.op);
      h.add(w.lag);
    }
  }
  h.add(static_cast<std::int64_t>(program.repeats.size()));
  for (const Repeat& r : program.repeats) {
    for (const std::int64_t v :
         {std::int64_t{r.first}, std::int64_t{r.last}, r.fixed_trips, r.max_trips, std::int64_t{r.count_op}})
      h.add(v);
    if (r.trip_count.valid()) h.add(table[r.trip_count]);
  }
  return h.digest();
}

}  // namespace planalto
