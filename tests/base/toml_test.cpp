// SPDX-License-Identifier: Apache-2.0
// toml_test.cpp: lines, order, duplicates, syntax errors, conversion to JSON, nearest names.
#include "base/toml.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"

namespace planalto {
namespace {

std::string reported(const Mistakes& mistakes) {
  try {
    mistakes.finish();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::config);
    return e.what();
  }
  return {};
}

TEST(Toml, KeepsLinesOrderAndTypes) {
  Mistakes mistakes("f.toml");
  const TomlValue root = parse_toml(
      "# head\n[b]\nz = 1\na = 2.5\n[a]\nlist = [\n \"x\",\n true]\ninline = {k = -3}\n", mistakes);
  EXPECT_TRUE(mistakes.empty());
  ASSERT_EQ(root.table.size(), 2U);
  EXPECT_EQ(root.table[0].key, "b");
  EXPECT_EQ(root.table[0].value.line, 2);
  const TomlValue& b = root.table[0].value;
  EXPECT_EQ(b.table[0].key, "z");
  EXPECT_EQ(b.table[0].value.line, 3);
  EXPECT_EQ(b.table[0].value.integer, 1);
  EXPECT_EQ(b.table[0].value.number, 1.0);
  EXPECT_EQ(b.find("a")->value.type, TomlType::number);
  const TomlValue& list = root.find("a")->value.find("list")->value;
  EXPECT_EQ(list.line, 6);
  EXPECT_EQ(list.array.at(1).boolean, true);
  EXPECT_EQ(list.array.at(0).line, 7);
  EXPECT_EQ(write_json(to_json(root)), R"({"b":{"z":1,"a":2.5},"a":{"list":["x",true],"inline":{"k":-3}}})");
}

TEST(Toml, DuplicatesAreNotedAndReadingGoesOn) {
  Mistakes mistakes("f.toml");
  const TomlValue root =
      parse_toml("[a]\nx = 1\nx = [\n2]\n[b]\ny = 1\n[a]\nq = 1\n[c]\n\"y\" = 1\ny = 2\n", mistakes);
  EXPECT_EQ(reported(mistakes),
            "f.toml:3: x stands twice\nf.toml:7: [a] stands twice\nf.toml:11: y stands twice");
  EXPECT_EQ(root.find("a")->value.find("x")->value.integer, 1);
  EXPECT_EQ(root.find("a")->value.table.size(), 1U);
  EXPECT_EQ(root.table.size(), 3U);
  EXPECT_EQ(root.find("c")->value.find("y")->value.integer, 1);
}

TEST(Toml, SyntaxErrorsNameTheLine) {
  for (const auto& [text, line] :
       {std::pair{"a = 1\nb = \n", 2}, {"a = 1\n[x\n", 2}, {"a = \"\xff\"\n", 1}, {"\n\na = 1e999", 3}}) {
    Mistakes mistakes("f.toml");
    EXPECT_TRUE(parse_toml(text, mistakes).table.empty());
    EXPECT_EQ(reported(mistakes).rfind("f.toml:" + std::to_string(line) + ": not TOML", 0), 0U)
        << reported(mistakes);
  }
  Mistakes deep("f.toml");
  parse_toml("a = " + std::string(100000, '['), deep);
  EXPECT_FALSE(deep.empty());
}

// An assertion of the parser, and its recursion, are not the end of the process.
TEST(Toml, HeadersWithoutANameAndKeysOfThousandsOfParts) {
  const auto complaint = [](const std::string& text) {
    Mistakes mistakes("x.toml");
    parse_toml(text, mistakes);
    try {
      mistakes.finish();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::config);
      return std::string(e.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_EQ(complaint("a = 1\n[.]\n"), "x.toml:2: not TOML: a key or the name of a table is missing");
  EXPECT_EQ(complaint("[}odel]\n"), "x.toml:1: not TOML: a key or the name of a table is missing");
  std::string parts = "a";
  for (int i = 0; i < 20000; ++i) parts += ".a";
  for (const std::string& text : {parts + " = 1", "\n[" + parts + "]", "b = {" + parts + " = 1}"}) {
    EXPECT_NE(complaint(text).find("a key of more than 128 parts"), std::string::npos);
  }
  EXPECT_THROW(parse_toml_value("[\"t\"]\n[.]", "--set"), Error);
  EXPECT_THROW(parse_toml_value("{" + parts + "=1}", "--set"), Error);
  Mistakes none("x.toml");
  const std::string rule(200, '.');
  parse_toml("# " + rule + "\ny = \"" + rule + "\"\n", none);
  parse_toml("x = [0.1, 0.2, \"...\", 1.5e3]\n[a.b.c]\nd.e = 2\n", none);
  none.finish();
}

TEST(Toml, ValuesAlone) {
  EXPECT_EQ(parse_toml_value("3", "--set x.y").integer, 3);
  EXPECT_EQ(parse_toml_value("[1, 2]", "--set x.y").array.size(), 2U);
  EXPECT_THROW(parse_toml_value("text", "--set x.y"), Error);
  EXPECT_THROW(parse_toml_value("1\nvalue2 = 3", "--set x.y"), Error);
}

TEST(Toml, QuotedTextReadsBack) {
  const std::string text = "a \"b\" \\ \n\t\x01\x7f \u00e9";
  EXPECT_EQ(parse_toml_value(quote_toml(text), "x").string, text);
}

TEST(Toml, NearestName) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("ab", "ba"), 1);
  EXPECT_EQ(nearest_name("learning_ratee", {"decay", "learning_rate", "eps"}), "learning_rate");
}

}  // namespace
}  // namespace planalto
