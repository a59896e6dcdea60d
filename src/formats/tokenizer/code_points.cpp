// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/code_points.h"

namespace planalto::tokenizer {

void append_utf8(char32_t code_point, std::string* out) {
  const auto put = [&](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0U | code_point >> 6U);
    put(0x80U | (code_point & 0x3FU));
  } else if (code_point < 0x10000) {
    put(0xE0U | code_point >> 12U);
    put(0x80U | (code_point >> 6U & 0x3FU));
    put(0x80U | (code_point & 0x3FU));
  } else {
    put(0xF0U | code_point >> 18U);
    put(0x80U | (code_point >> 12U & 0x3FU));
    put(0x80U | (code_point >> 6U & 0x3FU));
    put(0x80U | (code_point & 0x3FU));
  }
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
}

void LossyUtf8::begin(unsigned char lead, std::string* out) {
  if (lead < 0x80) {
    out->push_back(static_cast<char>(lead));
    return;
  }
  if (lead < 0xC2 || lead > 0xF4) {
    out->append(kReplacement);
    return;
  }
  missing_ = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  // Overlong forms, surrogates and values beyond U+10FFFF show at the second byte.
  low_ = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  high_ = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  held_.assign(1, static_cast<char>(lead));
}

void LossyUtf8::push(std::string_view bytes, std::string* out) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (missing_ > 0 && byte >= low_ && byte <= high_) {
      held_.push_back(c);
      low_ = 0x80;
      high_ = 0xBF;
      if (--missing_ == 0) {
        out->append(held_);
        held_.clear();
      }
      continue;
    }
    finish(out);
    begin(byte, out);
  }
}

void LossyUtf8::finish(std::string* out) {
  if (missing_ > 0) out->append(kReplacement);
  missing_ = 0;
  held_.clear();
}

}  // namespace planalto::tokenizer
