// SPDX-License-Identifier: Apache-2.0
// verify.h: proves a placed program sound before it runs: nothing is read before it is written, nothing that may overlap in time
// shares bytes, every wait points back. Regions are unrolled for 0, 1, 2 and 3 trips.
// Errors      internal, naming both ops and the buffer
#pragma once

#include <cstdint>
#include <string>

#include "program/placement.h"
#include "program/program.h"

namespace planalto {

void verify(const BufferTable& table, const Program& program, const MemoryPlan& plan);

// A hash of all that ranks must agree on: names, kinds, streams, shapes, waits, ISA. Compared at launch.
std::uint64_t fingerprint(const BufferTable& table, const Program& program);

}  // namespace planalto
