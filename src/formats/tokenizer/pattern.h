// SPDX-License-Identifier: Apache-2.0
// pattern.h: a compiled regular expression that finds all its matches in a text, by PCRE2 with its compiler.
// Memory      a scratch holds the match block and the stack of the compiled code; one per thread at a time
// Threads     a Pattern may be used by many threads, each with a scratch of its own
// Errors      data: the pattern does not compile, matches the empty text, or needs too many steps on a text
// Units       bytes
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace planalto::tokenizer {

struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  friend bool operator==(const Span&, const Span&) = default;
};

inline std::string_view slice(std::string_view text, Span span) {
  return text.substr(static_cast<std::size_t>(span.begin), static_cast<std::size_t>(span.end - span.begin));
}

class MatchScratch {
 public:
  MatchScratch();
  ~MatchScratch();
  MatchScratch(MatchScratch&&) noexcept;
  MatchScratch& operator=(MatchScratch&&) noexcept;

 private:
  friend class Pattern;
  struct State;
  std::unique_ptr<State> state_;
};

class Pattern {
 public:
  // `where` is the place in the file, for messages.
  static Pattern from_regex(std::string_view oniguruma, std::string_view where);
  static Pattern from_literal(std::string_view text, std::string_view where);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // Appends the matches inside `within`, from the left, none overlapping. The pattern sees nothing outside `within`.
  // Valid UTF-8 in, without characters newer than PCRE2's tables (unicode_newer.h).
  void find_all(std::string_view text, Span within, MatchScratch& scratch, std::vector<Span>* matches) const;

 private:
  struct Code;
  explicit Pattern(std::unique_ptr<Code> code);
  static Pattern compile(const std::string& rewritten, std::string_view where);

  std::unique_ptr<Code> code_;
};

}  // namespace planalto::tokenizer
