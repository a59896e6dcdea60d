// SPDX-License-Identifier: Apache-2.0
#include "base/exec_context.h"

#include "base/error.h"

namespace planalto {

namespace {

// A short spin catches the common case (the other side is a few microseconds away); after it the thread sleeps, so
// that ranks which share a core do not starve each other.
constexpr int kSpins = 2000;

void wait_while_equal(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    __builtin_ia32_pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads) {
  PLANALTO_CHECK(num_threads >= 1, "a pool needs at least one thread, not {}", num_threads);
  threads_.reserve(static_cast<std::size_t>(num_threads - 1));
  for (int w = 1; w < num_threads; ++w) threads_.emplace_back([this, w] { work(w); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (auto& t : threads_) t.join();
}

void ThreadPool::run(void (*body)(void*, int), void* arg) {
  if (num_threads_ == 1) {
    body(arg, 0);
    return;
  }
  body_ = body;
  arg_ = arg;
  running_.store(static_cast<std::uint32_t>(num_threads_ - 1), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  body(arg, 0);
  for (std::uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    wait_while_equal(running_, left);
  }
}

void ThreadPool::work(int worker) {
  std::uint32_t seen = 0;
  while (true) {
    wait_while_equal(epoch_, seen);
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    body_(arg_, worker);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

}  // namespace planalto
