// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "formats/tokenizer/code_points.h"
#include "formats/tokenizer/component.h"

namespace planalto::tokenizer {

namespace {

constexpr char32_t kFirstWithParts = 0xC0;  // below it no character has a decomposition

// Every character below U+0300 is its own normal form and none of them combines with what stands before it.
bool may_change(std::string_view text) {
  // U+0300 begins with 0xCC; every later character has a larger lead byte.
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

int combining_class(utf8proc_int32_t c) {
  return utf8proc_get_property(c)->combining_class;
}

void append_decomposed(char32_t c, std::vector<utf8proc_int32_t>* out) {
  // The longest canonical decomposition has 4 characters.
  std::array<utf8proc_int32_t, 16> parts{};
  int boundclass = 0;
  const utf8proc_ssize_t n = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundclass);
  PLANALTO_CHECK(n >= 0 && n <= static_cast<utf8proc_ssize_t>(parts.size()), "decomposition of U+{:04X}: {}",
                 static_cast<std::uint32_t>(c), n);
  out->insert(out->end(), parts.begin(), parts.begin() + n);
}

// Canonical order. utf8proc's own ordering takes quadratic time on a long run of marks.
void order_marks(std::vector<utf8proc_int32_t>* text) {
  for (auto begin = text->begin(); begin != text->end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, text->end(), [](auto c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

void append_nfc(std::string_view text, std::string* out) {
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(text.size());) {
    const char32_t c = next_code_point(text, &at);
    if (c < kFirstWithParts) {
      points.push_back(static_cast<utf8proc_int32_t>(c));
    } else {
      append_decomposed(c, &points);
    }
  }
  order_marks(&points);
  const utf8proc_ssize_t n =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  PLANALTO_CHECK(n >= 0, "composition of {} code points: {}", points.size(), n);
  for (utf8proc_ssize_t i = 0; i < n; ++i)
    append_utf8(static_cast<char32_t>(points[static_cast<std::size_t>(i)]), out);
}

}  // namespace

Normalizer::Normalizer(const JsonValue& value, const std::string& where) {
  if (value.is_null()) return;
  for (const Component& step : Component(value, where).flat("normalizers")) {
    if (step.type() != "NFC") step.refuse("null, NFC, Sequence");
    step.allow_only({});
    nfc_ = true;
  }
}

std::string_view Normalizer::apply(std::string_view text, std::string* buffer) const {
  if (!nfc_ || !may_change(text)) return text;
  buffer->clear();
  append_nfc(text, buffer);
  return *buffer;
}

}  // namespace planalto::tokenizer
