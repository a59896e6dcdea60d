// SPDX-License-Identifier: Apache-2.0
#include "support/allocation_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLANALTO_COUNTS_ALLOCATIONS 0
#else
#define PLANALTO_COUNTS_ALLOCATIONS 1
#endif

namespace planalto::testing {

namespace {

constinit std::atomic<bool> armed{false};
constinit std::atomic<std::int64_t> allocations{0};

[[maybe_unused]] void count() {
  if (armed.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

bool allocations_can_be_counted() {
  return PLANALTO_COUNTS_ALLOCATIONS != 0;
}

AllocationCounter::AllocationCounter() {
  allocations.store(0);
  armed.store(true);
}

AllocationCounter::~AllocationCounter() {
  armed.store(false);
}

std::int64_t AllocationCounter::stop() {
  armed.store(false);
  return allocations.load();
}

}  // namespace planalto::testing

#if PLANALTO_COUNTS_ALLOCATIONS
// The C library keeps its allocator under these names as well. operator new of libstdc++ calls malloc and aligned_alloc.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
// NOLINTEND(bugprone-reserved-identifier)

void* malloc(std::size_t bytes) {
  planalto::testing::count();
  return __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) {
  planalto::testing::count();
  return __libc_calloc(count, bytes);
}

void* realloc(void* old, std::size_t bytes) {
  planalto::testing::count();
  return __libc_realloc(old, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  planalto::testing::count();
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return memalign(alignment, bytes);
}

int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) {
  void* p = memalign(alignment, bytes);
  if (p == nullptr) return ENOMEM;
  *result = p;
  return 0;
}
}
#endif
