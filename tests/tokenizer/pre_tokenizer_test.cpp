// SPDX-License-Identifier: Apache-2.0
// Patterns and cuts: what the rewriting lets through, what it refuses, and where text is cut.
#include "formats/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "formats/tokenizer/pattern.h"
#include "formats/tokenizer/pattern_syntax.h"
#include "support/expect_error.h"
#include "tokenizer/tiny_file.h"

namespace planalto::tokenizer {
namespace {

using planalto::testing::expect_error;
using planalto::tests::sequence_of;
using planalto::tests::split_component;
using Pieces = std::vector<std::string>;

Pieces matches(const std::string& regex, std::string_view text) {
  const Pattern pattern = Pattern::from_regex(regex, "test");
  MatchScratch scratch;
  std::vector<Span> spans;
  pattern.find_all(text, {0, static_cast<std::int64_t>(text.size())}, scratch, &spans);
  Pieces out;
  for (const Span& span : spans) out.emplace_back(slice(text, span));
  return out;
}

Pieces cut(const std::string& pre_tokenizer, std::string_view text) {
  const PreTokenizer made(parse_json(pre_tokenizer, "test"), "pre_tokenizer");
  PreTokenizeScratch scratch;
  const std::string_view result = made.cut(text, scratch);
  Pieces out;
  for (const Span& span : scratch.pieces) out.emplace_back(slice(result, span));
  return out;
}

TEST(Pattern, MatchesAsTheSyntaxOfTheFileSays) {
  EXPECT_EQ(matches(R"(\p{N}{1,3})", "1234567"), (Pieces{"123", "456", "7"}));
  EXPECT_EQ(matches(R"(a{,2}b)", "aaab b"),
            (Pieces{"aab", "b"}));  // {,n} is from none: literal text for PCRE2 10.42
  EXPECT_EQ(matches(R"(x{a})", "x{a}"), (Pieces{"x{a}"}));
  EXPECT_EQ(matches(R"([a-c\-.]+)", "ab-d.c"), (Pieces{"ab-", ".c"}));
  EXPECT_EQ(matches(R"([^\s\p{L}]+)", "a1 2\u00e93"), (Pieces{"1", "2", "3"}));
  EXPECT_EQ(matches(R"((?i:'s|'LL))", "'S '\u017f 'll"), (Pieces{"'S", "'\u017f", "'ll"}));
  EXPECT_EQ(matches(R"(\s+(?!\S))", "a   b  "), (Pieces{"  ", "  "}));
  EXPECT_EQ(matches(R"((?<=a)b|(?<!a)c)", "abcbac"), (Pieces{"b", "c"}));
  EXPECT_EQ(matches(R"(\u00e9|\x{1F44D}|\x41)", "A\u00e9\U0001F44D"), (Pieces{"A", "\u00e9", "\U0001F44D"}));
  EXPECT_EQ(matches("#.", "#a#\n#b"), (Pieces{"#a", "#b"}));  // "." leaves out the newline only
  EXPECT_EQ(matches(".", "\r\u2028"), (Pieces{"\r", "\u2028"}));
}

TEST(Pattern, WhiteSpaceIsThatOfUnicode) {
  EXPECT_EQ(
      matches(R"(\s+)", "a\t\n\v\f\r\u0085\u00a0\u1680\u2000\u2028\u2029\u202f\u205f\u3000z\u200b\u001c"),
      (Pieces{"\t\n\v\f\r\u0085\u00a0\u1680\u2000\u2028\u2029\u202f\u205f\u3000"}));
}

TEST(Pattern, RefusesWhatMeansSomethingElse) {
  for (const char* regex :
       {"^a",      "a$",          R"(\w+)",  R"(\bx)",         R"(\h)",       R"(\p{Han})", R"(\p{Greek}+)",
        "[a[b]]",  "[[:alpha:]]", "[a&&b]",  "[]a]",           R"((a)\1)",    "(?<name>a)", "(?i)a",
        "(?m:a)",  "a**",         "*a",      "a{2}?",          "a{2,3}+",     "(a",         "a)",
        "[a",      R"(\)",        R"(\xFF)", R"(\x{110000})",  R"(\x{D800})", R"([z-a])",   R"([\s-z])",
        "[a-c-e]", "(?i:\u00e9)", "(?i:ss)", R"((?i:\p{Lu}))", R"(\Qa\E)",    "\U00031350"}) {
    expect_error(ErrorKind::data, {"somewhere", "not supported"},
                 [&] { rewrite_pattern(regex, "somewhere"); });
  }
  for (const char* regex : {"a*", "(?=a)", "a|", "x?"}) {
    expect_error(ErrorKind::data, {"somewhere", "empty text"},
                 [&] { Pattern::from_regex(regex, "somewhere"); });
  }
  expect_error(ErrorKind::data, {"somewhere", "compile"}, [] { Pattern::from_regex("a{9,2}", "somewhere"); });
}

TEST(Pattern, AnExplosionIsAnError) {
  expect_error(ErrorKind::data, {"test", "failed on a text"},
               [] { matches("(?:a|aa)+[bc]", std::string(200, 'a')); });
}

TEST(Pattern, LongTextsPassNoLimit) {
  const std::string llama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string spaces(3'000'000, ' ');
  EXPECT_EQ(matches(llama3, spaces + "x"), (Pieces{spaces.substr(1), " x"}));
  const std::string letters(3'000'000, 'a');
  EXPECT_EQ(matches(llama3, letters), (Pieces{letters}));
  std::string groups;  // each turn of this repetition needs room on a stack
  for (int i = 0; i < 200'000; ++i) groups += "ab";
  EXPECT_EQ(matches("(?:a(?:b|c))+", groups), (Pieces{groups}));
}

TEST(SplitAtMatches, EachBehavior) {
  // "a--b-": the matches are the three minus signs.
  const std::string text = "a--b-";
  const std::vector<Span> found = {{1, 2}, {2, 3}, {4, 5}};
  const auto pieces = [&](SplitBehavior behavior, bool invert) {
    std::vector<Span> spans;
    split_at_matches({0, 5}, found, behavior, invert, &spans);
    Pieces out;
    for (const Span& span : spans) out.emplace_back(slice(text, span));
    return out;
  };
  EXPECT_EQ(pieces(SplitBehavior::isolated, false), (Pieces{"a", "-", "-", "b", "-"}));
  EXPECT_EQ(pieces(SplitBehavior::isolated, true), (Pieces{"a", "-", "-", "b", "-"}));
  EXPECT_EQ(pieces(SplitBehavior::removed, false), (Pieces{"a", "b"}));
  EXPECT_EQ(pieces(SplitBehavior::removed, true), (Pieces{"-", "-", "-"}));
  EXPECT_EQ(pieces(SplitBehavior::contiguous, false), (Pieces{"a", "--", "b", "-"}));
  EXPECT_EQ(pieces(SplitBehavior::merged_with_previous, false), (Pieces{"a-", "-", "b-"}));
  EXPECT_EQ(pieces(SplitBehavior::merged_with_next, false), (Pieces{"a", "-", "-b", "-"}));
}

TEST(PreTokenizer, AStepSeesOnlyThePieceBefore) {
  // Digits first: then "  " before a digit is at the end of its piece, and \s+(?!\S) takes all of it.
  const std::string digits = R"({"type": "Digits", "individual_digits": true})";
  const std::string spaces = split_component(R"(\s+(?!\S)|\s|\S+)");
  EXPECT_EQ(cut(sequence_of(digits + "," + spaces), "a  12"), (Pieces{"a", "  ", "1", "2"}));
  EXPECT_EQ(cut(sequence_of(spaces), "a  12"), (Pieces{"a", " ", " ", "12"}));
}

TEST(PreTokenizer, PrefixSpace) {
  const std::string byte_level = R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true})";
  EXPECT_EQ(cut(byte_level, "one two"), (Pieces{" one", " two"}));
  EXPECT_EQ(cut(byte_level, " one"), (Pieces{" one"}));
  EXPECT_EQ(cut(byte_level, "\none"), (Pieces{" ", "\n", "one"}));
  // Behind a Split every piece gets one.
  const std::string both = R"({"type": "Sequence", "pretokenizers": [)" + split_component(R"(\p{N})") +
                           R"(, {"type": "ByteLevel", "add_prefix_space": true, "use_regex": false}]})";
  EXPECT_EQ(cut(both, "a1 b"), (Pieces{" a", " 1", " b"}));
}

TEST(PreTokenizer, C075EachFamilyCutsInItsOwnWay) {
  const std::string text = "we'LL pay 1234\u2029  now";
  const std::string digits = R"({"type": "Digits", "individual_digits": true})";
  const std::string punctuation = R"({"type": "Punctuation", "behavior": "Isolated"})";
  const std::string gpt2 =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
  EXPECT_EQ(cut(gpt2, text), (Pieces{"we", "'", "LL", " pay", " 1234", "\u2029 ", " now"}));
  EXPECT_EQ(cut(sequence_of(digits), text), (Pieces{"we'LL pay ", "1", "2", "3", "4", "\u2029  now"}));
  EXPECT_EQ(cut(sequence_of(R"({"type": "Digits", "individual_digits": false})"), text),
            (Pieces{"we'LL pay ", "1234", "\u2029  now"}));
  EXPECT_EQ(cut(sequence_of(punctuation), "a,b\u3002\u20ac+"),
            (Pieces{"a", ",", "b", "\u3002", "\u20ac", "+"}));
  EXPECT_EQ(cut(sequence_of(punctuation), "a\u2e43b"), (Pieces{"a\u2e43b"}));  // too young for the reference
  EXPECT_EQ(cut(sequence_of(split_component("LL|1", "Removed")), "we'LL 1x"), (Pieces{"we'", " ", "x"}));
  EXPECT_EQ(cut(sequence_of(split_component("LL|1", "Removed", true)), "we'LL 1x"), (Pieces{"LL", "1"}));
}

TEST(PreTokenizer, CharactersNewerThanThePatternLibrary) {
  // CJK extension H (Unicode 15) is a letter, U+11F50 (Kawi digit zero, Unicode 15) a number.
  const std::string words = sequence_of(split_component(R"(\p{L}+|\p{N}|[^\p{L}\p{N}]+)"));
  EXPECT_EQ(cut(words, "a\U00031350b\U00011f50\U00011f51!"),
            (Pieces{"a\U00031350b", "\U00011f50", "\U00011f51", "!"}));
  EXPECT_EQ(cut(sequence_of(split_component(R"(\s+|\S+)")), "a\u180eb"), (Pieces{"a\u180eb"}));
}

TEST(PreTokenizer, C075RefusesWhatItDoesNotKnow) {
  const auto refused = [](const std::string& json, std::initializer_list<std::string_view> pieces) {
    expect_error(ErrorKind::data, pieces, [&] { PreTokenizer(parse_json(json, "f"), "f: pre_tokenizer"); });
  };
  refused("null", {"pre_tokenizer", "null"});
  refused(R"({"type": "Metaspace", "replacement": "x"})", {"f: pre_tokenizer", "Metaspace", "Split"});
  refused(sequence_of(R"({"type": "Whitespace"})"), {"pre_tokenizer.pretokenizers[0]", "Whitespace"});
  refused(R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"}]})", {"end with ByteLevel"});
  refused(R"({"type": "Sequence", "pretokenizers": []})", {"end with ByteLevel"});
  refused(sequence_of(R"({"type": "ByteLevel", "add_prefix_space": false})"), {"only as the last"});
  refused(sequence_of(split_component("a", "Sideways")), {"behavior", "Sideways"});
  refused(sequence_of(R"({"type": "Digits", "individual_digits": 1})"), {"individual_digits"});
  refused(sequence_of(R"({"type": "Digits", "grouped": true})"), {"Digits", "grouped"});
  refused(
      sequence_of(R"({"type": "Split", "pattern": {"Glob": "*"}, "behavior": "Isolated", "invert": false})"),
      {"Regex"});
  refused(R"({"type": 3})", {"type"});
  refused("[]", {"pre_tokenizer"});
}

}  // namespace
}  // namespace planalto::tokenizer
