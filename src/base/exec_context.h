// SPDX-License-Identifier: Apache-2.0
// exec_context.h: what every kernel is given: the worker pool of its rank and the kernel table of the chosen ISA.
// Threads     ThreadPool::run may be called by one thread at a time; body runs once per worker, the caller is worker 0
// Errors      a body must not throw; whatever can be wrong is checked before the pool is entered
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace planalto {

namespace kernels {
struct KernelTable;
}

class ThreadPool {
 public:
  // num_threads counts the caller: 1 starts no thread.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  // Runs body(arg, worker) for worker = 0 .. num_threads-1 and returns when all have returned. Allocates nothing.
  void run(void (*body)(void* arg, int worker), void* arg);

 private:
  void work(int worker);

  int num_threads_;
  std::vector<std::thread> threads_;
  void (*body_)(void*, int) = nullptr;
  void* arg_ = nullptr;
  std::atomic<std::uint32_t> epoch_{0};    // a new value starts the workers
  std::atomic<std::uint32_t> running_{0};  // workers that have not finished the present epoch
  std::atomic<bool> stop_{false};
};

struct ExecContext {
  ThreadPool* pool = nullptr;
  const kernels::KernelTable* kernels = nullptr;
};

}  // namespace planalto
