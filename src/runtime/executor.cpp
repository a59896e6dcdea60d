// SPDX-License-Identifier: Apache-2.0
#include "runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "runtime/nonfinite.h"

namespace planalto {

namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// What an op's counter says beside the number of iterations that are over.
constexpr std::uint32_t kAll = 0xFFFFFFFEU;     // no execution is left
constexpr std::uint32_t kFailed = 0xFFFFFFFFU;  // its stream has stopped
constexpr int kSpins = 2000;                    // some 50 microseconds; then the thread sleeps

std::int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// Returns the first value for which ready(value) holds.
template <class Ready>
std::uint32_t wait_until(const std::atomic<std::uint32_t>& counter, Ready ready) {
  std::uint32_t value = counter.load(std::memory_order_acquire);
  for (int i = 0; i < kSpins && !ready(value); ++i) {
    __builtin_ia32_pause();
    value = counter.load(std::memory_order_acquire);
  }
  while (!ready(value)) {
    counter.wait(value, std::memory_order_acquire);
    value = counter.load(std::memory_order_acquire);
  }
  return value;
}

void publish(std::atomic<std::uint32_t>& counter, std::uint32_t value) {
  counter.store(value, std::memory_order_release);
  counter.notify_all();
}

}  // namespace

struct Executor::Prepared {
  struct Event {
    int op = 0;
    bool inside = false;  // of the region of the op that waits
    int lag = 0;
  };

  explicit Prepared(const Program& p, int number) : program(p), index(number), done(p.ops.size()) {}

  const Program& program;
  int index;                                     // position in the executor
  std::vector<Communicator*> communicators;      // by group
  std::vector<std::vector<int>> stream_ops;      // by stream
  std::vector<std::vector<Event>> events;        // by op
  std::vector<std::atomic<std::uint32_t>> done;  // by op: iterations that are over, kAll or kFailed
  std::vector<OpTime> times;
  std::vector<std::size_t> times_offsets;  // by op, one more entry than ops; empty: no times
};

struct Executor::StreamThread {
  ThreadPool pool{1};
  std::atomic<std::uint32_t> go{0};  // a new value starts a run, or ends the thread
  bool quit = false;
  std::thread thread;

  void wake() {
    go.fetch_add(1, std::memory_order_release);
    go.notify_one();
  }
  ~StreamThread() {
    if (!thread.joinable()) return;
    quit = true;
    wake();
    thread.join();
  }
};

Executor::Executor(const BufferTable& table, const MemoryPlan& plan,
                   const std::vector<const Program*>& programs, const ExecContext& exec,
                   const ExecutorOptions& options)
    : table_(table), plan_(plan), options_(options), base_(at(table.size()), nullptr) {
  PLANALTO_CHECK(plan.programs.size() == programs.size(), "a plan of {} programs for {}",
                 plan.programs.size(), programs.size());
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
    Arena& arena = arenas_[static_cast<std::size_t>(tier)];
    arena = Arena(plan.arena_bytes[static_cast<std::size_t>(tier)], tier);
    if (options.poison || options.measure) poison(arena.data(), arena.bytes());
  }
  for (std::size_t id = 0; id < base_.size(); ++id) {
    if (plan.offsets[id] < 0) continue;
    base_[id] = arena(table[Buffer{static_cast<std::int32_t>(id)}].tier).data() + plan.offsets[id];
  }
  for (const Program* p : programs) prepare(*p);
  if (options.measure) measure_ = std::make_unique<MemoryMeasure>(table, plan, programs, base_);
  exec_.push_back(exec);
  start_threads();
}

void Executor::prepare(const Program& program) {
  auto p = std::make_unique<Prepared>(program, static_cast<int>(prepared_.size()));
  PLANALTO_CHECK(program.waits.size() == program.ops.size(), "program {} has no waits", program.name);
  for (const CommGroup& g : program.groups) p->communicators.push_back(communicator(g));
  p->stream_ops.resize(program.streams.size());
  p->events.resize(program.ops.size());
  if (options_.time_ops) p->times_offsets.push_back(0);
  for (int o = 0; o < static_cast<int>(program.ops.size()); ++o) {
    const Op& op = program.ops[at(o)];
    PLANALTO_CHECK(op.run != nullptr, "op {} of program {} has no body", op.name, program.name);
    p->stream_ops[at(op.stream)].push_back(o);
    for (const Wait& w : program.waits[at(o)]) {
      p->events[at(o)].push_back({w.op, op.repeat >= 0 && program.ops[at(w.op)].repeat == op.repeat, w.lag});
    }
    if (!options_.time_ops) continue;
    const std::int64_t trips = op.repeat < 0 ? 1 : program.repeats[at(op.repeat)].max_trips;
    p->times_offsets.push_back(p->times_offsets.back() + at(std::min(trips, kTimedIterations)));
  }
  if (options_.time_ops) p->times.resize(p->times_offsets.back());
  for (const Repeat& r : program.repeats) {
    PLANALTO_CHECK(r.max_trips < kAll && r.fixed_trips < kAll, "program {}: a region of {} trips",
                   program.name, r.max_trips);
  }
  prepared_.push_back(std::move(p));
}

