// SPDX-License-Identifier: Apache-2.0
#include "program/pack.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace planalto {

namespace {

using Order = std::vector<std::size_t>;

// Pairs of blocks that the search may look at after the first orders: a bound of its time that is the same on any machine.
constexpr double kSearchWork = 3e8;
constexpr int kMostPromotions = 200;
constexpr int kMostSwaps = 4000;
// Swaps go on only while the packing is larger than the lower bound by more than this part of it.
constexpr double kGoodEnough = 0.05;

class Packer {
 public:
  Packer(const std::vector<Block>& blocks, const Conflicts& conflicts)
      : blocks_(blocks), conflicts_(conflicts) {}

  // Each block of the order at the lowest offset where it fits among those placed before it.
  Packing first_fit(const Order& order) {
    Packing result;
    result.offsets.assign(blocks_.size(), 0);
    placed_.clear();
    for (const std::size_t b : order) {
      const std::int64_t bytes = blocks_[b].bytes;
      if (bytes == 0) continue;
      std::int64_t offset = 0;
      for (const Placed& p : placed_) {
        if (p.offset >= offset + bytes) break;
        if (p.end > offset && conflicts_.has(b, p.block)) offset = p.end;
      }
      const auto later = [](std::int64_t value, const Placed& p) { return value < p.offset; };
      placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), offset, later),
                     {offset, offset + bytes, b});
      result.offsets[b] = offset;
      result.extent = std::max(result.extent, offset + bytes);
    }
    return result;
  }

  // Turns the packing upside down; it stays legal.
  Packing mirrored(const Packing& p) const {
    Packing result = p;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      if (blocks_[b].bytes > 0) result.offsets[b] = p.extent - p.offsets[b] - blocks_[b].bytes;
    }
    return result;
  }

  std::size_t top(const Packing& p) const {
    std::size_t best = blocks_.size();
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      if (blocks_[b].bytes == 0 || p.offsets[b] + blocks_[b].bytes != p.extent) continue;
      if (best == blocks_.size() || blocks_[b].blemish < blocks_[best].blemish) best = b;
    }
    return best;
  }

  int blemish(const Packing& p) const {
    const std::size_t b = top(p);
    return b == blocks_.size() ? 0 : blocks_[b].blemish;
  }

  std::vector<Order> orders() const {
    const auto duration = [&](std::size_t b) {
      return static_cast<double>(blocks_[b].end - blocks_[b].start + 1);
    };
    const auto bytes = [&](std::size_t b) { return static_cast<double>(blocks_[b].bytes); };
    const std::vector<std::function<double(std::size_t)>> keys = {
        [&](std::size_t b) { return -bytes(b); },
        [&](std::size_t b) { return -duration(b); },
        [&](std::size_t b) { return -bytes(b) * duration(b); },
        [&](std::size_t b) { return static_cast<double>(blocks_[b].start); },
        [&](std::size_t b) { return -static_cast<double>(blocks_[b].end); },
    };
    std::vector<Order> result;
    for (const auto& key : keys) {
      Order order(blocks_.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const double ka = key(a);
        const double kb = key(b);
        return ka != kb ? ka < kb : blocks_[a].bytes > blocks_[b].bytes;
      });
      result.push_back(std::move(order));
    }
    result.push_back(by_crowding());
    return result;
  }

 private:
  struct Placed {
    std::int64_t offset, end;
    std::size_t block;
  };

  // Blocks that live where the most bytes live come first: there the packing has the least freedom.
  Order by_crowding() const {
    int last = 0;
    for (const Block& b : blocks_) last = std::max(last, b.end);
    std::vector<std::int64_t> live(static_cast<std::size_t>(last) + 2, 0);
    for (const Block& b : blocks_) {
      live[static_cast<std::size_t>(b.start)] += b.bytes;
      live[static_cast<std::size_t>(b.end) + 1] -= b.bytes;
    }
    std::partial_sum(live.begin(), live.end(), live.begin());
    std::vector<std::int64_t> crowd(blocks_.size(), 0);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      for (int i = blocks_[b].start; i <= blocks_[b].end; ++i)
        crowd[b] = std::max(crowd[b], live[static_cast<std::size_t>(i)]);
    }
    Order order(blocks_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return crowd[a] != crowd[b] ? crowd[a] > crowd[b] : blocks_[a].bytes > blocks_[b].bytes;
    });
    return order;
  }

  const std::vector<Block>& blocks_;
  const Conflicts& conflicts_;
  std::vector<Placed> placed_;  // by offset
};

}  // namespace

Packing pack(const std::vector<Block>& blocks, const Conflicts& conflicts, std::int64_t lower_bound) {
  Packer packer(blocks, conflicts);
  Packing best;
  best.extent = std::numeric_limits<std::int64_t>::max();
  Order best_order;
  // True when nothing better can come.
  const auto offer = [&](const Packing& p, const Order& order) {
    for (const Packing& candidate : {p, packer.mirrored(p)}) {
      if (candidate.extent > best.extent) return false;
      if (candidate.extent < best.extent || packer.blemish(candidate) < packer.blemish(best)) {
        best = candidate;
        best_order = order;
      }
    }
    return best.extent <= lower_bound && packer.blemish(best) == 0;
  };
  for (const Order& order : packer.orders()) {
    if (offer(packer.first_fit(order), order)) return best;
  }
  const double pairs = static_cast<double>(blocks.size()) * static_cast<double>(blocks.size()) + 1;
  const int tries = static_cast<int>(std::min<double>(kMostPromotions + kMostSwaps, kSearchWork / pairs));
  Order order = best_order;
  int i = 0;
  for (; i < std::min(tries, kMostPromotions) && best.extent > lower_bound; ++i) {
    const Packing p = packer.first_fit(order);
    if (offer(p, order)) return best;
    const auto it = std::find(order.begin(), order.end(), packer.top(p));
    if (it == order.end() || it == order.begin()) break;
    std::rotate(order.begin(), it, it + 1);
  }
  const auto good_enough =
      lower_bound + static_cast<std::int64_t>(kGoodEnough * static_cast<double>(lower_bound));
  std::minstd_rand random(1);
  for (; i < tries && best.extent > good_enough; ++i) {
    order = best_order;
    for (int k = 0; k < 2; ++k) std::swap(order[random() % order.size()], order[random() % order.size()]);
    const Packing p = packer.first_fit(order);
    if (offer(p, order)) return best;
    if (p.extent == best.extent) best_order = order;  // a step sideways
  }
  return best;
}

}  // namespace planalto
