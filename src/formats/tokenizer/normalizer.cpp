// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
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

struct Range {
  utf8proc_int32_t first;
  utf8proc_int32_t last;
};

// Marks that Unicode 10 to 15 added, and one composition (U+11938). The reference has the normal forms of Unicode 9
// (found by asking it about every mark of utf8proc's tables): to it these neither move nor compose, and hold up the
// composition of what stands around them.
constexpr auto kYounger = std::to_array<Range>(
    {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
     {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
     {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
     {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
     {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
     {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
     {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}});

bool younger_than_reference(utf8proc_int32_t c) {
  if (c < kYounger.front().first) return false;
  const auto* range = std::lower_bound(kYounger.begin(), kYounger.end(), c,
                                       [](const Range& r, utf8proc_int32_t value) { return r.last < value; });
  return range != kYounger.end() && range->first <= c;
}

int combining_class(utf8proc_int32_t c) {
  return younger_than_reference(c) ? 0 : utf8proc_get_property(c)->combining_class;
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

// Overwrites what it is given.
void append_composed(std::span<utf8proc_int32_t> points, std::string* out) {
  const utf8proc_ssize_t n =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  PLANALTO_CHECK(n >= 0, "composition of {} code points: {}", points.size(), n);
  for (const utf8proc_int32_t c : points.first(static_cast<std::size_t>(n)))
    append_utf8(static_cast<char32_t>(c), out);
}

void append_nfc(std::string_view text, std::string* out) {
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(text.size());) {
    const char32_t c = next_code_point(text, &at);
    if (c < kFirstWithParts || younger_than_reference(static_cast<utf8proc_int32_t>(c))) {
      points.push_back(static_cast<utf8proc_int32_t>(c));
    } else {
      append_decomposed(c, &points);
    }
  }
  order_marks(&points);
  // Composed in stretches that no composition crosses.
  for (auto begin = points.begin(); begin != points.end();) {
    const auto end = std::find_if(begin + 1, points.end(), younger_than_reference);
    append_composed(std::span(begin, end), out);
    begin = end;
  }
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
