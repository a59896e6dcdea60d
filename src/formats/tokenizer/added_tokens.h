// SPDX-License-Identifier: Apache-2.0
// added_tokens.h: tokens that are cut out of the text before anything else looks at it.
// Invariants  at the leftmost place where any begins the longest wins; matches do not overlap
// Threads     immutable
// Errors      data: a flag that is not supported (single_word), an empty token
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/tokenizer/pattern.h"

namespace planalto::tokenizer {

struct AddedToken {
  std::int64_t id = 0;
  std::string content;
  bool special = false;     // left out by a decode that skips special tokens
  bool normalized = false;  // looked for in the normalised text, not in the raw one
  bool lstrip = false;      // takes the white space before it
  bool rstrip = false;      // and behind it
};

std::vector<AddedToken> read_added_tokens(const JsonValue& value, const std::string& where);

// A stretch of text, or a token found in it.
struct Stretch {
  Span span;
  std::int32_t token_id = -1;  // -1: text
};

class TokenFinder {
 public:
  void add(std::string_view content, const AddedToken& token);
  bool empty() const { return nodes_.size() == 1; }
  // Cuts `within` into stretches, appended from left to right; none is empty.
  void cut(std::string_view text, Span within, std::vector<Stretch>* stretches) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::int32_t>> next;  // few: searched from the front
    std::int32_t rule = -1;
  };
  struct Rule {
    std::int32_t token_id = 0;
    bool lstrip = false;
    bool rstrip = false;
  };
  struct Found {
    std::int32_t rule = -1;
    std::int64_t end = 0;
  };

  std::int32_t child(std::int32_t node, unsigned char byte) const;
  Found longest_at(std::string_view text, std::int64_t at, std::int64_t end) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<Rule> rules_;
  std::array<bool, 256> begins_{};  // the first bytes of all tokens
};

}  // namespace planalto::tokenizer
