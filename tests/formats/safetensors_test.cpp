// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "formats/hostile.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace planalto {
namespace {

using testing::expect_error;
using testing::TempFolder;

std::string with_header(std::string_view header, std::string_view data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return out + std::string(header) + std::string(data);
}

std::string length_prefix(std::uint64_t length) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i) & 0xFF);
  return out;
}

// One tensor entry of a header.
std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                  std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

void expect_refused(std::string_view header, std::size_t data_bytes,
                    std::initializer_list<std::string_view> pieces) {
  const TempFolder folder;
  const std::string path = folder.write("bad.safetensors", with_header(header, std::string(data_bytes, 'x')));
  SCOPED_TRACE(header.substr(0, 200));
  expect_error(ErrorKind::data, {path}, [&] { SafetensorsFile::open(path); });
  expect_error(ErrorKind::data, pieces, [&] { SafetensorsFile::open(path); });
}

std::string small_file() {
  const float values[6] = {1.0F, -2.0F, 0.5F, 4.0F, 8.0F, -0.25F};
  std::string data(reinterpret_cast<const char*>(values), sizeof(values));
  data += std::string("\x01\x02\x03", 3);
  return with_header(R"({"__metadata__":{"format":"pt"},)" + entry("w", "F32", "[2,3]", "[0,24]") + "," +
                         entry("empty", "F32", "[0,5]", "[24,24]") + "," +
                         entry("b", "U8", "[3]", "[24,27]") + "}   ",
                     data);
}

