// SPDX-License-Identifier: Apache-2.0
// measure.h: how far each buffer was ever written, found by poisoning it before its first use and looking after each write.
// Memory      allocates when it is made and when it reports; before_op and after_op allocate nothing
// Threads     before_op and after_op are called by the thread of the op's stream, around its body
// Units       bytes
#pragma once

#include <cstdint>
#include <vector>

#include "program/placement.h"
#include "program/program.h"
#include "runtime/arena.h"

namespace planalto {

struct MemoryReport {
  // From the start of the arena. planned = the last byte that a buffer of the region has, written = the last that was written.
  struct Region {
    std::int64_t planned = 0;
    std::int64_t written = 0;
  };
  struct Underfilled {
    Buffer buffer{};
    std::int64_t capacity = 0;  // of one slot
    std::int64_t filled = 0;    // the most that any run, iteration and slot wrote, from its start
  };
  Region persistent[3];  // by tier
  Region transient[3];
  std::vector<Underfilled>
      underfilled;  // by buffer id; what the caller fills and programs that never ran are left out
};

class MemoryMeasure {
 public:
  // base: by buffer id, the address of slot 0. Persistent regions have been poisoned already.
  MemoryMeasure(const BufferTable& table, const MemoryPlan& plan, const std::vector<const Program*>& programs,
                const std::vector<void*>& base);

  void before_op(int program, int op, std::int64_t iteration);
  void after_op(int program, int op, std::int64_t iteration);
  MemoryReport report() const;

 private:
  struct Fill {
    Buffer buffer{};
    int slot = 0;
    std::int64_t iteration = -1;  // in which it is filled; -1: in each
  };
  struct Hooks {
    std::vector<std::vector<Fill>> fills;     // by op
    std::vector<std::vector<Access>> writes;  // by op: the accesses that write a buffer which is filled
  };

  Hooks make_hooks(const Program& program);
  std::byte* slot_address(Buffer b, int slot) const;
  std::int64_t last_byte(Buffer b) const;

  const BufferTable& table_;
  const MemoryPlan& plan_;
  const std::vector<void*>& base_;
  std::vector<Hooks> hooks_;           // by program
  std::vector<std::int64_t> written_;  // by buffer and slot; -1: not filled with poison so far
};

}  // namespace planalto
