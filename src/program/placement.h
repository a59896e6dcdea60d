// SPDX-License-Identifier: Apache-2.0
// placement.h: lifetimes to offsets in one arena per tier: the memory plan of a run, for all its programs.
// Invariants  persistent buffers come first and are placed once; the transients of each program share what
// follows.
//             Two transients share bytes only when every use of one happens before every use of the other
//             (stream order and waits). A buffer used in a Repeat lives through all of it when it has two
//             slots, carries a value between iterations or is used outside too; else inside one iteration
// Numerics    offsets and sizes are multiples of 64 bytes; the same input gives the same plan
// Units       bytes
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace planalto {

struct ProgramPlan {
  std::int64_t transient_bytes[3] = {0, 0, 0};  // by tier: extent of this program's transients
  // By tier: the largest sum found of transients of which any two may be live at once. No placement is
  // smaller.
  std::int64_t largest_live_bytes[3] = {0, 0, 0};
  int peak_op = -1;  // the op at which the device's largest live sum falls
};

struct MemoryPlan {
  std::vector<std::int64_t> offsets;  // by buffer id, in the arena of its tier; -1: not used by any program
  std::vector<std::int64_t> slot_strides;  // by buffer id; 0 for one slot
  std::int64_t persistent_bytes[3] = {0, 0, 0};
  std::int64_t arena_bytes[3] = {0, 0, 0};  // persistent + the largest program
  std::vector<ProgramPlan> programs;
};

// The top of a program's transients is, where equal plans leave the choice, a buffer that is always written
// completely.
MemoryPlan place(const BufferTable& table, const std::vector<const Program*>& programs);

}  // namespace planalto
