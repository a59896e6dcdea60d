// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace planalto {
namespace {

using testing::expect_error;
using testing::TempFolder;

TEST(Json, ParsesEveryTypeAndKeepsOrder) {
  const JsonValue v =
      parse_json(R"({"z": null, "a": [true, -3, 18446744073709551615, 2.5, "x\u00e9\n"], "m": {}})", "t");
  const JsonObject& o = v.as_object("t");
  ASSERT_EQ(o.size(), 3);
  EXPECT_EQ(o.begin()[0].key, "z");
  EXPECT_EQ(o.begin()[1].key, "a");
  EXPECT_EQ(o.begin()[2].key, "m");
  EXPECT_TRUE(v.at("z", "t").is_null());
  const JsonArray& a = v.at("a", "t").as_array("t");
  ASSERT_EQ(a.size(), 5U);
  EXPECT_TRUE(a[0].as_bool("t"));
  EXPECT_EQ(a[1].as_int64("t"), -3);
  EXPECT_EQ(a[2].as_uint64("t"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(a[3].as_double("t"), 2.5);
  EXPECT_EQ(a[4].as_string("t"), "x\xc3\xa9\n");
  EXPECT_TRUE(v.at("m", "t").is_object());
  EXPECT_EQ(a[1].as_double("t"), -3.0);
  EXPECT_EQ(v.find("q"), nullptr);
  EXPECT_EQ(a[0].find("q"), nullptr);
}

TEST(Json, TypedAccessNamesThePlaceAndWhatIsThere) {
  const JsonValue v = parse_json(R"({"n": 1.5, "s": "text", "neg": -1, "big": 9223372036854775808})", "t");
  expect_error(ErrorKind::data, {"c.json: n", "integer", "1.5"},
               [&] { v.at("n", "").as_int64("c.json: n"); });
  expect_error(ErrorKind::data, {"boolean", "text"}, [&] { v.at("s", "").as_bool("w"); });
  expect_error(ErrorKind::data, {"non-negative", "-1"}, [&] { v.at("neg", "").as_uint64("w"); });
  expect_error(ErrorKind::data, {"63 bits", "9223372036854775808"}, [&] { v.at("big", "").as_int64("w"); });
  expect_error(ErrorKind::data, {"an array", "an object of 4"}, [&] { v.as_array("w"); });
  expect_error(ErrorKind::data, {"c.json", "\"gone\" is missing"}, [&] { v.at("gone", "c.json"); });
}

TEST(Json, SyntaxErrorsGiveFileLineAndColumn) {
  expect_error(ErrorKind::data, {"f.json:3:8: "},
               [] { parse_json("{\n  \"a\": 1,\n  \"b\": x\n}", "f.json"); });
  expect_error(ErrorKind::data, {"f.json:1:1: "}, [] { parse_json("", "f.json"); });
  expect_error(ErrorKind::data, {"f.json:7:"},
               [] { parse_json("[1,", "f.json", JsonOptions{.first_line = 7}); });
  for (const char* bad : {"{", "[1,]", "{\"a\":}", "{\"a\" 1}", "01", "1 2", "nul", "\"abc", "\"\\x\"",
                          "\"\\ud800\"", "{a:1}", "[1e999]", "NaN", "'a'", "\"\t\"", "// c\n1", "]"}) {
    EXPECT_THROW(parse_json(bad, "f"), Error) << bad;
  }
}

TEST(Json, DuplicateKeysAreRefusedWithTheirName) {
  expect_error(ErrorKind::data, {"f:2:3: ", "\"a\"", "twice"},
               [] { parse_json("{\"a\":1,\n\"a\":1}", "f"); });
  std::string many = "{";
  for (int i = 0; i < 1000; ++i) many += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  EXPECT_THROW(parse_json(many + "\"k500\":1}", "f"), Error);
  const JsonValue ok = parse_json(many + "\"last\":1}", "f");
  EXPECT_EQ(ok.as_object("f").size(), 1001);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(ok.at("k" + std::to_string(i), "f").as_int64("f"), i);
  EXPECT_EQ(ok.find("k1000"), nullptr);
  const JsonValue last =
      parse_json("{\"a\":1,\"b\":2,\"a\":[3]}", "f", JsonOptions{.allow_duplicate_keys = true});
  EXPECT_EQ(write_json(last), "{\"a\":[3],\"b\":2}");
}

TEST(Json, DepthAndValuesAreLimited) {
  const std::string bomb = std::string(100000, '[');
  expect_error(ErrorKind::data, {"f:1:513: ", "512"}, [&] { parse_json(bomb, "f"); });
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_THROW(parse_json(objects, "f"), Error);
  EXPECT_NO_THROW(parse_json(std::string(512, '[') + std::string(512, ']'), "f"));
  EXPECT_NO_THROW(parse_json("[1,2,3]", "f", JsonOptions{.max_values = 4}));
  expect_error(ErrorKind::data, {"more than 3 values"},
               [] { parse_json("[1,2,3]", "f", JsonOptions{.max_values = 3}); });
}

TEST(Json, InvalidUtf8AndZeroBytesAreRefused) {
  for (const char* bad :
       {"\"\xff\"", "\"\xc3\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "{\"\x80\":1}"}) {
    EXPECT_THROW(parse_json(bad, "f"), Error) << bad;
  }
  expect_error(ErrorKind::data, {"f:1:4: ", "zero byte"},
               [] { parse_json(std::string_view("[1]\0[", 5), "f"); });
}

TEST(Json, WritesCompactAndPretty) {
  JsonObject inner;
  inner.set("k", JsonValue(1));
  JsonObject o;
  o.set("a", JsonArray{JsonValue(1), JsonValue(true), JsonValue(nullptr), JsonValue("q\"\\\x01\n\xc3\xa9")});
  o.set("b", inner);
  o.set("c", JsonArray{});
  o.set("d", JsonObject{});
  EXPECT_EQ(write_json(o),
            "{\"a\":[1,true,null,\"q\\\"\\\\\\u0001\\n\xc3\xa9\"],\"b\":{\"k\":1},\"c\":[],\"d\":{}}");
  o.erase("a");
  EXPECT_EQ(write_json(o, JsonStyle::pretty),
            "{\n  \"b\": {\n    \"k\": 1\n  },\n  \"c\": [],\n  \"d\": {}\n}");
  o.set("b", JsonValue(std::numeric_limits<std::int64_t>::min()));
  EXPECT_EQ(write_json(o), "{\"b\":-9223372036854775808,\"c\":[],\"d\":{}}");
}

TEST(Json, DoublesReadBackBitForBitAndStayDoubles) {
  EXPECT_EQ(write_json(JsonValue(1.0)), "1.0");
  EXPECT_EQ(write_json(JsonValue(1e-6)), "1e-06");
  EXPECT_EQ(write_json(JsonValue(0.1)), "0.1");
  EXPECT_EQ(write_json(JsonValue(-0.0)), "-0.0");
  for (const double d :
       {0.1 + 0.2, 1e300, 5e-324, 1.7976931348623157e308, 123456789012345680.0, -2.0 / 3.0}) {
    const JsonValue back = parse_json(write_json(JsonValue(d)), "f");
    EXPECT_EQ(back.type(), JsonType::number);
    EXPECT_EQ(back.as_double("f"), d);
  }
  EXPECT_THROW(write_json(JsonValue(std::nan(""))), Error);
  EXPECT_THROW(write_json(JsonValue(std::numeric_limits<double>::infinity())), Error);
  EXPECT_THROW(write_json(JsonValue("\xff")), Error);
}

TEST(Json, ObjectsReplaceEraseAndCopyWithTheirIndex) {
  JsonObject o;
  for (int i = 0; i < 100; ++i) o.set("k" + std::to_string(i), JsonValue(i));
  o.set("k50", JsonValue("new"));
  EXPECT_EQ(o.size(), 100);
  o.erase("k0");
  const JsonObject copy = o;
  EXPECT_EQ(copy.find("k0"), nullptr);
  EXPECT_EQ(copy.begin()->key, "k1");
  EXPECT_EQ(copy.find("k50")->as_string("t"), "new");
  EXPECT_EQ(copy.find("k99")->as_int64("t"), 99);
  EXPECT_TRUE(copy == o);
  o.set("k99", JsonValue(0));
  EXPECT_FALSE(copy == o);
}

TEST(Json, ReadsAFileAndNamesItInErrors) {
  const TempFolder folder;
  EXPECT_EQ(read_json_file(folder.write("a.json", "{\"a\": 1}")).at("a", "f").as_int64("f"), 1);
  const std::string bad = folder.write("bad.json", "{\"a\": ");
  expect_error(ErrorKind::data, {bad + ":1:"}, [&] { read_json_file(bad); });
  expect_error(ErrorKind::io, {folder.file("none.json"), "No such file"},
               [&] { read_json_file(folder.file("none.json")); });
}

// Every prefix and every changed byte of a document is refused or read, never anything else.
TEST(Json, EveryTruncationAndEveryChangedByteEndsInAnErrorOrAValue) {
  const std::string text = R"({"a": [1, -2.5e3, "x\u00e9", {"b": null}], "c": true})";
  for (std::size_t n = 0; n < text.size(); ++n) EXPECT_THROW(parse_json(text.substr(0, n), "f"), Error) << n;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int b = 0; b < 256; ++b) {
      std::string changed = text;
      changed[i] = static_cast<char>(b);
      try {
        const JsonValue v = parse_json(changed, "f");
        EXPECT_EQ(parse_json(write_json(v), "f"), v);
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::data);
      }
    }
  }
}

}  // namespace
}  // namespace planalto
