// SPDX-License-Identifier: Apache-2.0
// verify.h: proves a placed program sound before it runs: nothing is read before it is written, nothing that may overlap in
//           time shares bytes, every wait points back and the collectives of a group stand in one order (so that no run can
//           deadlock).
// Invariants  regions with a trip count are unrolled for 0, 1, 2 and 3 trips; those with a fixed one for that, at most 3.
//             Persistent buffers and those of role input hold values from the start. Independent of how placement and
//             find_waits came to their results: it looks at bytes and at waits only
// Errors      internal, naming the ops and the buffers
#pragma once

#include <cstdint>

#include "program/placement.h"
#include "program/program.h"

namespace planalto {

void verify(const BufferTable& table, const Program& program, const MemoryPlan& plan);

// A hash of all that ranks must agree on: names, kinds, streams, shapes, waits, ISA. Compared at launch.
std::uint64_t fingerprint(const BufferTable& table, const Program& program);

}  // namespace planalto
