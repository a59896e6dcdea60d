// SPDX-License-Identifier: Apache-2.0
#include "runtime/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "runtime/memory_limit.h"

namespace planalto {

namespace {

constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
constexpr std::int64_t kCopied = std::int64_t{64} << 10;  // stays in a cache

std::byte poison_byte(std::int64_t at) {
  return static_cast<std::byte>(kPoison >> (8 * (at & 3)));
}

}  // namespace

// The first block byte by byte, then twice as much of it with each copy.
void poison(void* data, std::int64_t bytes) {
  std::byte* p = static_cast<std::byte*>(data);
  std::int64_t done = std::min<std::int64_t>(bytes, 256);
  for (std::int64_t i = 0; i < done; ++i) p[i] = poison_byte(i);
  while (done < bytes) {
    const std::int64_t step = std::min({bytes - done, done, kCopied});
    std::memcpy(p + done, p, static_cast<std::size_t>(step));
    done += step;
  }
}

std::int64_t written_bytes(const void* data, std::int64_t bytes, std::int64_t element_bytes) {
  const std::byte* p = static_cast<const std::byte*>(data);
  std::int64_t end = bytes;
  while (end % 8 != 0 && p[end - 1] == poison_byte(end - 1)) --end;
  if (end % 8 == 0) {
    constexpr std::uint64_t kWord = (std::uint64_t{kPoison} << 32) | kPoison;
    for (std::uint64_t word = kWord; end > 0; end -= 8) {
      std::memcpy(&word, p + end - 8, 8);
      if (word != kWord) break;
    }
    while (end > 0 && p[end - 1] == poison_byte(end - 1)) --end;
  }
  return std::min(bytes, (end + element_bytes - 1) / element_bytes * element_bytes);
}

Arena::Arena(std::int64_t bytes, Tier tier) : bytes_(bytes) {
  PLANALTO_CHECK(bytes >= 0, "an arena of {} bytes", bytes);
  if (bytes == 0) return;
  PLANALTO_CHECK(tier != Tier::disk, "the disk tier is not memory, and {} bytes were asked of it", bytes);
  const MemoryLimit limit = memory_limit();
  if (bytes > limit.bytes) {
    fail(ErrorKind::memory, "the {} arena needs {} bytes; {} allows this process {}", to_string(tier), bytes,
         limit.source, limit.bytes);
  }
  mapped_bytes_ = bytes + kHugePage;
  void* mapping = mmap(nullptr, static_cast<std::size_t>(mapped_bytes_), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    fail(ErrorKind::memory, "the {} arena of {} bytes cannot be mapped: {}; {} allows this process {} bytes",
         to_string(tier), bytes, std::strerror(errno), limit.source, limit.bytes);
  }
  mapping_ = mapping;
  const auto start = reinterpret_cast<std::uintptr_t>(mapping);
  const std::uintptr_t skipped = (kHugePage - start % kHugePage) % kHugePage;
  data_ = static_cast<std::byte*>(mapping) + skipped;
  madvise(data_, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // an advice: small pages do as well
}

Arena::~Arena() {
  if (mapping_ != nullptr) munmap(mapping_, static_cast<std::size_t>(mapped_bytes_));
}

Arena::Arena(Arena&& other) noexcept {
  *this = std::move(other);
}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

}  // namespace planalto
