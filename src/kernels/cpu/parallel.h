// SPDX-License-Identifier: Apache-2.0
// parallel.h: how a kernel body splits its work over the pool: loops whose split is a function of counts alone.
// Numerics    a split never cuts a sum, so bits do not depend on the number of threads
// Threads     internal linkage: each ISA object has copies of its own
#pragma once

#include <atomic>
#include <cstdint>

#include "base/exec_context.h"

namespace {  // NOLINT: internal linkage is the purpose, see above

// body(begin, end, worker) over contiguous parts of [0, n), each a multiple of grain but the last.
template <class Body>
inline void parallel_ranges(const planalto::ExecContext& ctx, std::int64_t n, std::int64_t grain,
                            const Body& body) {
  if (n <= 0) return;
  const std::int64_t blocks = (n + grain - 1) / grain;
  struct Call {
    const Body* body;
    std::int64_t n, grain, blocks;
    int workers;
  } call{&body, n, grain, blocks, ctx.pool->num_threads()};
  if (blocks == 1 || call.workers == 1) {
    body(std::int64_t{0}, n, 0);
    return;
  }
  ctx.pool->run(
      [](void* arg, int worker) {
        const Call& c = *static_cast<const Call*>(arg);
        const std::int64_t begin = c.blocks * worker / c.workers * c.grain;
        std::int64_t end = c.blocks * (worker + 1) / c.workers * c.grain;
        end = end < c.n ? end : c.n;
        if (begin < end) (*c.body)(begin, end, worker);
      },
      &call);
}

// The grain of loops over rows of `cols` elements: a smaller part costs less than waking a worker.
[[gnu::always_inline]] inline std::int64_t row_grain(std::int64_t cols) {
  return cols < 8192 ? 8192 / (cols > 0 ? cols : 1) : 1;
}

// body(item, worker) for items 0 .. n-1, taken in order from a shared counter: for items of uneven cost.
template <class Body>
inline void parallel_items(const planalto::ExecContext& ctx, std::int64_t n, const Body& body) {
  if (n <= 0) return;
  if (n == 1 || ctx.pool->num_threads() == 1) {
    for (std::int64_t i = 0; i < n; ++i) body(i, 0);
    return;
  }
  struct Call {
    const Body* body;
    std::int64_t n;
    std::atomic<std::int64_t> next;
  } call{&body, n, 0};
  ctx.pool->run(
      [](void* arg, int worker) {
        Call& c = *static_cast<Call*>(arg);
        for (std::int64_t i = c.next.fetch_add(1, std::memory_order_relaxed); i < c.n;
             i = c.next.fetch_add(1, std::memory_order_relaxed)) {
          (*c.body)(i, worker);
        }
      },
      &call);
}

}  // namespace
