// SPDX-License-Identifier: Apache-2.0
// lifetime.h: which buffers of a Repeat live inside one iteration, and which from the start of the program.
#pragma once

#include <vector>

#include "program/program.h"

namespace planalto {

// The op writes all of the buffer and does not look at what was there.
bool overwrites(const Op& op, Buffer b);

// By buffer id: 1 where all uses are in one region, in one slot, and each iteration begins by overwriting it.
std::vector<char> lives_in_iteration(const BufferTable& table, const Program& program);

// A buffer of role input whose first use is a read: the caller filled it before the program started.
bool filled_by_caller(const BufferInfo& info, const Op& first_use, Buffer b);

}  // namespace planalto
