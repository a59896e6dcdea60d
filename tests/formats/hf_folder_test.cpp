// SPDX-License-Identifier: Apache-2.0
#include "formats/hf_folder.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "formats/hostile.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace planalto {
namespace {

using testing::expect_error;
using testing::TempFolder;

// Writes a safetensors file whose tensors are U8 of two elements, both with the value given.
void write_shard(const std::string& path, const std::vector<std::pair<std::string, int>>& tensors) {
  std::vector<TensorSpec> specs;
  specs.reserve(tensors.size());
  for (const auto& [name, value] : tensors) specs.push_back({name, FileDType::u8, {2}});
  SafetensorsWriter writer(path, specs);
  for (const auto& [name, value] : tensors) {
    writer.write(name, std::vector<std::byte>(2, static_cast<std::byte>(value)));
  }
  writer.commit();
}

constexpr const char* kShard1 = "model-00001-of-00003.safetensors";
constexpr const char* kShard2 = "model-00002-of-00003.safetensors";
constexpr const char* kShard3 = "model-00003-of-00003.safetensors";

// Tensors a, b | c | d in three shards, with their index.
void write_three_shards(const TempFolder& folder) {
  folder.write("config.json", "{}");
  write_shard(folder.file(kShard1), {{"a", 1}, {"b", 2}});
  write_shard(folder.file(kShard2), {{"c", 3}});
  write_shard(folder.file(kShard3), {{"d", 4}});
  folder.write(
      "model.safetensors.index.json",
      fmt::format(
          R"({{"metadata":{{"total_size":8}},"weight_map":{{"a":"{0}","b":"{0}","c":"{1}","d":"{2}"}}}})",
          kShard1, kShard2, kShard3));
}

std::int64_t value_of(const HfFolder& folder, std::string_view name) {
  return folder.tensor(name).read_i64()[1];
}

TEST(HfFolder, OpensTheGoldenModel) {
  const HfFolder folder = HfFolder::open(PLANALTO_GOLDEN "/deepseek_v3-a");
  EXPECT_TRUE(folder.contains("model.embed_tokens.weight"));
  EXPECT_FALSE(folder.contains("prompt_ids"));  // of generate.safetensors, beside it
  EXPECT_EQ(folder.notices().size(), 2U);       // generate and vectors
  EXPECT_EQ(folder.num_tensors(), static_cast<std::int64_t>(folder.names().size()));
  expect_error(ErrorKind::data, {"no tensor \"nowhere\""}, [&] { folder.tensor("nowhere"); });
}

TEST(HfFolder, C070AWholeShardSetLoads) {
  const TempFolder folder;
  write_three_shards(folder);
  const HfFolder model = HfFolder::open(folder.path());
  EXPECT_EQ(model.names(), (std::vector<std::string_view>{"a", "b", "c", "d"}));
  EXPECT_EQ(value_of(model, "b"), 2);
  EXPECT_EQ(value_of(model, "d"), 4);
  EXPECT_EQ(model.tensor_bytes(), 8);
  EXPECT_TRUE(model.notices().empty());
}

TEST(HfFolder, C070MissingAndRenamedShardsAreListed) {
  const TempFolder folder;
  write_three_shards(folder);
  ASSERT_EQ(rename(folder.file(kShard2).c_str(), folder.file("other.safetensors").c_str()), 0);
  expect_error(ErrorKind::data, {"1 of 3 shards", kShard2}, [&] { HfFolder::open(folder.path()); });
  remove_all(folder.file(kShard3));
  expect_error(ErrorKind::data, {"2 of 3 shards", kShard2, kShard3}, [&] { HfFolder::open(folder.path()); });
}

TEST(HfFolder, C070FilesOutsideTheIndexAreIgnoredWithANotice) {
  const TempFolder folder;
  write_three_shards(folder);
  write_shard(folder.file("model.safetensors"), {{"a", 9}, {"x", 9}});
  const HfFolder model = HfFolder::open(folder.path());
  EXPECT_EQ(value_of(model, "a"), 1);
  EXPECT_FALSE(model.contains("x"));
  ASSERT_EQ(model.notices().size(), 1U);
  EXPECT_NE(model.notices()[0].find("model.safetensors: ignored"), std::string::npos);
}

TEST(HfFolder, C070AShardWithoutItsTensorAndATensorInTwoShardsAreRefused) {
  const TempFolder folder;
  write_three_shards(folder);
  write_shard(folder.file(kShard2), {{"e", 3}});
  expect_error(ErrorKind::data, {"\"c\"", kShard2}, [&] { HfFolder::open(folder.path()); });
  write_shard(folder.file(kShard2), {{"c", 3}, {"a", 7}});
  expect_error(ErrorKind::data, {"\"a\"", "two shards", kShard1, kShard2},
               [&] { HfFolder::open(folder.path()); });
  write_shard(folder.file(kShard2), {{"c", 3}, {"e", 7}});
  const HfFolder model = HfFolder::open(folder.path());
  EXPECT_FALSE(model.contains("e"));
  ASSERT_EQ(model.notices().size(), 1U);
  EXPECT_NE(model.notices()[0].find("\"e\""), std::string::npos);
}

TEST(HfFolder, BadIndexesAndFoldersAreRefused) {
  const TempFolder folder;
  expect_error(ErrorKind::io, {"not a folder"}, [&] { HfFolder::open(folder.file("none")); });
  expect_error(ErrorKind::data, {"config.json"}, [&] { HfFolder::open(folder.path()); });
  folder.write("config.json", "{}");
  expect_error(ErrorKind::data, {"neither model.safetensors nor"}, [&] { HfFolder::open(folder.path()); });
  write_shard(folder.file(kShard1), {{"a", 1}});
  expect_error(ErrorKind::data, {"only", kShard1}, [&] { HfFolder::open(folder.path()); });
  for (const char* bad : {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":7}})",
                          R"({"weight_map":{"a":"../x"}})", R"({"weight_map":{"a":"/etc/passwd"}})",
                          R"({"weight_map":{"a":""}})", R"({"weight_map":{"a":"x","a":"x"}})"}) {
    folder.write("model.safetensors.index.json", bad);
    EXPECT_THROW(HfFolder::open(folder.path()), Error) << bad;
  }
}

TEST(HfFolder, EveryDamageToTheIndexEndsInAnErrorOrALoad) {
  const TempFolder folder;
  folder.write("config.json", "{}");
  write_shard(folder.file("m1"), {{"a", 1}});
  write_shard(folder.file("m2"), {{"c", 3}});
  const std::string index = R"({"metadata":{"total_size":4},"weight_map":{"a":"m1","c":"m2"}})";
  const auto open = [&](const std::string& damaged) {
    remove_all(folder.file("model.safetensors.index.json"));
    ASSERT_EQ(symlink(damaged.c_str(), folder.file("model.safetensors.index.json").c_str()), 0);
    HfFolder::open(folder.path());
  };
  testing::expect_every_truncation_refused(index, open);
  testing::open_every_corruption(index, index.size(), open);
}

std::vector<float> numbers(std::size_t n, float first) {
  std::vector<float> out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

TEST(HfFolderWriter, OneFileWhenItFits) {
  const TempFolder folder;
  const std::string tokenizer = folder.write("tokenizer.json", "{\"model\": {}}\n");
  const std::string path = folder.file("out");
  HfFolderWriter writer(path, {{"w", FileDType::f32, {2, 2}}, {"b", FileDType::bf16, {3}}},
                        "{\"hidden_size\": 2}\n", {.copies = {tokenizer}});
  writer.write("w", std::span<const float>(numbers(4, 1)));
  writer.write("b", std::span<const float>(numbers(3, 5)));
  EXPECT_FALSE(path_exists(path));
  writer.commit();
  EXPECT_EQ(list_folder(path),
            (std::vector<std::string>{"config.json", "model.safetensors", "tokenizer.json"}));
  EXPECT_EQ(read_text_file(join_path(path, "config.json"), 1000), "{\"hidden_size\": 2}\n");
  EXPECT_EQ(read_text_file(join_path(path, "tokenizer.json"), 1000), "{\"model\": {}}\n");
  const HfFolder model = HfFolder::open(path);
  EXPECT_EQ(model.tensor("w").read_f32(), numbers(4, 1));
  EXPECT_EQ(model.tensor("b").read_f32(), numbers(3, 5));
  EXPECT_TRUE(model.notices().empty());
  EXPECT_EQ(model.shards()[0].metadata(),
            (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));
  expect_error(ErrorKind::io, {path, "there already"}, [&] { HfFolderWriter again(path, {}, "{}"); });
}

TEST(HfFolderWriter, ShardsWithAnIndexAboveTheLimit) {
  const TempFolder folder;
  const std::string path = folder.file("out");
  // Limit 16 bytes: w (16) | big (40, larger than the limit) | x (8), none (0), y (8) | z (4)
  const std::vector<TensorSpec> specs{{"w", FileDType::f32, {4}}, {"big", FileDType::f32, {10}},
                                      {"x", FileDType::f32, {2}}, {"none", FileDType::f32, {0}},
                                      {"y", FileDType::f32, {2}}, {"z", FileDType::f32, {1}}};
  HfFolderWriter writer(path, specs, "{}", {.max_shard_bytes = 16});
  for (const TensorSpec& s : specs)
    writer.write(s.name, std::span<const float>(numbers(static_cast<std::size_t>(s.shape[0]), 1)));
  writer.commit();
  EXPECT_EQ(list_folder(path),
            (std::vector<std::string>{"config.json", "model-00001-of-00004.safetensors",
                                      "model-00002-of-00004.safetensors", "model-00003-of-00004.safetensors",
                                      "model-00004-of-00004.safetensors", "model.safetensors.index.json"}));
  const JsonValue index = read_json_file(join_path(path, "model.safetensors.index.json"));
  EXPECT_EQ(index.at("metadata", "").at("total_size", "").as_int64(""), 76);
  EXPECT_EQ(index.at("weight_map", "").at("y", "").as_string(""), "model-00003-of-00004.safetensors");
  EXPECT_EQ(index.at("weight_map", "").as_object("").begin()->key, "big");
  const HfFolder model = HfFolder::open(path);
  EXPECT_EQ(model.num_tensors(), 6);
  for (const TensorSpec& s : specs)
    EXPECT_EQ(model.tensor(s.name).read_f32(), numbers(static_cast<std::size_t>(s.shape[0]), 1)) << s.name;
  EXPECT_TRUE(model.notices().empty());
}

TEST(HfFolderWriter, NothingStaysOfAnUnfinishedFolder) {
  const TempFolder folder;
  {
    HfFolderWriter writer(folder.file("out"), {{"w", FileDType::f32, {4}}}, "{}");
    writer.write("w", std::span<const float>(numbers(2, 1)));
    EXPECT_THROW(writer.commit(), Error);
    EXPECT_THROW(writer.write("v", std::span<const float>(numbers(2, 1))), Error);
  }
  EXPECT_TRUE(list_folder(folder.path()).empty());
  expect_error(ErrorKind::data, {"\"w\"", "twice"}, [&] {
    HfFolderWriter twice(folder.file("out"), {{"w", FileDType::f32, {4}}, {"w", FileDType::f32, {4}}}, "{}",
                         {.max_shard_bytes = 1});
  });
  EXPECT_TRUE(list_folder(folder.path()).empty());
}

// HF in, HF out: the bytes of every tensor are those of the source.
TEST(HfFolderWriter, C073RoundTripKeepsEveryByte) {
  const TempFolder folder;
  const HfFolder source = HfFolder::open(PLANALTO_GOLDEN "/qwen3_moe-a");
  std::vector<TensorSpec> specs;
  for (const std::string_view name : source.names()) {
    const TensorView t = source.tensor(name);
    specs.push_back({std::string(name), t.dtype, {t.shape.begin(), t.shape.end()}});
  }
  HfFolderWriter writer(folder.file("out"), specs, read_text_file(source.config_path(), 1 << 20));
  for (const std::string_view name : source.names()) writer.write(name, source.tensor(name).bytes);
  writer.commit();
  const HfFolder copy = HfFolder::open(folder.file("out"));
  ASSERT_EQ(copy.names(), source.names());
  for (const std::string_view name : source.names()) {
    const TensorView a = source.tensor(name);
    const TensorView b = copy.tensor(name);
    EXPECT_EQ(a.dtype, b.dtype);
    EXPECT_TRUE(std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end()));
    EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end())) << name;
  }
  EXPECT_EQ(read_text_file(copy.config_path(), 1 << 20), read_text_file(source.config_path(), 1 << 20));
}

}  // namespace
}  // namespace planalto
