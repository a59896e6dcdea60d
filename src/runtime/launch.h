// SPDX-License-Identifier: Apache-2.0
// launch.h: everything between built programs and a run: placed, verified, memory mapped, workers started, kernels chosen.
// Memory      owns arenas, pool and threads; nothing is allocated afterwards
// Threads     run() by one thread at a time
// Errors      memory when the arenas do not fit; internal when a program is unsound
#pragma once

#include <functional>
#include <vector>

#include "base/target.h"
#include "runtime/executor.h"

namespace planalto {

struct LaunchOptions {
  Target target;
  ExecutorOptions executor{};
};

class Launch {
 public:
  // Table and programs outlive the launch and do not change any more.
  Launch(const BufferTable& table, std::vector<const Program*> programs, const LaunchOptions& options);

  void run(const Program& program);
  std::string first_nonfinite(const Program& program);  // see runtime/nonfinite.h
  template <class T>
  T* data(Buffer b) const {
    return executor_.data<T>(b);
  }
  // The address of a persistent buffer.
  std::function<void*(Buffer)> address_of() const {
    return [this](Buffer b) { return executor_.address(b); };
  }
  const MemoryPlan& plan() const { return plan_; }
  const Executor& executor() const { return executor_; }
  const ExecContext& context() const { return context_; }

 private:
  int index_of(const Program& program) const;

  std::vector<const Program*> programs_;
  MemoryPlan plan_;
  ThreadPool pool_;
  ExecContext context_;
  Executor executor_;
};

}  // namespace planalto
