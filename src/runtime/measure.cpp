// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure.h"

#include <algorithm>
#include <cstddef>

#include "program/lifetime.h"

namespace planalto {

namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

int slot_of(const BufferInfo& info, std::int64_t iteration, int shift) {
  return info.slots == 1 ? 0 : static_cast<int>((iteration + shift) & 1);
}

}  // namespace

MemoryMeasure::MemoryMeasure(const BufferTable& table, const MemoryPlan& plan,
                             const std::vector<const Program*>& programs, const std::vector<void*>& base)
    : table_(table), plan_(plan), base_(base), written_(at(2 * table.size()), -1) {
  for (const Program* p : programs) hooks_.push_back(make_hooks(*p));
}

// A slot is filled by the op that uses it first in program order: all other users wait for that one.
MemoryMeasure::Hooks MemoryMeasure::make_hooks(const Program& program) {
  Hooks hooks;
  hooks.fills.resize(program.ops.size());
  hooks.writes.resize(program.ops.size());
  const std::vector<char> in_iteration = lives_in_iteration(table_, program);
  std::vector<char> seen(written_.size(), 0);
  std::vector<char> by_caller(at(table_.size()), 0);
  const auto visit = [&](int o, std::int64_t iteration) {
    const Op& op = program.ops[at(o)];
    for (const Access& a : op.accesses) {
      const BufferInfo& info = table_[a.buffer];
      if (info.persistent || by_caller[at(a.buffer.id)] != 0) continue;
      const int slot = slot_of(info, iteration, a.shift);
      char& slot_seen = seen[at(2 * a.buffer.id + slot)];
      if (slot_seen != 0) continue;
      slot_seen = 1;
      if (filled_by_caller(info, op, a.buffer)) {
        by_caller[at(a.buffer.id)] = 1;
        continue;
      }
      const bool each = in_iteration[at(a.buffer.id)] != 0;
      hooks.fills[at(o)].push_back({a.buffer, slot, each ? -1 : iteration});
    }
  };
  for (int o = 0; o < static_cast<int>(program.ops.size()); ++o) {
    const int region = program.ops[at(o)].repeat;
    if (region < 0) {
      visit(o, 0);
      continue;
    }
    const Repeat& repeat = program.repeats[at(region)];
    for (const std::int64_t iteration : {0, 1}) {
      for (int i = repeat.first; i < repeat.last; ++i) visit(i, iteration);
    }
    o = repeat.last - 1;
  }
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    for (const Access& a : program.ops[o].accesses) {
      if (a.kind == AccessKind::read || table_[a.buffer].persistent || by_caller[at(a.buffer.id)] != 0)
        continue;
      hooks.writes[o].push_back(a);
    }
  }
  return hooks;
}

std::byte* MemoryMeasure::slot_address(Buffer b, int slot) const {
  return static_cast<std::byte*>(base_[at(b.id)]) + slot * plan_.slot_strides[at(b.id)];
}

void MemoryMeasure::before_op(int program, int op, std::int64_t iteration) {
  for (const Fill& f : hooks_[at(program)].fills[at(op)]) {
    if (f.iteration >= 0 && f.iteration != iteration) continue;
    poison(slot_address(f.buffer, f.slot), table_[f.buffer].bytes());
    std::int64_t& written = written_[at(2 * f.buffer.id + f.slot)];
    written = std::max<std::int64_t>(written, 0);
  }
}

void MemoryMeasure::after_op(int program, int op, std::int64_t iteration) {
  for (const Access& a : hooks_[at(program)].writes[at(op)]) {
    const BufferInfo& info = table_[a.buffer];
    const int slot = slot_of(info, iteration, a.shift);
    std::int64_t& written = written_[at(2 * a.buffer.id + slot)];
    if (written == info.bytes()) continue;
    written =
        std::max(written, written_bytes(slot_address(a.buffer, slot), info.bytes(), dtype_bytes(info.dtype)));
  }
}

std::int64_t MemoryMeasure::last_byte(Buffer b) const {
  return plan_.offsets[at(b.id)] + (table_[b].slots - 1) * plan_.slot_strides[at(b.id)] + table_[b].bytes();
}

MemoryReport MemoryMeasure::report() const {
  MemoryReport report;
  for (std::int32_t id = 0; id < table_.size(); ++id) {
    const Buffer b{id};
    const BufferInfo& info = table_[b];
    if (plan_.offsets[at(id)] < 0 || info.bytes() == 0) continue;
    const std::size_t tier = static_cast<std::size_t>(info.tier);
    MemoryReport::Region& region = info.persistent ? report.persistent[tier] : report.transient[tier];
    region.planned = std::max(region.planned, last_byte(b));
    std::int64_t most = -1;
    for (int slot = 0; slot < info.slots; ++slot) {
      std::int64_t filled = written_[at(2 * id + slot)];
      if (info.persistent)
        filled = written_bytes(slot_address(b, slot), info.bytes(), dtype_bytes(info.dtype));
      most = std::max(most, filled);
      if (filled <= 0) continue;
      const std::int64_t end = plan_.offsets[at(id)] + slot * plan_.slot_strides[at(id)] + filled;
      region.written = std::max(region.written, end);
    }
    if (most >= 0 && most < info.bytes()) report.underfilled.push_back({b, info.bytes(), most});
  }
  return report;
}

}  // namespace planalto
