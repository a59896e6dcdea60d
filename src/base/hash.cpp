// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <fmt/core.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace planalto {

struct Xxh3Stream::State {
  XXH3_state_t xxh;
};

std::uint64_t xxh3_64(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t xxh3_64(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh);
}
Xxh3Stream::~Xxh3Stream() = default;
Xxh3Stream::Xxh3Stream(Xxh3Stream&&) noexcept = default;
Xxh3Stream& Xxh3Stream::operator=(Xxh3Stream&&) noexcept = default;

void Xxh3Stream::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

void Xxh3Stream::update(std::string_view text) {
  update(std::as_bytes(std::span(text.data(), text.size())));
}

std::uint64_t Xxh3Stream::digest() const {
  return XXH3_64bits_digest(&state_->xxh);
}

std::string hex64(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

bool parse_hex64(std::string_view text, std::uint64_t* value) {
  if (text.size() != 16) return false;
  std::uint64_t v = 0;
  for (const char c : text) {
    std::uint64_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<std::uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<std::uint64_t>(c - 'a') + 10;
    } else {
      return false;
    }
    v = v << 4 | digit;
  }
  *value = v;
  return true;
}

}  // namespace planalto