Communicator* Executor::communicator(const CommGroup& group) {
  for (const auto& [name, communicator] : communicators_) {
    if (name == group.name) return communicator.get();
  }
  PLANALTO_CHECK(options_.make_communicator || group.ranks.size() == 1,
                 "group {} has {} ranks and nothing that joins them", group.name, group.ranks.size());
  communicators_.emplace_back(
      group.name, options_.make_communicator ? options_.make_communicator(group) : self_communicator());
  return communicators_.back().second.get();
}

void Executor::start_threads() {
  std::size_t streams = 1;
  for (const auto& p : prepared_) streams = std::max(streams, p->stream_ops.size());
  for (std::size_t s = 1; s < streams; ++s) {
    threads_.push_back(std::make_unique<StreamThread>());
    exec_.push_back({.pool = &threads_.back()->pool, .kernels = exec_[0].kernels});
  }
  for (std::size_t s = 1; s < streams; ++s) {
    threads_[s - 1]->thread = std::thread([this, s] { thread_main(static_cast<int>(s)); });
  }
}

Executor::~Executor() = default;

void Executor::thread_main(int stream) {
  StreamThread& self = *threads_[at(stream) - 1];
  for (std::uint32_t seen = 0;;) {
    seen = wait_until(self.go, [seen](std::uint32_t value) { return value != seen; });
    if (self.quit) return;
    run_stream(*current_, stream);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void Executor::run(int program) {
  PLANALTO_CHECK(program >= 0 && at(program) < prepared_.size(), "program {} of {}", program,
                 prepared_.size());
  Prepared& p = *prepared_[at(program)];
  for (auto& done : p.done) done.store(0, std::memory_order_relaxed);
  std::fill(p.times.begin(), p.times.end(), OpTime{});
  stop_.store(false, std::memory_order_relaxed);
  failure_.reset();
  current_ = &p;
  std::uint32_t others = 0;
  for (std::size_t s = 1; s < p.stream_ops.size(); ++s) others += p.stream_ops[s].empty() ? 0 : 1;
  running_.store(others, std::memory_order_relaxed);
  for (std::size_t s = 1; s < p.stream_ops.size(); ++s) {
    if (p.stream_ops[s].empty()) continue;
    threads_[s - 1]->wake();
  }
  run_stream(p, 0);
  wait_until(running_, [](std::uint32_t left) { return left == 0; });
  if (failure_) throw Error(failure_->kind, failure_->message);
}

RunContext Executor::context_of(const Prepared& p, int stream) const {
  RunContext context;
  context.exec = &exec_[at(stream)];
  context.base = base_.data();
  context.slot_stride = plan_.slot_strides.data();
  context.communicators = p.communicators.data();
  return context;
}

// When a stream stops early, whoever waits for one of its ops is told. No other thread writes their counters.
void Executor::run_stream(Prepared& p, int stream) {
  const std::vector<int>& ops = p.stream_ops[at(stream)];
  RunContext context = context_of(p, stream);
  bool going = true;
  for (std::size_t i = 0; i < ops.size() && going;) {
    const int region = p.program.ops[at(ops[i])].repeat;
    if (region < 0) {
      going = execute(p, context, ops[i], kAll);
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < ops.size() && p.program.ops[at(ops[end])].repeat == region) ++end;
    going = run_region(p, stream, std::span(ops).subspan(i, end - i));
    i = end;
  }
  if (going) return;
  for (const int o : ops) publish(p.done[at(o)], kFailed);
}

bool Executor::run_region(Prepared& p, int stream, std::span<const int> ops) {
  RunContext context = context_of(p, stream);
  std::int64_t trips = 0;
  if (!enter_region(p, stream, ops.front(), trips)) return false;
  for (std::int64_t i = 0; i < trips; ++i) {
    context.iteration = i;
    const std::uint32_t done = i == trips - 1 ? kAll : static_cast<std::uint32_t>(i + 1);
    for (const int o : ops) {
      if (!execute(p, context, o, done)) return false;
    }
  }
  if (trips == 0) {
    for (const int o : ops) publish(p.done[at(o)], kAll);
  }
  return true;
}

// Waits for the trip count and reads it.
bool Executor::enter_region(Prepared& p, int stream, int first_op, std::int64_t& trips) {
  const Repeat& repeat = p.program.repeats[at(p.program.ops[at(first_op)].repeat)];
  trips = repeat.fixed_trips;
  if (!repeat.trip_count.valid()) return true;
  if (repeat.count_op >= 0 && p.program.ops[at(repeat.count_op)].stream != stream) {
    if (wait_until(p.done[at(repeat.count_op)], [](std::uint32_t v) { return v >= kAll; }) == kFailed)
      return false;
  }
  trips = *static_cast<const std::int64_t*>(base_[at(repeat.trip_count.id)]);
  if (trips >= 0 && trips <= repeat.max_trips) return true;
  try {
    fail(ErrorKind::internal, "trip count {} of the region that begins here says {}; legal: 0 to {}",
         table_[repeat.trip_count].name, trips, repeat.max_trips);
  } catch (...) {
    store_failure(p, first_op);
  }
  return false;
}

bool Executor::execute(Prepared& p, RunContext& context, int op, std::uint32_t done) {
  for (const Prepared::Event& e : p.events[at(op)]) {
    std::uint32_t target = kAll;
    if (e.inside) {
      const std::int64_t iterations = context.iteration + 1 - e.lag;
      if (iterations <= 0) continue;
      target = static_cast<std::uint32_t>(iterations);
    }
    if (wait_until(p.done[at(e.op)], [target](std::uint32_t v) { return v >= target; }) == kFailed)
      return false;
  }
  if (stop_.load(std::memory_order_relaxed)) return false;
  try {
    call(p, context, op);
  } catch (...) {
    store_failure(p, op);
    return false;
  }
  publish(p.done[at(op)], done);
  return true;
}

void Executor::call(Prepared& p, RunContext& context, int op) {
  if (measure_ != nullptr) measure_->before_op(p.index, op, context.iteration);
  const std::int64_t start = options_.time_ops ? now_ns() : 0;
  p.program.ops[at(op)].run(context);
  if (options_.time_ops) {
    const std::size_t entry = p.times_offsets[at(op)] + at(context.iteration);
    if (entry < p.times_offsets[at(op) + 1]) p.times[entry] = {start, now_ns()};
  }
  if (measure_ != nullptr) measure_->after_op(p.index, op, context.iteration);
}

// Called inside a handler. Of several failures the first is kept.
void Executor::store_failure(const Prepared& p, int op) {
  const Op& o = p.program.ops[at(op)];
  const std::string& stream = p.program.streams[at(o.stream)].name;
  Failure f;
  std::string what = "an exception of an unknown type";
  try {
    throw;
  } catch (const Error& e) {
    f.kind = e.kind();
    what = e.what();
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
  }
  f.message = fmt::format("program {}, op {}, stream {}: {}", p.program.name, o.name, stream, what);
  const std::lock_guard lock(failure_mutex_);
  if (!failure_) failure_ = std::move(f);
  stop_.store(true, std::memory_order_relaxed);
}

void* Executor::address(Buffer b, int slot) const {
  char* const base = static_cast<char*>(base_[at(b.id)]);
  return base == nullptr ? nullptr : base + slot * plan_.slot_strides[at(b.id)];
}

std::span<const OpTime> Executor::op_times(int program, int op) const {
  const Prepared& p = *prepared_[at(program)];
  if (p.times_offsets.empty()) return {};
  const std::size_t first = p.times_offsets[at(op)];
  return std::span(p.times).subspan(first, p.times_offsets[at(op) + 1] - first);
}

std::string Executor::first_nonfinite(int program) {
  const Prepared& p = *prepared_[at(program)];
  return planalto::first_nonfinite(table_, p.program, context_of(p, 0));
}

MemoryReport Executor::memory_report() const {
  PLANALTO_CHECK(measure_ != nullptr, "the executor was made without options.measure");
  return measure_->report();
}

}  // namespace planalto
