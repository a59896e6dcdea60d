// SPDX-License-Identifier: Apache-2.0
// executor.h: runs placed programs: one thread a stream, events between them, memory that stands before the first run.
// Invariants  an op starts when the ops before it on its stream and those it waits for are over; nothing else orders ops
// Memory      owns the arenas, threads and counters from the start; run() allocates nothing unless an op fails
// Threads     run() is called by one thread at a time and is the thread of stream 0, which has the rank's worker pool; every
//             other stream has a thread of its own, with a pool of that one thread
// Errors      what an op throws is rethrown by run() with op and stream named, after the other streams have stopped at their
//             next op; the executor can be used again. Programs have passed verify(); they, table and plan outlive the executor
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/exec_context.h"
#include "comm/communicator.h"
#include "program/placement.h"
#include "program/program.h"
#include "runtime/arena.h"
#include "runtime/measure.h"

namespace planalto {

struct ExecutorOptions {
  bool poison = false;  // fill the arenas at launch
  // Poison, and again each transient buffer before its first use in a run; see memory_report().
  bool measure = false;
  bool time_ops = false;                          // see op_times()
  const kernels::KernelTable* kernels = nullptr;  // null: those of the target's instruction set
  // Makes the communicator of a group, once for each name. Empty: groups of one rank only.
  std::function<std::unique_ptr<Communicator>(const CommGroup&)> make_communicator{};
};

// By the steady clock; of an execution that did not take place both are 0.
struct OpTime {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
};

class Executor {
 public:
  // exec: of stream 0. Other streams use the same kernels.
  Executor(const BufferTable& table, const MemoryPlan& plan, const std::vector<const Program*>& programs,
           const ExecContext& exec, const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // program: position in the list given, the same as in plan.programs.
  void run(int program);

  // Where a buffer lies; null for one that no program uses. Transients hold nothing that outlives a run.
  void* address(Buffer b, int slot = 0) const;
  template <class T>
  T* data(Buffer b, int slot = 0) const {
    return static_cast<T*>(address(b, slot));
  }
  const Arena& arena(Tier tier) const { return arenas_[static_cast<std::size_t>(tier)]; }

  // Of the last run, by iteration; iterations past kTimedIterations are not kept. Empty without time_ops.
  static constexpr std::int64_t kTimedIterations = 64;
  std::span<const OpTime> op_times(int program, int op) const;
  // Runs a program once more and names the first value that is not finite; see runtime/nonfinite.h.
  std::string first_nonfinite(int program);
  // Over all runs so far. Needs options.measure.
  MemoryReport memory_report() const;

 private:
  struct Prepared;      // a program, as its streams walk it
  struct StreamThread;  // of a stream other than 0
  struct Failure {
    ErrorKind kind = ErrorKind::internal;
    std::string message;
  };

  void prepare(const Program& program);
  Communicator* communicator(const CommGroup& group);
  void start_threads();
  void thread_main(int stream);
  RunContext context_of(const Prepared& p, int stream) const;
  void run_stream(Prepared& p, int stream);
  bool run_region(Prepared& p, int stream, std::span<const int> ops);
  bool enter_region(Prepared& p, int stream, int first_op, std::int64_t& trips);
  bool execute(Prepared& p, RunContext& context, int op, std::uint32_t done);
  void call(Prepared& p, RunContext& context, int op);
  void store_failure(const Prepared& p, int op);

  const BufferTable& table_;
  const MemoryPlan& plan_;
  ExecutorOptions options_;
  Arena arenas_[3];
  std::vector<void*> base_;  // by buffer id
  std::unique_ptr<MemoryMeasure> measure_;
  std::vector<std::unique_ptr<Prepared>> prepared_;
  std::vector<ExecContext> exec_;                                                     // by stream
  std::vector<std::pair<std::string, std::unique_ptr<Communicator>>> communicators_;  // by name
  Prepared* current_ = nullptr;
  std::atomic<std::uint32_t> running_{0};  // streams other than 0 that have not finished the present run
  std::atomic<bool> stop_{false};
  std::mutex failure_mutex_;
  std::optional<Failure> failure_;
  std::vector<std::unique_ptr<StreamThread>> threads_;  // by stream - 1; last, so that they end first
};

}  // namespace planalto
