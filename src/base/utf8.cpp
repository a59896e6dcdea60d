// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <fmt/core.h>

#include <cstring>

namespace planalto {

namespace {

// Length of the sequence at `p` (1..4), or 0 when it is not UTF-8. `left` >= 1.
std::int64_t sequence_length(const unsigned char* p, std::int64_t left) {
  const unsigned char lead = p[0];
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::int64_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (left < length) return 0;
  for (std::int64_t i = 1; i < length; ++i) {
    if ((p[i] & 0xC0U) != 0x80) return 0;
  }
  // The second byte carries what is left of the range: overlong forms, surrogates, beyond U+10FFFF.
  if (lead == 0xE0 && p[1] < 0xA0) return 0;
  if (lead == 0xED && p[1] > 0x9F) return 0;
  if (lead == 0xF0 && p[1] < 0x90) return 0;
  if (lead == 0xF4 && p[1] > 0x8F) return 0;
  return length;
}

}  // namespace

std::int64_t find_invalid_utf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto n = static_cast<std::int64_t>(text.size());
  std::int64_t i = 0;
  while (i < n) {
    if (i + 8 <= n) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, p + i, 8);
      if ((eight & 0x8080808080808080ULL) == 0) {
        i += 8;
        continue;
      }
    }
    const std::int64_t length = sequence_length(p + i, n - i);
    if (length == 0) return i;
    i += length;
  }
  return -1;
}

std::string printable(std::string_view text, std::int64_t max_bytes) {
  const bool cut = static_cast<std::int64_t>(text.size()) > max_bytes;
  std::string out;
  for (const char c : cut ? text.substr(0, static_cast<std::size_t>(max_bytes)) : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 || u >= 0x7F) {
      out += fmt::format("\\x{:02x}", u);
    } else {
      out += c;
    }
  }
  if (cut) out += "...";
  return out;
}

}  // namespace planalto
