// SPDX-License-Identifier: Apache-2.0
// piece_cache.h: the ids of short pieces of text seen before: words repeat, merging them again does not pay.
// Memory      bounded: 32,768 slots and two arenas, all dropped when an arena is full; about 2.4 MB
// Threads     one thread at a time
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace planalto::tokenizer {

class PieceCache {
 public:
  PieceCache();

  // The ids, or an empty span when the piece is not there. Valid until the next put.
  std::span<const std::int32_t> find(std::string_view bytes) const;
  void put(std::string_view bytes, std::span<const std::int32_t> ids);

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t key_at = 0;
    std::uint32_t ids_at = 0;
    std::uint16_t key_bytes = 0;  // 0: empty
    std::uint16_t num_ids = 0;
  };

  std::vector<Slot> slots_;
  std::string keys_;
  std::vector<std::int32_t> ids_;
};

}  // namespace planalto::tokenizer
