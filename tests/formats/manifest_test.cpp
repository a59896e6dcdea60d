// SPDX-License-Identifier: Apache-2.0
#include "formats/manifest.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "formats/hostile.h"
#include "formats/inspect.h"
#include "formats/safetensors.h"
#include "formats/token_shard.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace planalto {
namespace {

using testing::expect_error;
using testing::TempFolder;

void write_checkpoint(const TempFolder& folder) {
  folder.write("weights", "12345");
  folder.write("state", "abc");
  Manifest manifest;
  manifest.step = 70;
  manifest.files = {describe_file(folder.path(), "weights"), describe_file(folder.path(), "state")};
  manifest.extra.set("isa", JsonValue("avx512"));
  write_manifest(folder.path(), manifest);
}

TEST(Manifest, ComesBackAndItsFilesAreChecked) {
  const TempFolder folder;
  EXPECT_FALSE(has_manifest(folder.path()));
  write_checkpoint(folder);
  EXPECT_TRUE(has_manifest(folder.path()));
  const Manifest m = verify_manifest(folder.path());
  EXPECT_EQ(m.step, 70);
  ASSERT_EQ(m.files.size(), 2U);
  EXPECT_EQ(m.files[0].name, "weights");
  EXPECT_EQ(m.files[0].bytes, 5);
  EXPECT_EQ(m.files[1].xxh3, 0x78af5f94892f3950ULL);  // XXH3 of "abc"
  EXPECT_EQ(m.extra.find("isa")->as_string(""), "avx512");
  EXPECT_EQ(m.extra.size(), 1);
}

TEST(Manifest, EveryProblemIsNamed) {
  const TempFolder folder;
  write_checkpoint(folder);
  folder.write("weights", "12346");
  expect_error(ErrorKind::data, {"weights is damaged"}, [&] { verify_manifest(folder.path()); });
  EXPECT_TRUE(manifest_problems(folder.path(), read_manifest(folder.path()), false).empty());
  folder.write("weights", "1234");
  remove_all(folder.file("state"));
  expect_error(ErrorKind::data,
               {folder.path(), "weights has 4 bytes, the manifest says 5", "state is missing (3 bytes)"},
               [&] { verify_manifest(folder.path()); });
}

TEST(Manifest, HostileManifestsAreRefused) {
  const TempFolder folder;
  const auto refused = [&](std::string_view text, std::string_view why) {
    folder.write("manifest.json", text);
    expect_error(ErrorKind::data, {folder.file("manifest.json"), why},
                 [&] { verify_manifest(folder.path()); });
  };
  const auto with_file = [](std::string_view file) {
    return fmt::format(R"({{"planalto_checkpoint":1,"step":0,"files":[{}]}})", file);
  };
  refused("", "JSON");
  refused("[]", "an object");
  refused("{}", "planalto_checkpoint");
  refused(R"({"planalto_checkpoint":2})", "version 2");
  refused(R"({"planalto_checkpoint":1,"step":-1,"files":[]})", "step is -1");
  refused(R"({"planalto_checkpoint":1,"step":0})", "files");
  refused(with_file("7"), "files[0]");
  for (const char* name : {"../a", "/etc/passwd", "a/b", "", "..", "manifest.json", "a\\u0000"}) {
    refused(with_file(fmt::format(R"({{"name":"{}","bytes":1,"xxh3":"0000000000000000"}})", name)),
            "no name of a file");
  }
  refused(with_file(R"({"name":"a","bytes":-1,"xxh3":"0000000000000000"})"), "bytes is -1");
  refused(with_file(R"({"name":"a","bytes":1.5,"xxh3":"0000000000000000"})"), "integer");
  refused(with_file(R"({"name":"a","bytes":1,"xxh3":"00"})"), "16 lower-case");
  const std::string once = R"({"name":"a","bytes":1,"xxh3":"0000000000000000"})";
  refused(with_file(once + "," + once), "stands twice");
}

TEST(Manifest, EveryTruncationAndChangedByteEndsInAnErrorOrALoad) {
  const TempFolder folder;
  write_checkpoint(folder);
  const std::string text = read_text_file(folder.file("manifest.json"), 1 << 20);
  const std::string without_newline = text.substr(0, text.size() - 1);
  const auto open = [&](const std::string& damaged) {
    remove_all(folder.file("manifest.json"));
    ASSERT_EQ(symlink(damaged.c_str(), folder.file("manifest.json").c_str()), 0);
    verify_manifest(folder.path());
  };
  testing::expect_every_truncation_refused(without_newline, open);
  testing::open_every_corruption(text, text.size(), open);
}

// --- inspect --------------------------------------------------------------------------------------------------------

std::int64_t fact(const Inspection& i, std::string_view key) {
  const JsonValue* v = i.facts.find(key);
  return v == nullptr ? -1 : v->as_int64("fact");
}

TEST(Inspect, RecognisesEachKindFromItsContent) {
  const TempFolder folder;
  const Inspection model = inspect(PLANALTO_GOLDEN "/qwen3_moe-a");
  EXPECT_EQ(model.kind, PathKind::hf_folder);
  EXPECT_EQ(model.facts.find("model_type")->as_string(""), "qwen3_moe");
  EXPECT_TRUE(model.problems.empty());
  const Inspection weights = inspect(PLANALTO_GOLDEN "/qwen3_moe-a/model.safetensors", {.tensors = true});
  EXPECT_EQ(weights.kind, PathKind::safetensors);
  EXPECT_EQ(fact(weights, "num_elements"), fact(model, "num_elements"));
  EXPECT_EQ(static_cast<std::int64_t>(weights.facts.find("tensors")->as_array("").size()),
            fact(weights, "num_tensors"));
  EXPECT_EQ(inspect(PLANALTO_GOLDEN "/qwen3_moe-a/config.json").kind, PathKind::model_config);
  const Inspection tokenizer = inspect(PLANALTO_GOLDEN "/tokenizers/small/qwen3.tokenizer.json");
  EXPECT_EQ(tokenizer.kind, PathKind::tokenizer);
  EXPECT_GT(fact(tokenizer, "vocab"), 256);
  const Inspection lines = inspect(PLANALTO_GOLDEN "/tokenizers/small/qwen3.jsonl");
  EXPECT_EQ(lines.kind, PathKind::jsonl);
  EXPECT_EQ(fact(lines, "records"), fact(lines, "lines"));
  EXPECT_EQ(inspect(folder.write("a.txt", "one\ntwo")).kind, PathKind::text);
  EXPECT_EQ(fact(inspect(folder.file("a.txt")), "lines"), 2);
  EXPECT_EQ(inspect(folder.write("b", "{not json\n")).kind, PathKind::text);
  EXPECT_EQ(inspect(folder.write("c", "\xff\xfe\x01")).kind, PathKind::unknown);
  EXPECT_EQ(inspect(folder.write("d.json", "[1,2]")).kind, PathKind::json);
  EXPECT_EQ(inspect(folder.write("e", "")).kind, PathKind::text);
  EXPECT_EQ(inspect(folder.path()).kind, PathKind::folder);
  write_checkpoint(folder);
  const Inspection checkpoint = inspect(folder.path());
  EXPECT_EQ(checkpoint.kind, PathKind::checkpoint);
  EXPECT_EQ(fact(checkpoint, "step"), 70);
  EXPECT_EQ(checkpoint.notices.size(), 5U);  // a.txt b c d.json e
  TokenShardWriter shard(folder.file("s"), {.vocab_size = 10});
  shard.add_document(std::vector<std::int32_t>{1, 2, 3});
  shard.add_document(std::vector<std::int32_t>{1});
  shard.commit();
  const Inspection tokens = inspect(folder.file("s"));
  EXPECT_EQ(tokens.kind, PathKind::token_shard);
  EXPECT_EQ(fact(tokens, "num_tokens"), 4);
  EXPECT_EQ(fact(tokens, "longest_document"), 3);
  expect_error(ErrorKind::io, {"none"}, [&] { inspect(folder.file("none")); });
}

TEST(Inspect, ReportsProblemsInsteadOfRaisingThem) {
  const TempFolder folder;
  const auto problems = [&](std::string_view name, std::string_view text) {
    const Inspection i = inspect(folder.write(name, text));
    EXPECT_EQ(write_json(to_json(i)).find("\"problems\":[]"), std::string::npos);
    return i.problems.size();
  };
  EXPECT_EQ(problems("a.safetensors", "1234567"), 1U);
  EXPECT_EQ(problems("a.json", "{"), 1U);
  EXPECT_EQ(problems("a.jsonl", "{}\n{\n[\n"), 2U);
  EXPECT_EQ(problems("a.txt", "ab\xff"), 1U);
  EXPECT_EQ(problems("a", "PLTSHARDxxxx"), 1U);
  EXPECT_EQ(problems("tokenizer.json", R"({"model":{"vocab":{}}})"), 1U);
  write_checkpoint(folder);
  folder.write("state", "abd");
  EXPECT_EQ(inspect(folder.path()).problems.size(), 1U);
  EXPECT_TRUE(inspect(folder.path(), {.contents = false}).problems.empty());
}

}  // namespace
}  // namespace planalto
