// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <gtest/gtest.h>

#include <string>

#include "base/utf8.h"

namespace planalto {
namespace {

// Published values of XXH3 64 with seed 0.
TEST(Hash, MatchesPublishedValues) {
  EXPECT_EQ(xxh3_64(""), 0x2d06800538d394c2ULL);
  EXPECT_EQ(xxh3_64("a"), 0xe6c632b61e964e1fULL);
  EXPECT_EQ(xxh3_64("abc"), 0x78af5f94892f3950ULL);
}

TEST(Hash, PiecesGiveTheSameValueAsTheWhole) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 7);
  Xxh3Stream stream;
  for (std::size_t at = 0, n = 1; at < text.size(); at += n, n = n * 2 + 1) {
    stream.update(std::string_view(text).substr(at, n));
  }
  stream.update(std::string_view());
  EXPECT_EQ(stream.digest(), xxh3_64(text));
}

TEST(Hash, HexIsReadBack) {
  EXPECT_EQ(hex64(0x2dULL), "000000000000002d");
  std::uint64_t v = 0;
  EXPECT_TRUE(parse_hex64("e6c632b61e964e1f", &v));
  EXPECT_EQ(v, 0xe6c632b61e964e1fULL);
  for (const char* bad : {"", "1", "E6c632b61e964e1f", "g6c632b61e964e1f", "0e6c632b61e964e1f"}) {
    EXPECT_FALSE(parse_hex64(bad, &v)) << bad;
  }
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8(""), -1);
  EXPECT_EQ(find_invalid_utf8("plain text of some length"), -1);
  EXPECT_EQ(find_invalid_utf8("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf\xed\x9f\xbf"),
            -1);
  EXPECT_EQ(find_invalid_utf8("12345678abc\xff"), 11);
  EXPECT_EQ(find_invalid_utf8("a\xc0\xaf"), 1);          // overlong
  EXPECT_EQ(find_invalid_utf8("a\xe0\x9f\xbf"), 1);      // overlong
  EXPECT_EQ(find_invalid_utf8("a\xf0\x8f\xbf\xbf"), 1);  // overlong
  EXPECT_EQ(find_invalid_utf8("ab\xed\xa0\x80"), 2);     // surrogate
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0);   // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("\xf5\x80\x80\x80"), 0);
  EXPECT_EQ(find_invalid_utf8("x\xe2\x82"), 1);  // cut
  EXPECT_EQ(find_invalid_utf8("x\xe2\x82z"), 1);
  EXPECT_EQ(find_invalid_utf8("\x80"), 0);
}

TEST(Utf8, PrintableShowsBytesAndCuts) {
  EXPECT_EQ(printable("a\n\xff z"), "a\\x0a\\xff z");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
}

}  // namespace
}  // namespace planalto
