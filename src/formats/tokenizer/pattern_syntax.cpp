// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/pattern_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "formats/tokenizer/code_points.h"
#include "formats/tokenizer/unicode_newer.h"

namespace planalto::tokenizer {

namespace {

constexpr std::int64_t kMaxPatternBytes = 1 << 16;
constexpr char32_t kMaxCodePoint = 0x10FFFF;

constexpr auto kCategories =
    std::to_array<std::string_view>({"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd",
                                     "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm",
                                     "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cn"});

// Oniguruma lets these pairs match one character when case is ignored (ligatures, sharp s); PCRE2 does not.
constexpr auto kFoldingPairs = std::to_array<std::string_view>({"ff", "fi", "fl", "ss", "st"});

bool is_alphanumeric(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string quote_code_point(char32_t c) {
  if (is_alphanumeric(c)) return std::string(1, static_cast<char>(c));
  return fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(c));
}

// One character or one class, as an escape or a plain character gives it.
struct Item {
  std::string text;           // for PCRE2
  std::optional<char32_t> c;  // nothing for a class
};

class Rewriter {
 public:
  Rewriter(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (!at_end()) step();
    if (!groups_.empty()) refuse("a group that is not closed");
    return std::move(out_);
  }

 private:
  bool at_end() const { return at_ == static_cast<std::int64_t>(pattern_.size()); }
  char peek(std::int64_t ahead = 0) const {
    const std::int64_t i = at_ + ahead;
    return i < static_cast<std::int64_t>(pattern_.size()) ? pattern_[static_cast<std::size_t>(i)] : '\0';
  }
  bool accept(std::string_view text) {
    if (!pattern_.substr(static_cast<std::size_t>(at_)).starts_with(text)) return false;
    at_ += static_cast<std::int64_t>(text.size());
    return true;
  }
  bool caseless() const { return !groups_.empty() && groups_.back(); }

  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorKind::data, "{}: the pattern has {} before byte {} of \"{}\", which is not supported", where_,
         what, at_, printable(pattern_, 400));
  }

  // A finished piece of the pattern; `repeatable`: a quantifier may follow.
  void emit(std::string_view text, bool repeatable) {
    out_.append(text);
    repeatable_ = repeatable;
    last_literal_ = 0;
  }

  void step();
  void open_group();
  void close_group();
  void quantifier();
  bool braces();
  void literal(char32_t c);
  void set();
  Item set_item();
  Item escape();
  Item property(char kind);
  char32_t hex_code_point(std::int64_t num_digits);

  std::string_view pattern_;
  std::string_view where_;
  std::int64_t at_ = 0;
  std::string out_;
  std::vector<bool> groups_;  // open ones; true inside (?i:
  bool repeatable_ = false;
  char last_literal_ = 0;  // the literal before this one when case is ignored
};

void Rewriter::step() {
  switch (peek()) {
    case '\\': {
      Item item = escape();
      if (item.c) return literal(*item.c);
      return emit(item.text, true);
    }
    case '[':
      return set();
    case '(':
      return open_group();
    case ')':
      return close_group();
    case '|':
      ++at_;
      return emit("|", false);
    case '.':
      ++at_;
      return emit(".", true);
    case '*':
    case '+':
    case '?':
      return quantifier();
    case '{':
      if (braces()) return;
      ++at_;
      return literal('{');
    case '^':
      ++at_;
      refuse("the anchor ^");
    case '$':
      ++at_;
      refuse("the anchor $");
    default:
      return literal(next_code_point(pattern_, &at_));
  }
}

void Rewriter::open_group() {
  static constexpr auto kOpenings =
      std::to_array<std::string_view>({"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"});
  for (const std::string_view opening : kOpenings) {
    if (!accept(opening)) continue;
    groups_.push_back(caseless() || opening == "(?i:");
    return emit(opening, false);
  }
  ++at_;
  if (peek() == '?') refuse("a group of an unknown kind");
  groups_.push_back(caseless());
  emit("(", false);
}

void Rewriter::close_group() {
  ++at_;
  if (groups_.empty()) refuse("a closing bracket too many");
  groups_.pop_back();
  emit(")", true);
}

void Rewriter::quantifier() {
  if (!repeatable_) refuse("a repetition of nothing or of a repetition");
  std::string text(1, peek());
  ++at_;
  if (peek() == '?' || peek() == '+') text += pattern_[static_cast<std::size_t>(at_++)];
  emit(text, false);
}

// {n} {n,} {n,m} {,m}: true when there is one. Anything else after a brace is literal text.
bool Rewriter::braces() {
  std::int64_t i = 1;
  const auto digits = [&] {
    std::string text;
    while (peek(i) >= '0' && peek(i) <= '9') text += peek(i++);
    return text;
  };
  const std::string low = digits();
  const bool comma = peek(i) == ',';
  if (comma) ++i;
  const std::string high = comma ? digits() : std::string();
  if (peek(i) != '}' || (low.empty() && high.empty())) return false;
  at_ += i + 1;
  if (!repeatable_) refuse("a repetition of nothing or of a repetition");
  // Here the two syntaxes part: {n}? and {n,m}+ are other things for Oniguruma.
  if (peek() == '+' || (peek() == '?' && !comma)) refuse("a suffix after {}");
  std::string text = fmt::format("{{{}{}{}}}", low.empty() ? "0" : low, comma ? "," : "", high);
  if (accept("?")) text += '?';
  emit(text, false);
  return true;
}

