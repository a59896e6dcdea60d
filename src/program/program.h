// SPDX-License-Identifier: Apache-2.0
// program.h: the ordered list of ops that one rank executes, with its repeated regions, streams and waits.
// Invariants  a wait points back in program order; regions do not nest; inside a region a wait reaches back
// at
//             most one iteration
// Threads     immutable once built; every reader (place, verify, run, simulate) takes it const
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/target.h"
#include "program/op.h"

namespace planalto {

// Ops [first, last) run `trips` times: the value of trip_count (int64 [1], a buffer written before the
// region) when that is valid, else fixed_trips. max_trips bounds the cost in a plan, and what trip_count may
// say.
struct Repeat {
  int first = 0, last = 0;
  Buffer trip_count{};
  std::int64_t fixed_trips = 0;
  std::int64_t max_trips = 0;
  // The op, outside regions, that writes trip_count last before this region; -1: none in this program. Every
  // stream with an op in the region waits for it before it reads the count. Filled by find_waits.
  int count_op = -1;

  bool may_be_skipped() const { return trip_count.valid() || fixed_trips == 0; }
};

// Before an op of a stream starts, `op` (of another stream) has finished: its execution of this iteration
// (lag 0; the only execution when it is outside regions, the last one when it stands in an earlier region, if
// that ran at all), or of the iteration before (lag 1: op stands in the same region; iteration 0 then waits
// for nothing).
struct Wait {
  int op = 0;
  int lag = 0;
};

struct Stream {
  std::string name;
  bool compute = true;  // runs kernels; stream 0 does so on the rank's worker pool
};

// The ranks that share a communicator, as one of them sees it. Groups of one name in several programs of a run share it too.
struct CommGroup {
  std::string name;
  std::vector<int> ranks{0};  // of the run, ascending
  int rank = 0;               // position of this rank in `ranks`
};

struct Program {
  std::string name;
  int index = 0;  // transient buffers carry it
  Target target{};
  std::vector<Stream> streams;
  std::vector<CommGroup> groups;
  std::vector<Op> ops;
  std::vector<Repeat> repeats;
  std::vector<std::vector<Wait>> waits;  // by op
};

// Fills program.waits from the hazards between streams (read after write, write after read, write after
// write), for every trip count of every region. A hazard over two iterations becomes a wait of lag 1; what
// follows from other waits is left out.
void find_waits(const BufferTable& table, Program& program);

}  // namespace planalto
