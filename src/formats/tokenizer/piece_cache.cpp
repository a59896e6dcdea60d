// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/piece_cache.h"

#include "base/hash.h"

namespace planalto::tokenizer {

namespace {

constexpr std::size_t kNumSlots = 1 << 15;
constexpr std::size_t kMaxKeyBytes = 64;
constexpr std::size_t kArenaBytes = 1 << 19;

std::size_t slot_of(std::uint64_t hash) {
  return hash & (kNumSlots - 1);
}

}  // namespace

PieceCache::PieceCache() : slots_(kNumSlots) {
  keys_.reserve(kArenaBytes + kMaxKeyBytes);
  ids_.reserve(kArenaBytes / 2);
}

std::span<const std::int32_t> PieceCache::find(std::string_view bytes) const {
  if (bytes.empty() || bytes.size() > kMaxKeyBytes) return {};
  const std::uint64_t hash = xxh3_64(bytes);
  const Slot& slot = slots_[slot_of(hash)];
  if (slot.hash != hash || slot.key_bytes != bytes.size()) return {};
  if (std::string_view(keys_).substr(slot.key_at, slot.key_bytes) != bytes) return {};
  return std::span(ids_).subspan(slot.ids_at, slot.num_ids);
}

void PieceCache::put(std::string_view bytes, std::span<const std::int32_t> ids) {
  if (bytes.empty() || bytes.size() > kMaxKeyBytes || ids.empty()) return;
  if (keys_.size() + bytes.size() > kArenaBytes) {  // a piece has no more ids than bytes
    slots_.assign(kNumSlots, {});
    keys_.clear();
    ids_.clear();
  }
  const std::uint64_t hash = xxh3_64(bytes);
  // A piece that falls on a taken slot replaces the older one, whose bytes stay in the arena until it is dropped.
  slots_[slot_of(hash)] = {hash, static_cast<std::uint32_t>(keys_.size()),
                           static_cast<std::uint32_t>(ids_.size()), static_cast<std::uint16_t>(bytes.size()),
                           static_cast<std::uint16_t>(ids.size())};
  keys_.append(bytes);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

}  // namespace planalto::tokenizer
