// SPDX-License-Identifier: Apache-2.0
// arena.h: one contiguous range of memory of a tier, mapped at launch; and the poison that shows what was never written.
// Memory      owns the mapping; pages count as resident only once they are touched, poisoning touches all
// Errors      memory: the range is more than this process may hold, or cannot be mapped; says what was asked and what is allowed
// Units       bytes; the start is aligned to 2 MiB
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/buffer.h"

namespace planalto {

// A signalling NaN in fp32, and so is each half of it in bf16; as an integer or fp64 it is absurdly large.
constexpr std::uint32_t kPoison = 0x7FA17FA1U;

void poison(void* data, std::int64_t bytes);
// The number of bytes from the start up to the last one that was written since poison(); elements of `element_bytes` (1, 2, 4
// or 8) count as a whole. data is aligned to 8 bytes. What was written is taken for unwritten only where it equals the poison.
std::int64_t written_bytes(const void* data, std::int64_t bytes, std::int64_t element_bytes);

class Arena {
 public:
  Arena() = default;
  // tier: device or host, which are the same memory on a CPU rank.
  Arena(std::int64_t bytes, Tier tier);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* data() const { return data_; }  // null when the arena has no bytes
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  void* mapping_ = nullptr;
  std::int64_t mapped_bytes_ = 0;
};

}  // namespace planalto
