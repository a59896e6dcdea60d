// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "formats/tokenizer/unicode_newer.h"

namespace planalto::tokenizer {

namespace {

constexpr std::string_view kSupported = "Split, Digits, Punctuation, ByteLevel, Sequence";
// GPT-2's split, which ByteLevel applies unless use_regex is false.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// What the reference holds for punctuation: ASCII's, and category P as Unicode 8 or so had it (found by asking it about
// every code point): without what came later, with two signs that have left the category. Run on the text without
// stand-ins, so that what is newer than PCRE2's tables is none either.
constexpr std::string_view kPunctuation =
    R"((?![\x{61D}\x{9FD}\x{A76}\x{C77}\x{C84}\x{1B7D}-\x{1B7E}\x{2E43}-\x{2E4F}\x{2E52}-\x{2E5D}\x{10EAD})"
    R"(\x{10F55}-\x{10F59}\x{10F86}-\x{10F89}\x{1144B}-\x{1144F}\x{1145A}-\x{1145B}\x{1145D})"
    R"(\x{11660}-\x{1166C}\x{116B9}\x{1183B}\x{11944}-\x{11946}\x{119E2}\x{11A3F}-\x{11A46})"
    R"(\x{11A9A}-\x{11A9C}\x{11A9E}-\x{11AA2}\x{11C41}-\x{11C45}\x{11C70}-\x{11C71}\x{11EF7}-\x{11EF8})"
    R"(\x{11FFF}\x{12FF1}-\x{12FF2}\x{16E97}-\x{16E9A}\x{16FE2}\x{1E95E}-\x{1E95F}])[!-/:-@\[-`{-~\p{P}\x{166D}\x{111C9}])";

SplitBehavior read_behavior(const JsonValue& value, const std::string& where) {
  static constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  const std::string& name = value.as_string(where);
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  fail(ErrorKind::data,
       "{} is \"{}\"; legal: Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous", where,
       printable(name));
}

struct Part {
  Span span;
  bool match = false;
};

void append_piece(Span span, std::vector<Span>* pieces) {
  if (span.begin < span.end) pieces->push_back(span);
}

// A match joins its neighbour on one side, unless that neighbour is a match too.
void merge_to_one_side(std::vector<Part> parts, bool next, std::vector<Span>* pieces) {
  if (next) std::ranges::reverse(parts);
  std::vector<Span> merged;
  bool match_before = false;
  for (const Part& part : parts) {
    if (part.match && !match_before && !merged.empty()) {
      (next ? merged.back().begin : merged.back().end) = next ? part.span.begin : part.span.end;
    } else {
      merged.push_back(part.span);
    }
    match_before = part.match;
  }
  if (next) std::ranges::reverse(merged);
  for (const Span& span : merged) append_piece(span, pieces);
}

void merge_runs(const std::vector<Part>& parts, std::vector<Span>* pieces) {
  for (std::size_t i = 0; i < parts.size();) {
    std::size_t end = i + 1;
    while (end < parts.size() && parts[end].match == parts[i].match) ++end;
    append_piece({parts[i].span.begin, parts[end - 1].span.end}, pieces);
    i = end;
  }
}

}  // namespace

void split_at_matches(Span within, const std::vector<Span>& matches, SplitBehavior behavior, bool invert,
                      std::vector<Span>* pieces) {
  if (behavior == SplitBehavior::isolated || behavior == SplitBehavior::removed) {
    const bool keep_matches = behavior == SplitBehavior::isolated || invert;
    const bool keep_rest = behavior == SplitBehavior::isolated || !invert;
    std::int64_t at = within.begin;
    for (const Span& match : matches) {
      if (keep_rest) append_piece({at, match.begin}, pieces);
      if (keep_matches) append_piece(match, pieces);
      at = match.end;
    }
    if (keep_rest) append_piece({at, within.end}, pieces);
    return;
  }
  std::vector<Part> parts;
  std::int64_t at = within.begin;
  for (const Span& match : matches) {
    if (at < match.begin) parts.push_back({{at, match.begin}, invert});
    parts.push_back({match, !invert});
    at = match.end;
  }
  if (at < within.end) parts.push_back({{at, within.end}, invert});
  if (behavior == SplitBehavior::contiguous) return merge_runs(parts, pieces);
  merge_to_one_side(std::move(parts), behavior == SplitBehavior::merged_with_next, pieces);
}

PreTokenizer::PreTokenizer(const JsonValue& value, const std::string& where) {
  if (value.is_null())
    fail(ErrorKind::data, "{} is null, which is not supported (supported: {})", where, kSupported);
  const std::vector<Component> components = Component(value, where).flat("pretokenizers");
  for (const Component& component : components) {
    const bool last = &component == &components.back();
    if (component.type() == "Split") {
      add_split(component);
    } else if (component.type() == "Digits") {
      component.allow_only({"individual_digits"});
      const bool individual = component.flag("individual_digits", false);
      add_pattern(R"(\p{N})", component, individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
    } else if (component.type() == "Punctuation") {
      component.allow_only({"behavior"});
      const JsonValue* behavior = component.value().find("behavior");
      add_pattern(kPunctuation, component,
                  behavior == nullptr ? SplitBehavior::isolated
                                      : read_behavior(*behavior, component.where_of("behavior")));
      steps_.back().stand_ins = false;
    } else if (component.type() == "ByteLevel") {
      if (!last)
        fail(ErrorKind::data, "{}: ByteLevel is supported only as the last pre-tokenizer", component.where());
      add_byte_level(component);
    } else {
      component.refuse(kSupported);
    }
  }
  if (components.empty() || components.back().type() != "ByteLevel") {
    fail(ErrorKind::data, "{}: a pre-tokenizer that does not end with ByteLevel is not supported", where);
  }
}

void PreTokenizer::add_pattern(std::string_view regex, const Component& component, SplitBehavior behavior) {
  Step step;
  step.pattern.push_back(Pattern::from_regex(regex, component.where()));
  step.behavior = behavior;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_split(const Component& component) {
  component.allow_only({"pattern", "behavior", "invert"});
  const std::string where = component.where_of("pattern");
  const JsonObject& pattern = component.at("pattern").as_object(where);
  const JsonMember* only = pattern.begin();
  if (pattern.size() != 1 || (only->key != "Regex" && only->key != "String")) {
    fail(ErrorKind::data, "{} must be {{\"Regex\": ...}} or {{\"String\": ...}}", where);
  }
  const std::string& text = only->value.as_string(where);
  Step step;
  step.pattern.push_back(only->key == "Regex" ? Pattern::from_regex(text, where)
                                              : Pattern::from_literal(text, where));
  step.behavior = read_behavior(component.at("behavior"), component.where_of("behavior"));
  step.invert = component.flag("invert");
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_byte_level(const Component& component) {
  // trim_offsets says what offsets a caller is told; ids do not depend on it.
  component.allow_only({"add_prefix_space", "trim_offsets", "use_regex"});
  component.flag("trim_offsets", true);
  if (component.flag("add_prefix_space")) steps_.emplace_back();
  if (component.flag("use_regex", true)) add_pattern(kGpt2Pattern, component, SplitBehavior::isolated);
}

std::string_view PreTokenizer::put_spaces(std::string_view text, PreTokenizeScratch& scratch) {
  std::string& out = scratch.spare;
  out.clear();
  for (Span& piece : scratch.pieces) {
    const std::string_view bytes = slice(text, piece);
    const auto begin = static_cast<std::int64_t>(out.size());
    if (!bytes.starts_with(' ')) out.push_back(' ');
    out.append(bytes);
    piece = {begin, static_cast<std::int64_t>(out.size())};
  }
  std::swap(scratch.spare, scratch.text);  // `text` may lie in scratch.text, which must live until here
  return scratch.text;
}

std::string_view PreTokenizer::cut(std::string_view text, PreTokenizeScratch& scratch) const {
  scratch.pieces.clear();
  append_piece({0, static_cast<std::int64_t>(text.size())}, &scratch.pieces);
  std::string_view shown = with_stand_ins(text, &scratch.shown);
  for (const Step& step : steps_) {
    if (step.pattern.empty()) {
      text = put_spaces(text, scratch);
      shown = with_stand_ins(text, &scratch.shown);
      continue;
    }
    scratch.next.clear();
    for (const Span& piece : scratch.pieces) {
      scratch.matches.clear();
      step.pattern.front().find_all(step.stand_ins ? shown : text, piece, scratch.match, &scratch.matches);
      split_at_matches(piece, scratch.matches, step.behavior, step.invert, &scratch.next);
    }
    std::swap(scratch.next, scratch.pieces);
  }
  return text;
}

}  // namespace planalto::tokenizer