TEST(Safetensors, ReadsTensorsMetadataAndValues) {
  const TempFolder folder;
  const SafetensorsFile file = SafetensorsFile::open(folder.write("a.safetensors", small_file()));
  ASSERT_EQ(file.entries().size(), 3U);
  EXPECT_EQ(file.metadata(), (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));
  const TensorView w = file.tensor("w");
  EXPECT_EQ(w.dtype, FileDType::f32);
  EXPECT_EQ(std::vector<std::int64_t>(w.shape.begin(), w.shape.end()), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(w.read_f32(), (std::vector<float>{1.0F, -2.0F, 0.5F, 4.0F, 8.0F, -0.25F}));
  std::vector<float> row(3);
  w.read(3, std::span<float>(row));
  EXPECT_EQ(row, (std::vector<float>{4.0F, 8.0F, -0.25F}));
  EXPECT_EQ(file.tensor("b").read_i64(), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(file.tensor("empty").num_elements, 0);
  EXPECT_TRUE(file.tensor("empty").read_f32().empty());
  EXPECT_TRUE(file.contains("w"));
  EXPECT_FALSE(file.contains("v"));
  expect_error(ErrorKind::data, {"no tensor \"v\""}, [&] { file.tensor("v"); });
  expect_error(ErrorKind::data, {"6 elements", "[4, +3]"}, [&] { w.read(4, std::span<float>(row)); });
  EXPECT_THROW(w.read(-1, std::span<float>(row)), Error);
  EXPECT_THROW(w.read(std::numeric_limits<std::int64_t>::max(), std::span<float>(row)), Error);
  expect_error(ErrorKind::data, {"\"b\" is U8"}, [&] { file.tensor("b").read_f32(); });
  expect_error(ErrorKind::data, {"\"w\" is F32"}, [&] { file.tensor("w").read_i64(); });
}

TEST(Safetensors, ReadsHalfAndBrainFloatsExactly) {
  // F16: 1, -2, smallest subnormal 2^-24, largest 65504, infinity, -0, NaN; BF16: 1, -2.5, 2^-133, infinity.
  const std::uint16_t f16[7] = {0x3C00, 0xC000, 0x0001, 0x7BFF, 0x7C00, 0x8000, 0x7E00};
  const std::uint16_t brain[4] = {0x3F80, 0xC020, 0x0001, 0x7F80};
  const double wide[1] = {0.1};
  std::string data(reinterpret_cast<const char*>(wide), 8);
  data += std::string(reinterpret_cast<const char*>(f16), 14) +
          std::string(reinterpret_cast<const char*>(brain), 8);
  const TempFolder folder;
  const SafetensorsFile file = SafetensorsFile::open(folder.write(
      "a.safetensors",
      with_header("{" + entry("d", "F64", "[]", "[0,8]") + "," + entry("h", "F16", "[7]", "[8,22]") + "," +
                      entry("b", "BF16", "[4]", "[22,30]") + "}",
                  data)));
  const auto h = file.tensor("h").read_f32();
  EXPECT_EQ(h[0], 1.0F);
  EXPECT_EQ(h[1], -2.0F);
  EXPECT_EQ(h[2], 0x1p-24F);
  EXPECT_EQ(h[3], 65504.0F);
  EXPECT_EQ(h[4], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(h[5] == 0.0F && std::signbit(h[5]));
  EXPECT_TRUE(std::isnan(h[6]));
  EXPECT_EQ(file.tensor("b").read_f32(),
            (std::vector<float>{1.0F, -2.5F, 0x1p-133F, std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(file.tensor("d").read_f64(), std::vector<double>{0.1});
  EXPECT_EQ(file.tensor("d").read_f32(), std::vector<float>{0.1F});
  EXPECT_TRUE(file.tensor("d").shape.empty());
}

TEST(Safetensors, ReadsEveryIntegerTypeWithItsSign) {
  const TempFolder folder;
  const auto read_one = [&](std::string_view dtype, const std::string& data) {
    const std::string header = "{" + entry("t", dtype, "[1]", fmt::format("[0,{}]", data.size())) + "}";
    return SafetensorsFile::open(folder.write("i", with_header(header, data))).tensor("t").read_i64()[0];
  };
  EXPECT_EQ(read_one("I8", "\xfe"), -2);
  EXPECT_EQ(read_one("I8", "\x7f"), 127);
  EXPECT_EQ(read_one("U8", "\xfe"), 254);
  EXPECT_EQ(read_one("BOOL", "\x01"), 1);
  EXPECT_EQ(read_one("I16", "\xfe\xff"), -2);
  EXPECT_EQ(read_one("U16", "\xfe\xff"), 65534);
  EXPECT_EQ(read_one("I32", "\xfe\xff\xff\xff"), -2);
  EXPECT_EQ(read_one("U32", "\xfe\xff\xff\xff"), 4294967294);
  EXPECT_EQ(read_one("I64", "\xfe\xff\xff\xff\xff\xff\xff\xff"), -2);
  expect_error(ErrorKind::data, {"18446744073709551614"},
               [&] { read_one("U64", "\xfe\xff\xff\xff\xff\xff\xff\xff"); });
}

TEST(Safetensors, ReadsTheGoldenFiles) {
  const SafetensorsFile model = SafetensorsFile::open(PLANALTO_GOLDEN "/qwen3_moe-a/model.safetensors");
  EXPECT_TRUE(model.contains("model.embed_tokens.weight"));
  EXPECT_EQ(model.metadata(), (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));
  const SafetensorsFile made = SafetensorsFile::open(PLANALTO_GOLDEN "/qwen3_moe-a/generate.safetensors");
  EXPECT_EQ(made.tensor("prompt_ids").read_i64().size(), 8U);
  EXPECT_EQ(made.tensor("generated_ids").read_i64().size(), 24U);
}

TEST(Safetensors, C065ANameTwiceIsRefused) {
  for (const char* second : {"[0,4]", "[4,8]"}) {
    expect_refused("{" + entry("w", "F32", "[1]", "[0,4]") + "," + entry("w", "F32", "[1]", second) + "}", 8,
                   {"\"w\"", "twice"});
  }
}

TEST(Safetensors, C066OverlapsAndHolesAreRefusedUnsortedLoads) {
  expect_refused(
      "{" + entry("k_proj", "F32", "[1]", "[0,4]") + "," + entry("v_proj", "F32", "[1]", "[0,4]") + "}", 4,
      {"k_proj", "v_proj", "overlap"});
  expect_refused(
      "{" + entry("k_proj", "F32", "[2]", "[0,8]") + "," + entry("v_proj", "F32", "[2]", "[4,12]") + "}", 12,
      {"k_proj", "v_proj", "overlap"});
  expect_refused(
      "{" + entry("k_proj", "F32", "[1]", "[0,4]") + "," + entry("v_proj", "F32", "[1]", "[8,12]") + "}", 12,
      {"4 bytes before", "v_proj"});
  expect_refused("{" + entry("k_proj", "F32", "[1]", "[4,8]") + "}", 8, {"4 bytes before", "k_proj"});
  expect_refused("{" + entry("k_proj", "F32", "[1]", "[0,4]") + "}", 8, {"last 4 bytes", "no tensor"});
  const TempFolder folder;
  const SafetensorsFile unsorted = SafetensorsFile::open(folder.write(
      "u", with_header("{" + entry("b", "U8", "[2]", "[1,3]") + "," + entry("a", "U8", "[1]", "[0,1]") + "}",
                       std::string("\x07\x08\x09", 3))));
  EXPECT_EQ(unsorted.tensor("a").read_i64(), std::vector<std::int64_t>{7});
  EXPECT_EQ(unsorted.tensor("b").read_i64(), (std::vector<std::int64_t>{8, 9}));
}

TEST(Safetensors, C067ShapeAgainstRange) {
  const auto refused = [](std::string_view dtype, std::string_view shape, std::string_view offsets,
                          std::string_view why) {
    expect_refused("{" + entry("w.0", dtype, shape, offsets) + "}", 4, {"\"w.0\"", why});
  };
  refused("F32", "[1000,1000]", "[0,4]", "needs 4000000 bytes");
  refused("F32", "[1]", "[4,0]", "ends before it begins");
  refused("F32", "[2]", "[0,8]", "should have");
  refused("F32", "[-1]", "[0,4]", "-1");
  refused("F32", "[1]", "[-4,0]", "-4");
  refused("F32", "[1.0]", "[0,4]", "1.0");
  refused("F32", "[1]", "[0,4.5]", "4.5");
  refused("F32", "[1e300]", "[0,4]", "integers");
  refused("F32", "[4294967296,4294967296]", "[0,4]", "2^63-1 elements");
  refused("F32", "[4294967296,4294967296,0]", "[0,0]", "2^63-1 elements");
  refused("F64", "[4611686018427387904]", "[0,4]", "2^63-1 bytes");
  refused("F32", "[18446744073709551615]", "[0,4]", "18446744073709551615");
  refused("F32", "[1]", "[18446744073709551612,18446744073709551616]", "integers");
  refused("F32", "[1]", "[9223372036854775803,9223372036854775807]", "should have");
  refused("F32", "[1]", "[18446744073709551608,18446744073709551612]", "18446744073709551608");
  refused("F32", "1", "[0,4]", "an array");
  refused("F32", "[\"1\"]", "[0,4]", "\"1\"");
  refused("F33", "[1]", "[0,4]", "unknown dtype \"F33\"");
}

TEST(Safetensors, C068HeaderFaults) {
  const std::string good = small_file();
  const TempFolder folder;
  const auto refused = [&](std::string_view bytes, std::initializer_list<std::string_view> pieces) {
    const std::string path = folder.write("bad", bytes);
    expect_error(ErrorKind::data, {path}, [&] { SafetensorsFile::open(path); });
    expect_error(ErrorKind::data, pieces, [&] { SafetensorsFile::open(path); });
  };
  refused("", {"header length", "8 bytes", "0 are left"});
  refused("1234567", {"header length", "8 bytes", "7 are left"});
  const std::string_view body = std::string_view(good).substr(8);
  refused(length_prefix(0) + std::string(body), {"0 bytes"});
  refused(length_prefix(7) + std::string(body), {"(header):1:"});
  refused(length_prefix(std::uint64_t{1} << 40) + std::string(body), {"1099511627776"});
  refused(length_prefix(~std::uint64_t{0}) + std::string(body), {"18446744073709551615"});
  refused(length_prefix(good.size() - 7) + std::string(body), {std::to_string(good.size() - 7)});
  refused(with_header("[1,2]", ""), {"begins with {"});
  refused(with_header("{\"\xff\":1}", ""), {"UTF-8"});
  refused(with_header("{\"a\":" + std::string(100000, '['), ""), {"nested deeper"});
  refused(with_header(std::string(100000, '{'), ""), {"(header):1:"});
  expect_refused("{" + entry("w", "F32", "[1]", "[4]") + "}", 4, {"\"w\"", "1 numbers"});
  expect_refused("{" + entry("w", "F32", "[1]", "[0,4,8]") + "}", 4, {"\"w\"", "3 numbers"});
  expect_refused(R"({"w":{"dtype":"F32","shape":[1]}})", 4, {"\"w\"", "data_offsets"});
  expect_refused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"strides":[1]}})", 4,
                 {"\"w\"", "strides"});
  expect_refused(R"({"w":7})", 4, {"\"w\"", "an object"});
  expect_refused(R"({"__metadata__":{"a":1}})", 0, {"__metadata__", "a string"});
  expect_refused(R"({"__metadata__":[]})", 0, {"__metadata__", "an object"});
}

// A header may claim a lot and hold a lot: 90 MB of numbers must be refused within the memory that a session allows.
TEST(Safetensors, C068AHugeHeaderIsRefusedInBoundedMemory) {
  const TempFolder folder;
  std::string numbers = "{\"w\":[0";
  numbers.reserve(90'000'000);
  while (numbers.size() < 90'000'000) numbers += ",1";
  const std::string path = folder.write("big", with_header(numbers, ""));
  numbers = std::string();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    rusage before{};
    getrusage(RUSAGE_SELF, &before);
    int status = 1;
    try {
      SafetensorsFile::open(path);
    } catch (const Error& e) {
      status = std::string_view(e.what()).find("more than 1500000 values") == std::string_view::npos ? 2 : 0;
    }
    rusage after{};
    getrusage(RUSAGE_SELF, &after);
    if (status == 0 && after.ru_maxrss - before.ru_maxrss > 200 * 1024) status = 3;
    _exit(status);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_EQ(WEXITSTATUS(status), 0);
#else
  EXPECT_TRUE(WEXITSTATUS(status) == 0 ||
              WEXITSTATUS(status) == 3);  // the sanitizer's own memory counts there
#endif
}

TEST(Safetensors, C069ATruncatedFileIsRefusedWithBothSizes) {
  const std::string header =
      "{" + entry("a", "U8", "[100]", "[0,100]") + "," + entry("b", "F32", "[4000]", "[100,16100]") + "}";
  const std::string whole = with_header(header, std::string(16100, 'x'));
  const TempFolder folder;
  for (const std::size_t cut : {std::size_t{1}, std::size_t{4096}, whole.size() / 2}) {
    const std::string path = folder.write("cut", std::string_view(whole).substr(0, whole.size() - cut));
    expect_error(ErrorKind::data,
                 {path, "\"b\"", std::to_string(whole.size()), std::to_string(whole.size() - cut)},
                 [&] { SafetensorsFile::open(path); });
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  testing::expect_every_truncation_refused(small_file(),
                                           [](const std::string& p) { SafetensorsFile::open(p); });
}

TEST(Safetensors, EveryChangedHeaderByteEndsInAnErrorOrALoad) {
  const std::string good = small_file();
  const int loaded = testing::open_every_corruption(good, good.size() - 27, [](const std::string& p) {
    const SafetensorsFile file = SafetensorsFile::open(p);
    for (const auto& e : file.entries()) {
      const TensorView t = file.tensor(e);
      EXPECT_EQ(static_cast<std::int64_t>(t.bytes.size()), t.num_elements * dtype_bytes(t.dtype));
    }
  });
  EXPECT_GT(loaded, 0);  // letters of names may change
}

TEST(SafetensorsWriter, WritesTheBytesThatTheFormatAsksFor) {
  const TempFolder folder;
  const std::string path = folder.file("a.safetensors");
  SafetensorsWriter writer(
      path, {{"w", FileDType::f32, {2}}, {"none", FileDType::f32, {0}}, {"b", FileDType::bf16, {2}}},
      {.metadata = {{"format", "pt"}}});
  const float w[2] = {1.0F, 2.0F};
  writer.write("w", std::span<const float>(w, 1));
  writer.write("w", std::span<const float>(w + 1, 1));
  const float b[2] = {1.0F, -2.5F};
  writer.write("b", std::span<const float>(b));
  EXPECT_FALSE(path_exists(path));
  writer.commit();
  std::string header = R"({"__metadata__":{"format":"pt"},)" + entry("w", "F32", "[2]", "[0,8]") + "," +
                       entry("none", "F32", "[0]", "[8,8]") + "," + entry("b", "BF16", "[2]", "[8,12]") + "}";
  while (header.size() % 8 != 0) header += ' ';
  EXPECT_EQ(read_text_file(path, 1 << 20),
            with_header(header, std::string("\x00\x00\x80\x3f\x00\x00\x00\x40\x80\x3f\x20\xc0", 12)));
  EXPECT_EQ(SafetensorsFile::open(path).tensor("b").read_f32(), (std::vector<float>{1.0F, -2.5F}));
}

TEST(SafetensorsWriter, OrdersByAlignment) {
  const TempFolder folder;
  const std::string path = folder.file("a");
  SafetensorsWriter writer(path,
                           {{"c", FileDType::u8, {3}},
                            {"b", FileDType::f32, {1}},
                            {"a", FileDType::f32, {1}},
                            {"z", FileDType::i64, {1}}},
                           {.order = SafetensorsWriterOptions::Order::by_alignment});
  std::vector<std::string> order;
  for (const TensorSpec& s : writer.tensors()) order.push_back(s.name);
  EXPECT_EQ(order, (std::vector<std::string>{"z", "a", "b", "c"}));
}

TEST(SafetensorsWriter, EmptyAndUnfinishedFiles) {
  const TempFolder folder;
  const std::string path = folder.file("none");
  SafetensorsWriter empty(path, {});
  empty.commit();
  EXPECT_TRUE(SafetensorsFile::open(path).entries().empty());
  SafetensorsWriter writer(folder.file("a"), {{"w", FileDType::f32, {2}}, {"v", FileDType::f32, {1}}});
  const float three[3] = {};
  EXPECT_THROW(writer.commit(), Error);
  EXPECT_THROW(writer.write("v", std::span<const float>(three, 1)), Error);
  EXPECT_THROW(writer.write("w", std::span<const float>(three, 3)), Error);
  expect_error(ErrorKind::data, {"\"w\"", "taken"}, [&] {
    SafetensorsWriter twice(folder.file("b"), {{"w", FileDType::f32, {1}}, {"w", FileDType::f32, {1}}});
  });
  expect_error(ErrorKind::io, {folder.file("c"), "bytes", "free"}, [&] {
    SafetensorsWriter huge(folder.file("c"), {{"w", FileDType::f32, {std::int64_t{1} << 58}}});
  });
  EXPECT_EQ(list_folder(folder.path()).size(), 2U);  // "none" and the temporary of the open writer
}

}  // namespace
}  // namespace planalto