void Rewriter::literal(char32_t c) {
  if (is_newer_character(c)) refuse("a character newer than Unicode 14");
  const char before = last_literal_;
  emit(quote_code_point(c), true);
  if (!caseless()) return;
  if (c >= 0x80) refuse("a character outside ASCII where case is ignored");
  const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : static_cast<char>(c);
  const std::array<char, 2> pair = {before, lower};
  if (std::ranges::find(kFoldingPairs, std::string_view(pair.data(), 2)) != kFoldingPairs.end()) {
    refuse("letters that fold together where case is ignored");
  }
  last_literal_ = lower;
}

void Rewriter::set() {
  ++at_;
  std::string text = "[";
  if (accept("^")) text += '^';
  if (peek() == ']') refuse("a set that begins with ]");
  bool first = true;
  while (peek() != ']') {
    if (at_end()) refuse("a set that is not closed");
    const bool plain_minus = peek() == '-';
    const Item item = set_item();
    if (plain_minus && !first && peek() != ']') refuse("a minus inside a set that is no range");
    first = false;
    text += item.text;
    if (peek() != '-' || peek(1) == ']' || plain_minus) continue;
    ++at_;
    const Item last = set_item();
    if (!item.c || !last.c || *last.c < *item.c) refuse("a range of a set without two ascending characters");
    text += '-';
    text += last.text;
  }
  ++at_;
  emit(text + "]", true);
}

Item Rewriter::set_item() {
  if (at_end()) refuse("a set that is not closed");
  if (peek() == '[') refuse("a set inside a set");
  if (peek() == '&' && peek(1) == '&') refuse("an intersection of sets");
  Item item;
  if (peek() == '\\') {
    item = escape();
  } else {
    item.c = next_code_point(pattern_, &at_);
  }
  if (!item.c) return item;
  if (is_newer_character(*item.c)) refuse("a character newer than Unicode 14");
  if (caseless() && *item.c >= 0x80) refuse("a character outside ASCII where case is ignored");
  item.text = quote_code_point(*item.c);
  return item;
}

Item Rewriter::escape() {
  ++at_;
  if (at_end()) refuse("a backslash at its end");
  const char32_t c = next_code_point(pattern_, &at_);
  switch (c) {
    case 'n':
      return {"", U'\n'};
    case 'r':
      return {"", U'\r'};
    case 't':
      return {"", U'\t'};
    case 'f':
      return {"", U'\f'};
    case 'v':
      return {"", U'\v'};
    case 'a':
      return {"", U'\a'};
    case 'e':
      return {"", U'\x1B'};
    case 's':
    case 'S':
    case 'd':
    case 'D':
      return {std::string("\\") + static_cast<char>(c), std::nullopt};
    case 'p':
    case 'P':
      return property(static_cast<char>(c));
    case 'u':
      return {"", hex_code_point(4)};
    case 'x':
      if (!accept("{")) {
        const char32_t byte = hex_code_point(2);
        if (byte >= 0x80) refuse("a byte that is no character");
        return {"", byte};
      }
      {
        std::int64_t num_digits = 0;
        while (num_digits < 9 && peek(num_digits) != '}') ++num_digits;
        const char32_t code_point = hex_code_point(num_digits);
        if (!accept("}")) refuse("an unfinished escape");
        return {"", code_point};
      }
    default:
      break;
  }
  if (is_alphanumeric(c) || c >= 0x80) refuse("an unknown escape");
  return {"", c};
}

char32_t Rewriter::hex_code_point(std::int64_t num_digits) {
  std::uint64_t value = 0;
  for (std::int64_t i = 0; i < num_digits; ++i, ++at_) {
    const char c = peek();
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) refuse("an unfinished escape");
    value = value * 16 + static_cast<std::uint64_t>(digit);
  }
  if (num_digits == 0 || value > kMaxCodePoint || (value >= 0xD800 && value < 0xE000)) {
    refuse("an escape that is no character");
  }
  return static_cast<char32_t>(value);
}

Item Rewriter::property(char kind) {
  const std::string_view rest = pattern_.substr(static_cast<std::size_t>(at_));
  const std::size_t close = rest.find('}');
  if (!rest.starts_with('{') || close == std::string_view::npos) refuse("an unfinished property");
  const std::string_view name = rest.substr(1, close - 1);
  at_ += static_cast<std::int64_t>(close) + 1;
  if (std::ranges::find(kCategories, name) == kCategories.end())
    refuse("a property that is no general category");
  if (caseless() && (name == "Lu" || name == "Ll" || name == "Lt"))
    refuse("a letter case where case is ignored");
  return {fmt::format("\\{}{{{}}}", kind, name), std::nullopt};
}

}  // namespace

std::string rewrite_pattern(std::string_view oniguruma, std::string_view where) {
  if (static_cast<std::int64_t>(oniguruma.size()) > kMaxPatternBytes) {
    fail(ErrorKind::data, "{}: a pattern of {} bytes; at most {} are read", where, oniguruma.size(),
         kMaxPatternBytes);
  }
  return Rewriter(oniguruma, where).run();
}

std::string quote_pattern(std::string_view text) {
  std::string out;
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(text.size());) {
    out += quote_code_point(next_code_point(text, &at));
  }
  return out;
}

}  // namespace planalto::tokenizer
