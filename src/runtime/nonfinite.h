// SPDX-License-Identifier: Apache-2.0
// nonfinite.h: runs a program once more, op after op on one thread, and finds the first value that is not finite.
// Invariants  a program that gives the same results when it is run again (a step that changed no parameter) leaves the memory as the
//             run before did, but for transient buffers
// Memory      allocates; for the moment after a run went wrong
// Threads     the caller's, with its pool; the executor must be idle
#pragma once

#include <string>

#include "program/program.h"

namespace planalto {

// "op X wrote nan to the buffer Y at row 3, column 5", of the first op that wrote such a value to an activation or a gradient; ""
// when none did. Buffers begin as zeros, and workspaces may hold what they like. Every rank of the program's groups calls it.
std::string first_nonfinite(const BufferTable& table, const Program& program, const RunContext& context);

}  // namespace planalto
