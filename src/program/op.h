// SPDX-License-Identifier: Apache-2.0
// op.h: one operation of a step as data: what it reads and writes, its phase and stream, its cost, how to run it.
// Invariants  a run body touches exactly the buffers in `accesses`, each within its capacity, and allocates nothing
// Threads     a body runs on the thread of its stream; ExecContext is that stream's
// Units       flops, bytes of device memory touched, bytes on the wire, all as functions of run-time counts
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/exec_context.h"
#include "program/buffer.h"

namespace planalto {

class Communicator;

enum class Phase : std::uint8_t { forward, backward, exchange, optimizer, data };
const char* to_string(Phase phase);

// update = the old contents matter (accumulation); write = every element that is valid is overwritten
enum class AccessKind : std::uint8_t { read, write, update };

struct Access {
  Buffer buffer{};
  AccessKind kind = AccessKind::read;
  // In a Repeat: the slot of iteration + shift, shift in {-1, 0, 1}; without meaning for buffers of one slot.
  int shift = 0;
};

// What a step learned only when it ran. Capacities stand in for the plan.
struct RunCounts {
  double tokens = 0;  // of one microbatch
  double documents = 0;
  double attention_pairs = 0;  // sum over documents of the (query, key) pairs that the mask keeps
};

struct Cost {
  double flops = 0;
  double bytes = 0;
  double wire_bytes = 0;
};

// Resolves handles to addresses while an op runs. Filled by the executor, plain data.
class RunContext {
 public:
  const ExecContext* exec = nullptr;
  void* const* base = nullptr;                   // by buffer id: address of slot 0
  const std::int64_t* slot_stride = nullptr;     // by buffer id: bytes from slot 0 to slot 1 (0: one slot)
  std::int64_t iteration = 0;                    // of the innermost Repeat, 0 outside
  Communicator* const* communicators = nullptr;  // by group of the program

  void* address(Buffer b, int shift = 0) const {
    char* p = static_cast<char*>(base[b.id]);
    const std::int64_t stride = slot_stride[b.id];
    return stride == 0 ? p : p + ((iteration + shift) & 1) * stride;
  }
  // Null for an invalid handle, so that optional operands need no branch.
  template <class T>
  T* data(Buffer b, int shift = 0) const {
    return b.valid() ? static_cast<T*>(address(b, shift)) : nullptr;
  }
};

struct Op {
  std::string name;  // "layers.3.moe.gate_up"
  std::string kind;  // "grouped_gemm_forward": the kernel, or what a data op does
  Phase phase = Phase::forward;
  int stream = 0;
  std::vector<Access> accesses;
  std::function<Cost(const RunCounts&)> cost{};  // empty: nothing worth counting
  std::function<void(const RunContext&)> run{};
  bool keep = false;  // has an effect beside its writes: never removed as dead
  int repeat = -1;    // the region it stands in
  int group = -1;     // of the program's groups: a collective that all its ranks run; -1: of this rank alone
};

}  // namespace planalto
