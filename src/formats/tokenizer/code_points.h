// SPDX-License-Identifier: Apache-2.0
// code_points.h: walking over text that is known to be UTF-8, and bytes that may not be turned into it.
// Source      Unicode 15, table 3-7 and section 3.9 (one U+FFFD for each maximal part that is not UTF-8)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace planalto::tokenizer {

// The code point at `at`, which moves behind it. The text must be valid UTF-8.
inline char32_t next_code_point(std::string_view text, std::int64_t* at) {
  const auto byte = [&](std::int64_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[static_cast<std::size_t>(*at + i)]));
  };
  const char32_t lead = byte(0);
  char32_t c = lead;
  std::int64_t length = 1;
  if (lead >= 0xF0) {
    c = (lead & 0x07U) << 18U | (byte(1) & 0x3FU) << 12U | (byte(2) & 0x3FU) << 6U | (byte(3) & 0x3FU);
    length = 4;
  } else if (lead >= 0xE0) {
    c = (lead & 0x0FU) << 12U | (byte(1) & 0x3FU) << 6U | (byte(2) & 0x3FU);
    length = 3;
  } else if (lead >= 0xC0) {
    c = (lead & 0x1FU) << 6U | (byte(1) & 0x3FU);
    length = 2;
  }
  *at += length;
  return c;
}

// Appends the UTF-8 form of a code point that is no surrogate.
void append_utf8(char32_t code_point, std::string* out);

// White_Space of Unicode: what `\s` means in the patterns of tokenizer.json.
bool is_white_space(char32_t code_point);

// Bytes in, valid UTF-8 out, whatever the cuts between pushes: a sequence that may still become a character is held.
class LossyUtf8 {
 public:
  void push(std::string_view bytes, std::string* out);
  // What is held can no longer be completed: one U+FFFD.
  void finish(std::string* out);
  std::string_view held() const { return held_; }

 private:
  void begin(unsigned char lead, std::string* out);

  std::string held_;       // at most three bytes
  int missing_ = 0;        // continuation bytes still to come
  unsigned char low_ = 0;  // the range that the next of them must lie in
  unsigned char high_ = 0;
};

}  // namespace planalto::tokenizer
