// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json cut at any length or with damaged bytes: an Error or a tokenizer that works, never a crash.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "formats/tokenizer/tokenizer.h"
#include "tokenizer/tiny_file.h"

namespace planalto {
namespace {

const std::string kSmall = PLANALTO_GOLDEN "/tokenizers/small/";

// True when the file was taken.
bool try_file(const std::string& json) {
  try {
    const Tokenizer tokenizer = Tokenizer::from_text(json, "hostile.json");
    const std::string text = "Hello  world 123\n<|endoftext|> don't \u4f60\u597d\u0301";
    try {
      static_cast<void>(tokenizer.decode(tokenizer.encode(text, true), false));
    } catch (const Error& e) {  // a byte that lost its token, or a pattern that explodes
      EXPECT_EQ(e.kind(), ErrorKind::data) << e.what();
    }
    return true;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::data) << e.what();
    EXPECT_NE(std::string(e.what()).find("hostile.json"), std::string::npos) << e.what();
    return false;
  }
}

std::string rich_file() {
  tests::TinyFile file;
  file.merges = {{"\u0120", "w"}, {"o", "r"}, {"l", "d"}, {"\u0120w", "or"}, {"\u0120wor", "ld"}};
  file.words = {"Hello"};
  file.added = {{"<|endoftext|>"}, {"<think>", false, true, true, true}};
  file.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "NFC"}]})";
  file.pre_tokenizer = tests::sequence_of(
      R"({"type": "Digits", "individual_digits": true},)" +
      tests::split_component(
          R"((?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"));
  file.post_processor =
      R"({"type": "Sequence", "processors": [{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "E", )"
      R"("type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"E": {"id": "E", )"
      R"("ids": [262], "tokens": ["E"]}}}]})";
  return file.json();
}

TEST(HostileFile, CutAtAnyLength) {
  const std::string json = rich_file();
  ASSERT_TRUE(try_file(json));
  for (std::size_t length = 0; length < json.size(); ++length)
    EXPECT_FALSE(try_file(json.substr(0, length))) << length;
}

TEST(HostileFile, CutWithinEachFamily) {
  for (const char* family : {"deepseek_v3", "gptoss", "llama3", "qwen3"}) {
    const std::string json = read_text_file(kSmall + family + ".tokenizer.json", 1 << 24);
    for (std::size_t length = 0; length + 1 < json.size(); length += 1 + json.size() / 61) {
      EXPECT_FALSE(try_file(json.substr(0, length))) << family << " at " << length;
    }
  }
}

TEST(HostileFile, DamagedBytes) {
  const std::string json = rich_file();
  std::mt19937_64 random(11);
  std::int64_t num_taken = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string damaged = json;
    // Most of the file is vocabulary: half of the damage goes to the rest.
    const std::size_t structure = damaged.find("\"vocab\"");
    for (std::size_t i = 0; i <= random() % 3; ++i) {
      const std::size_t at = random() % (random() % 2 == 0 ? damaged.size() : structure);
      static constexpr std::string_view kPool = "\"{}[]:,0129-.eE+*?\\ ntrueflas|()^$p";
      damaged[at] = random() % 2 == 0 ? kPool[random() % kPool.size()] : static_cast<char>(random());
    }
    SCOPED_TRACE("round " + std::to_string(round) + " of seed 11");
    num_taken += try_file(damaged) ? 1 : 0;
  }
  EXPECT_GT(num_taken, 0);
  EXPECT_LT(num_taken, 6000);
}

TEST(HostileFile, DamageWithinEachFamily) {
  std::mt19937_64 random(12);
  for (const char* family : {"deepseek_v3", "gptoss", "llama3", "qwen3"}) {
    const std::string json = read_text_file(kSmall + family + ".tokenizer.json", 1 << 24);
    for (int round = 0; round < 40; ++round) {
      std::string damaged = json;
      // The first bytes hold the components, the rest the vocabulary and the merges.
      damaged[random() % (round % 2 == 0 ? 5000 : damaged.size())] = static_cast<char>(random());
      SCOPED_TRACE(std::string(family) + ", round " + std::to_string(round) + " of seed 12");
      try_file(damaged);
    }
  }
}

TEST(HostileFile, DeepNesting) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += R"({"type": "Sequence", "pretokenizers": [)";
  EXPECT_FALSE(
      try_file(R"({"model": {"type": "BPE", "vocab": {}, "merges": []}, "decoder": {"type": "ByteLevel"}, )"
               R"("pre_tokenizer": )" +
               deep));
  EXPECT_FALSE(try_file(std::string(1 << 20, '[')));
  tests::TinyFile file;
  file.pre_tokenizer =
      tests::sequence_of(tests::split_component(std::string(20000, '(') + "a" + std::string(20000, ')')));
  EXPECT_FALSE(try_file(file.json()));
}

}  // namespace
}  // namespace planalto
