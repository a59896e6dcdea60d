// SPDX-License-Identifier: Apache-2.0
// allocation_counter.h: counts heap allocations of the whole process, all threads, while armed.
// Invariants  malloc, calloc, realloc, aligned_alloc, posix_memalign, memalign and every operator new are seen
// Threads     arm and disarm from one thread; counting is safe from any
// Errors      with a sanitizer nothing is counted: its own allocator stands there
#pragma once

#include <cstdint>

namespace planalto::testing {

bool allocations_can_be_counted();

// Counts between its construction and stop(), or its end.
class AllocationCounter {
 public:
  AllocationCounter();
  ~AllocationCounter();
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;

  std::int64_t stop();  // the number of allocations so far
};

}  // namespace planalto::testing
