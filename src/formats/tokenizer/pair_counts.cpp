// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/pair_counts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace planalto::tokenizer {

std::uint64_t PairCounts::key_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U |
         static_cast<std::uint32_t>(right);
}

void PairCounts::add_piece(const std::vector<std::int32_t>& symbols, std::int64_t count) {
  PLANALTO_CHECK(!queued_, "a piece added after the first pair was asked for");
  const auto begin = static_cast<std::int64_t>(symbols_.size());
  const auto n = static_cast<std::int64_t>(symbols.size());
  for (std::int64_t i = 0; i < n; ++i) {
    symbols_.push_back(symbols[static_cast<std::size_t>(i)]);
    previous_.push_back(i > 0 ? begin + i - 1 : -1);
    next_.push_back(i + 1 < n ? begin + i + 1 : -1);
    weight_.push_back(count);
    if (i > 0) {
      insert(symbols[static_cast<std::size_t>(i) - 1], symbols[static_cast<std::size_t>(i)], begin + i - 1,
             count);
    }
  }
}

void PairCounts::insert(std::int32_t left, std::int32_t right, std::int64_t place, std::int64_t count) {
  const std::uint64_t key = key_of(left, right);
  Stat& stat = stats_[key];
  stat.count += count;
  stat.places.push_back(place);
  if (queued_) grown_.push_back(key);
}

void PairCounts::remove(std::int32_t left, std::int32_t right, std::int64_t count) {
  const auto found = stats_.find(key_of(left, right));
  if (found == stats_.end()) return;  // the pair being joined, or one that was forgotten
  found->second.count -= count;
  if (found->second.count == 0) stats_.erase(found);
}

void PairCounts::queue_all() {
  std::vector<Entry> entries;
  entries.reserve(stats_.size());
  for (const auto& [key, stat] : stats_) entries.push_back({stat.count, key});
  queue_ = std::priority_queue<Entry>(std::less<Entry>(), std::move(entries));
  queued_ = true;
}

std::optional<SymbolPair> PairCounts::best(std::int64_t* count) {
  if (!queued_) queue_all();
  while (!queue_.empty()) {
    const Entry top = queue_.top();
    const auto found = stats_.find(top.key);
    if (found != stats_.end() && found->second.count == top.count) {
      *count = top.count;
      return SymbolPair{static_cast<std::int32_t>(top.key >> 32U),
                        static_cast<std::int32_t>(top.key & 0xFFFFFFFFU)};
    }
    queue_.pop();
    // A count that has fallen since takes its new place; one that has risen was queued again when it did.
    if (found != stats_.end() && found->second.count < top.count) queue_.push({found->second.count, top.key});
  }
  return std::nullopt;
}

void PairCounts::forget(SymbolPair pair) {
  stats_.erase(key_of(pair.left, pair.right));
}

void PairCounts::join(SymbolPair pair, std::int32_t joined) {
  const auto found = stats_.find(key_of(pair.left, pair.right));
  PLANALTO_CHECK(found != stats_.end(), "the pair {} {} does not occur", pair.left, pair.right);
  std::vector<std::int64_t> places = std::move(found->second.places);
  stats_.erase(found);
  // From left to right inside a piece; a token that two pairs spell may have left them in another order.
  std::ranges::sort(places);
  for (const std::int64_t place : places) {
    const auto left = static_cast<std::size_t>(place);
    if (symbols_[left] != pair.left || next_[left] < 0) continue;
    const auto right = static_cast<std::size_t>(next_[left]);
    if (symbols_[right] != pair.right) continue;
    const std::int64_t before = previous_[left];
    const std::int64_t behind = next_[right];
    const std::int64_t count = weight_[left];
    symbols_[left] = joined;
    symbols_[right] = -1;
    next_[left] = behind;
    if (before >= 0) {
      const std::int32_t neighbour = symbols_[static_cast<std::size_t>(before)];
      remove(neighbour, pair.left, count);
      insert(neighbour, joined, before, count);
    }
    if (behind >= 0) {
      const std::int32_t neighbour = symbols_[static_cast<std::size_t>(behind)];
      previous_[static_cast<std::size_t>(behind)] = place;
      remove(pair.right, neighbour, count);
      insert(joined, neighbour, place, count);
    }
  }
  std::ranges::sort(grown_);
  grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
  for (const std::uint64_t key : grown_) {
    const auto grown = stats_.find(key);
    if (grown != stats_.end()) queue_.push({grown->second.count, key});
  }
  grown_.clear();
}

}  // namespace planalto::tokenizer
