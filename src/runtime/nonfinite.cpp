// SPDX-License-Identifier: Apache-2.0
#include "runtime/nonfinite.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "program/lifetime.h"

namespace planalto {

namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// The first element that is not finite, or -1.
template <class T, class ToFloat>
std::int64_t find_nonfinite(const void* data, std::int64_t n, ToFloat to_value) {
  const auto* x = static_cast<const T*>(data);
  for (std::int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(to_value(x[i]))) return i;
  }
  return -1;
}

class Walk {
 public:
  Walk(const BufferTable& table, const Program& program, const RunContext& context)
      : table_(table),
        program_(program),
        in_iteration_(lives_in_iteration(table, program)),
        begun_(at(2 * table.size()), 0),
        context_(context) {}

  std::string run() {
    const int num_ops = static_cast<int>(program_.ops.size());
    for (int o = 0; o < num_ops;) {
      const int region = program_.ops[at(o)].repeat;
      context_.iteration = 0;
      if (region < 0) {
        execute(program_.ops[at(o++)]);
        continue;
      }
      const Repeat& repeat = program_.repeats[at(region)];
      const std::int64_t trips =
          repeat.trip_count.valid() ? *context_.data<std::int64_t>(repeat.trip_count) : repeat.fixed_trips;
      for (std::int64_t i = 0; i < trips; ++i) {
        context_.iteration = i;
        ++time_;
        for (int inside = repeat.first; inside < repeat.last; ++inside) execute(program_.ops[at(inside)]);
      }
      o = repeat.last;
    }
    return found_;
  }

 private:
  void execute(const Op& op) {
    for (const Access& a : op.accesses) begin(op, a);
    op.run(context_);
    for (const Access& a : op.accesses) {
      if (found_.empty() && a.kind != AccessKind::read) look(op, a);
    }
  }

  // Zeros before the first use, so that rows which nobody writes are finite.
  void begin(const Op& op, const Access& a) {
    const BufferInfo& info = table_[a.buffer];
    if (info.persistent) return;
    const int slot = info.slots == 1 ? 0 : static_cast<int>((context_.iteration + a.shift) & 1);
    std::int64_t& begun = begun_[at(2 * a.buffer.id + slot)];
    const std::int64_t now = in_iteration_[at(a.buffer.id)] != 0 ? time_ : 1;
    if (begun == now) return;
    if (begun == 0 && filled_by_caller(info, op, a.buffer)) {
      begun = now;
      return;
    }
    begun = now;
    std::memset(context_.address(a.buffer, a.shift), 0, at(info.bytes()));
  }

  void look(const Op& op, const Access& a) {
    const BufferInfo& info = table_[a.buffer];
    if (info.role == Role::workspace || (info.persistent && info.role != Role::gradient)) return;
    const void* data = context_.address(a.buffer, a.shift);
    std::int64_t bad = -1;
    if (info.dtype == DType::f32)
      bad = find_nonfinite<float>(data, info.elements(), [](float x) { return x; });
    if (info.dtype == DType::bf16)
      bad = find_nonfinite<bf16>(data, info.elements(), [](bf16 x) { return to_float(x); });
    if (bad < 0) return;
    const float value = info.dtype == DType::f32 ? static_cast<const float*>(data)[bad]
                                                 : to_float(static_cast<const bf16*>(data)[bad]);
    found_ = fmt::format("op {} wrote {} to the buffer {} at row {}, column {}", op.name, value, info.name,
                         bad / info.cols, bad % info.cols);
  }

  const BufferTable& table_;
  const Program& program_;
  std::vector<char> in_iteration_;
  std::vector<std::int64_t> begun_;  // by buffer and slot: the time at which it was zeroed; 0: not yet
  std::int64_t time_ = 1;            // a new one for each iteration
  RunContext context_;
  std::string found_;
};

}  // namespace

std::string first_nonfinite(const BufferTable& table, const Program& program, const RunContext& context) {
  return Walk(table, program, context).run();
}

}  // namespace planalto
