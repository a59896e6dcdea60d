// SPDX-License-Identifier: Apache-2.0
// pair_counts.h: all pieces of a training text as linked symbols, and the counts of neighbouring pairs kept up to date
// while pairs are joined.
// Memory      28 bytes a symbol, 8 bytes an occurrence of a pair, and the pairs
// Threads     one
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace planalto::tokenizer {

struct SymbolPair {
  std::int32_t left = 0;
  std::int32_t right = 0;
};

class PairCounts {
 public:
  // A piece that occurs `count` times, as first symbols. All pieces are added before the first call of best.
  void add_piece(const std::vector<std::int32_t>& symbols, std::int64_t count);
  // The pair to join next and how often it occurs; nothing when no pair is left.
  std::optional<SymbolPair> best(std::int64_t* count);
  // Joins every occurrence of the pair into `joined`, from left to right.
  void join(SymbolPair pair, std::int32_t joined);
  // Takes the pair out: best does not give it again.
  void forget(SymbolPair pair);

 private:
  struct Stat {
    std::int64_t count = 0;
    std::vector<std::int64_t> places;  // of the left symbol; some may be stale
  };
  struct Entry {
    std::int64_t count = 0;
    std::uint64_t key = 0;
    bool operator<(const Entry& other) const {  // the greatest is the best
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right);
  void remove(std::int32_t left, std::int32_t right, std::int64_t count);
  void insert(std::int32_t left, std::int32_t right, std::int64_t place, std::int64_t count);
  void queue_all();

  std::vector<std::int32_t> symbols_;  // -1 once joined to the left neighbour
  std::vector<std::int64_t> previous_;
  std::vector<std::int64_t> next_;    // -1 at the end of a piece
  std::vector<std::int64_t> weight_;  // how often the piece occurs
  std::unordered_map<std::uint64_t, Stat> stats_;
  std::priority_queue<Entry> queue_;  // may hold old counts; best corrects them
  std::vector<std::uint64_t> grown_;  // pairs that the join in hand has made more frequent
  bool queued_ = false;
};

}  // namespace planalto::tokenizer
