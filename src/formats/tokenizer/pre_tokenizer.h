// SPDX-License-Identifier: Apache-2.0
// pre_tokenizer.h: cuts text into the pieces that are merged on their own: Split, Digits, Punctuation, then ByteLevel.
// Invariants  the pieces lie in the text in order; what a Removed step drops is in none of them
// Memory      a scratch grows to the longest text it has seen
// Threads     immutable; one scratch per thread at a time
// Errors      data: a component, option or order that is not supported
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/tokenizer/component.h"
#include "formats/tokenizer/pattern.h"

namespace planalto::tokenizer {

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// The spans of `within` that a step leaves, given the matches in it (ascending). Appends; none is empty.
void split_at_matches(Span within, const std::vector<Span>& matches, SplitBehavior behavior, bool invert,
                      std::vector<Span>* pieces);

struct PreTokenizeScratch {
  MatchScratch match;
  std::vector<Span> pieces;  // the result
  std::vector<Span> next;
  std::vector<Span> matches;
  std::string text;  // the text with prefix spaces, where there are any
  std::string spare;
  std::string shown;  // the text as the patterns see it
};

class PreTokenizer {
 public:
  PreTokenizer(const JsonValue& value, const std::string& where);

  // The pieces are in scratch.pieces and index into what is returned: `text`, or a copy with prefix spaces put in.
  std::string_view cut(std::string_view text, PreTokenizeScratch& scratch) const;

 private:
  struct Step {
    std::vector<Pattern> pattern;  // none: a step that puts a space before each piece that begins without one
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;
    bool stand_ins = true;  // false: the pattern sees characters newer than its tables as unassigned
  };

  void add_split(const Component& component);
  void add_byte_level(const Component& component);
  void add_pattern(std::string_view regex, const Component& component, SplitBehavior behavior);
  static std::string_view put_spaces(std::string_view text, PreTokenizeScratch& scratch);

  std::vector<Step> steps_;
};

}  // namespace planalto::tokenizer
