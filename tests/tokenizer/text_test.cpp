// SPDX-License-Identifier: Apache-2.0
// Bytes and characters: the byte alphabet, repair of broken UTF-8, normal form C.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "base/json.h"
#include "base/utf8.h"
#include "formats/tokenizer/byte_alphabet.h"
#include "formats/tokenizer/code_points.h"
#include "formats/tokenizer/normalizer.h"
#include "formats/tokenizer/unicode_newer.h"
#include "support/expect_error.h"

namespace planalto::tokenizer {
namespace {

std::string bytes_up_to(int end) {
  std::string bytes;
  for (int b = 0; b < end; ++b) bytes.push_back(static_cast<char>(b));
  return bytes;
}

TEST(ByteAlphabet, SpellsWellKnownBytes) {
  EXPECT_EQ(alphabet_character(' '), char32_t{0x120});
  EXPECT_EQ(alphabet_character('\n'), char32_t{0x10A});
  EXPECT_EQ(alphabet_character(0x00), char32_t{0x100});
  EXPECT_EQ(alphabet_character('!'), char32_t{'!'});
  EXPECT_EQ(alphabet_character('~'), char32_t{'~'});
  EXPECT_EQ(alphabet_character(0x7F), char32_t{0x121});  // the 34th substitute, behind 33 controls and space
  EXPECT_EQ(alphabet_character(0xAD), char32_t{0x143});  // the last
  EXPECT_EQ(alphabet_character(0xFF), char32_t{0xFF});
  EXPECT_EQ(spell_bytes(" the\n"), "\u0120the\u010a");
}

TEST(ByteAlphabet, EveryByteComesBack) {
  const std::string all = bytes_up_to(256);
  EXPECT_EQ(read_spelling(spell_bytes(all)), all);
  std::set<char32_t> seen;
  for (int b = 0; b < 256; ++b) seen.insert(alphabet_character(static_cast<std::uint8_t>(b)));
  EXPECT_EQ(seen.size(), 256U);
}

TEST(ByteAlphabet, RefusesCharactersOutsideIt) {
  EXPECT_FALSE(read_spelling(" "));
  EXPECT_FALSE(read_spelling("\u0144"));
  EXPECT_FALSE(read_spelling("a\uff5c"));
  EXPECT_EQ(read_spelling(""), "");
}

std::string repaired(std::string_view bytes) {
  LossyUtf8 utf8;
  std::string out;
  utf8.push(bytes, &out);
  utf8.finish(&out);
  return out;
}

#define R "\uFFFD"
TEST(LossyUtf8, OneReplacementForEachMaximalPart) {
  EXPECT_EQ(repaired("plain \u00e9 \u4f60 \U0001F44D"), "plain \u00e9 \u4f60 \U0001F44D");
  // The example of the Unicode standard, table 3-8.
  EXPECT_EQ(repaired("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), R R R R R R R R "A");
  // Table 3-9: surrogates.
  EXPECT_EQ(repaired("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), R R R R R R R R "A");
  // Table 3-10: beyond U+10FFFF.
  EXPECT_EQ(repaired("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), R R R R R "A" R R "B");
  // Table 3-11: cut sequences.
  EXPECT_EQ(repaired("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), R R R R "A");
  EXPECT_EQ(repaired("\xF0\x9F\x91"), R);
}
#undef R

TEST(LossyUtf8, AnyCutGivesTheSameText) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    static constexpr std::string_view kPool =
        "a\x80\xBF\xC3\xA9\xE2\x82\xAC\xF0\x9F\x91\x8D\xED\xA0\xF4\x90\xFF";
    std::string bytes;
    for (int i = 0; i < 12; ++i) bytes.push_back(kPool[random() % kPool.size()]);
    LossyUtf8 utf8;
    std::string out;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = 1 + random() % 4;
      utf8.push(std::string_view(bytes).substr(at, n), &out);
      EXPECT_LT(find_invalid_utf8(out), 0);
      at += n;
    }
    utf8.finish(&out);
    EXPECT_EQ(out, repaired(bytes)) << "round " << round << " of seed 7";
  }
}

TEST(WhiteSpace, IsThatOfUnicode) {
  int count = 0;
  for (char32_t c = 0; c < 0x11000; ++c) count += is_white_space(c) ? 1 : 0;
  EXPECT_EQ(count, 25);
  EXPECT_TRUE(is_white_space(0x85));
  EXPECT_TRUE(is_white_space(0x3000));
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_FALSE(is_white_space(0x200B));
}

TEST(NewerCharacters, KeepTheirLengthAndPlace) {
  std::string buffer;
  const std::string old = "a \u00e9 \u4e00 \U0001F44D";
  EXPECT_EQ(with_stand_ins(old, &buffer).data(), old.data());
  const std::string text =
      "x\u180ey\U00031350z\U00031351";  // white space for PCRE2 alone; CJK extension H, Unicode 15
  const std::string_view shown = with_stand_ins(text, &buffer);
  EXPECT_EQ(shown, "x\u2060y\U00010000z\U00010000");
  EXPECT_EQ(shown.size(), text.size());
  EXPECT_TRUE(is_newer_character(0x1C89));
  EXPECT_FALSE(is_newer_character(0x4E00));
}

std::string nfc(std::string_view text) {
  const Normalizer normalizer(parse_json(R"({"type": "NFC"})", "test"), "normalizer");
  std::string buffer;
  return std::string(normalizer.apply(text, &buffer));
}

TEST(Normalizer, ComposesAndOrders) {
  EXPECT_EQ(nfc("plain"), "plain");
  EXPECT_EQ(nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(nfc("\u212b"), "\u00c5");              // the angstrom sign is a letter
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");        // excluded from composition
  EXPECT_EQ(nfc("\u1100\u1161\u11a8"), "\uac01");  // Hangul
  EXPECT_EQ(nfc("a\u0301\u0316"),
            "\u00e1\u0316");  // the mark below moves before the one above, then a composes
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(nfc("\u0344"), "\u0308\u0301");
  EXPECT_EQ(nfc("\u1e9b\u0323"), "\u1e9b\u0323");
}

// The reference has Unicode 9: a mark that came later stays where it is and holds composition up.
TEST(Normalizer, LeavesMarksThatTheReferenceDoesNotKnow) {
  EXPECT_EQ(nfc("a\u0898\u0301"), "a\u0898\u0301");
  EXPECT_EQ(nfc("x\u0301\u0898\u0316"), "x\u0301\u0898\u0316");
  EXPECT_EQ(nfc("\U00011935\U00011930"), "\U00011935\U00011930");
  EXPECT_EQ(nfc("\U00011938"), "\U00011938");
}

TEST(Normalizer, ALongRunOfMarksEnds) {
  std::string marks = "a";
  for (int i = 0; i < 200000; ++i) marks += "\u0301\u0316";
  std::string ordered = "\u00e1";
  for (int i = 0; i < 200000; ++i) ordered += "\u0316";
  for (int i = 1; i < 200000; ++i) ordered += "\u0301";
  EXPECT_EQ(nfc(marks), ordered);
}

TEST(Normalizer, RefusesOthersByName) {
  using planalto::testing::expect_error;
  expect_error(ErrorKind::data, {"file: normalizer.normalizers[1]", "Lowercase", "NFC"}, [] {
    const JsonValue value =
        parse_json(R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]})", "f");
    const Normalizer normalizer(value, "file: normalizer");
  });
  expect_error(ErrorKind::data, {"NFC", "extra"}, [] {
    const Normalizer normalizer(parse_json(R"({"type": "NFC", "extra": 1})", "f"), "file: normalizer");
  });
}

}  // namespace
}  // namespace planalto::tokenizer
