// SPDX-License-Identifier: Apache-2.0
// hash.h: the 64-bit checksum of files (XXH3, 64 bits, no seed): finds damage, does not protect against
// forgery. Source      xxHash specification, XXH3 64 bits
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace planalto {

std::uint64_t xxh3_64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::uint64_t xxh3_64(std::string_view text, std::uint64_t seed = 0);

// The same value from pieces.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(Xxh3Stream&&) noexcept;
  Xxh3Stream& operator=(Xxh3Stream&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 16 lower-case hexadecimal digits and back; parse_hex64 gives false for anything else.
std::string hex64(std::uint64_t value);
bool parse_hex64(std::string_view text, std::uint64_t* value);

}  // namespace planalto
