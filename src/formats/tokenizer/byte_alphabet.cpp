// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/byte_alphabet.h"

#include <array>

#include "formats/tokenizer/code_points.h"

namespace planalto::tokenizer {

namespace {

constexpr char32_t kFirstSubstitute = 0x100;
constexpr std::int64_t kAlphabetEnd = 0x100 + 68;

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, kAlphabetEnd> byte{};  // by code point; -1 where it is none of ours
};

constexpr bool stands_for_itself(int b) {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

constexpr Alphabet make_alphabet() {
  Alphabet a;
  for (auto& b : a.byte) b = -1;
  char32_t substitute = kFirstSubstitute;
  for (int b = 0; b < 256; ++b) {
    const char32_t c = stands_for_itself(b) ? static_cast<char32_t>(b) : substitute++;
    a.character[static_cast<std::size_t>(b)] = c;
    a.byte[c] = static_cast<std::int16_t>(b);
  }
  return a;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t alphabet_character(std::uint8_t byte) {
  return kAlphabet.character[byte];
}

std::string spell_bytes(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 2);
  for (const char c : bytes) append_utf8(alphabet_character(static_cast<std::uint8_t>(c)), &out);
  return out;
}

std::optional<std::string> read_spelling(std::string_view token) {
  std::string bytes;
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(token.size());) {
    const char32_t c = next_code_point(token, &at);
    if (c >= kAlphabet.byte.size() || kAlphabet.byte[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[c]));
  }
  return bytes;
}

}  // namespace planalto::tokenizer
