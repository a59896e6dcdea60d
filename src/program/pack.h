// SPDX-License-Identifier: Apache-2.0
// pack.h: offsets for blocks of which some must not overlap: the packing behind placement, knows nothing of
// ops. Invariants  blocks in conflict get disjoint ranges; the same input gives the same offsets Units sizes
// and offsets in bytes, multiples of kAlignment Source      dynamic storage allocation by first fit in
// several orders, then promotion of the block that sticks out
#pragma once

#include <cstdint>
#include <vector>

namespace planalto {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t align_up(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

struct Block {
  std::int64_t bytes = 0;
  int start = 0, end = 0;  // first and last op, for the orders that are tried
  int blemish = 0;         // of equal packings the one is taken whose topmost block has the smallest
};

// A symmetric relation between blocks, one bit a pair.
class Conflicts {
 public:
  explicit Conflicts(std::size_t blocks) : words_((blocks + 63) / 64), bits_(blocks * words_, 0) {}
  void add(std::size_t a, std::size_t b) {
    bits_[a * words_ + b / 64] |= std::uint64_t{1} << (b % 64);
    bits_[b * words_ + a / 64] |= std::uint64_t{1} << (a % 64);
  }
  bool has(std::size_t a, std::size_t b) const { return ((bits_[a * words_ + b / 64] >> (b % 64)) & 1) != 0; }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

struct Packing {
  std::vector<std::int64_t> offsets;
  std::int64_t extent = 0;
};

// lower_bound: no packing is smaller; the search stops when it is reached.
Packing pack(const std::vector<Block>& blocks, const Conflicts& conflicts, std::int64_t lower_bound);

}  // namespace planalto
