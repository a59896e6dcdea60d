// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "formats/tokenizer/code_points.h"

namespace planalto::tokenizer {

namespace {

AddedToken read_one(const JsonValue& value, const std::string& where) {
  const auto flag = [&](std::string_view name) {
    return value.at(name, where).as_bool(fmt::format("{}.{}", where, name));
  };
  for (const JsonMember& member : value.as_object(where)) {
    static constexpr std::string_view kFields[] = {"id",     "content", "single_word", "lstrip",
                                                   "rstrip", "special", "normalized"};
    if (std::ranges::find(kFields, member.key) == std::end(kFields)) {
      fail(ErrorKind::data, "{} has the field \"{}\", which is not supported", where, printable(member.key));
    }
  }
  AddedToken token;
  token.id = value.at("id", where).as_int64(where + ".id");
  token.content = value.at("content", where).as_string(where + ".content");
  token.special = flag("special");
  token.normalized = flag("normalized");
  token.lstrip = flag("lstrip");
  token.rstrip = flag("rstrip");
  if (token.content.empty()) fail(ErrorKind::data, "{}.content is empty", where);
  if (flag("single_word")) {
    fail(ErrorKind::data, "{}: the added token \"{}\" has single_word, which is not supported", where,
         printable(token.content));
  }
  return token;
}

// Where the white space that ends at `at` begins.
std::int64_t space_before(std::string_view text, std::int64_t at, std::int64_t not_before) {
  while (at > not_before) {
    std::int64_t begin = at - 1;
    while ((static_cast<unsigned char>(text[static_cast<std::size_t>(begin)]) & 0xC0U) == 0x80) --begin;
    std::int64_t end = begin;
    if (begin < not_before || !is_white_space(next_code_point(text, &end))) break;
    at = begin;
  }
  return at;
}

std::int64_t space_behind(std::string_view text, std::int64_t at, std::int64_t end) {
  while (at < end) {
    std::int64_t next = at;
    if (!is_white_space(next_code_point(text, &next))) break;
    at = next;
  }
  return at;
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const JsonValue& value, const std::string& where) {
  std::vector<AddedToken> tokens;
  for (const JsonValue& one : value.as_array(where)) {
    tokens.push_back(read_one(one, fmt::format("{}[{}]", where, tokens.size())));
  }
  return tokens;
}

std::int32_t TokenFinder::child(std::int32_t node, unsigned char byte) const {
  for (const auto& [label, to] : nodes_[static_cast<std::size_t>(node)].next) {
    if (label == byte) return to;
  }
  return -1;
}

void TokenFinder::add(std::string_view content, const AddedToken& token) {
  PLANALTO_CHECK(!content.empty(), "an empty added token");
  std::int32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      nodes_[static_cast<std::size_t>(node)].next.emplace_back(byte, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  begins_[static_cast<unsigned char>(content.front())] = true;
  Node& last = nodes_[static_cast<std::size_t>(node)];
  if (last.rule >= 0) return;  // two tokens that normalise to the same text: the first stands
  last.rule = static_cast<std::int32_t>(rules_.size());
  rules_.push_back({static_cast<std::int32_t>(token.id), token.lstrip, token.rstrip});
}

TokenFinder::Found TokenFinder::longest_at(std::string_view text, std::int64_t at, std::int64_t end) const {
  Found found;
  std::int32_t node = 0;
  while (at < end) {
    node = child(node, static_cast<unsigned char>(text[static_cast<std::size_t>(at)]));
    if (node < 0) break;
    ++at;
    const std::int32_t rule = nodes_[static_cast<std::size_t>(node)].rule;
    if (rule >= 0) found = {rule, at};
  }
  return found;
}

void TokenFinder::cut(std::string_view text, Span within, std::vector<Stretch>* stretches) const {
  std::int64_t done = within.begin;  // everything before it is in a stretch
  for (std::int64_t at = within.begin; at < within.end && !empty();) {
    if (!begins_[static_cast<unsigned char>(text[static_cast<std::size_t>(at)])]) {
      ++at;
      continue;
    }
    const Found found = longest_at(text, at, within.end);
    if (found.rule < 0) {
      ++at;
      continue;
    }
    const Rule& rule = rules_[static_cast<std::size_t>(found.rule)];
    // The space that an earlier token took may hold the begin of this one: it keeps it.
    std::int64_t begin = std::max(at, done);
    if (rule.lstrip) begin = space_before(text, begin, done);
    const std::int64_t end = rule.rstrip ? space_behind(text, found.end, within.end) : found.end;
    if (begin > done) stretches->push_back({{done, begin}, -1});
    stretches->push_back({{begin, std::max(end, begin)}, rule.token_id});
    done = std::max(end, done);
    at = found.end;
  }
  if (done < within.end) stretches->push_back({{done, within.end}, -1});
}

}  // namespace planalto::tokenizer
