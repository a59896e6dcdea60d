// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/special_tokens.h"

#include <gtest/gtest.h>

#include <string>

#include "support/expect_error.h"
#include "support/temp_folder.h"
#include "tokenizer/tiny_file.h"

namespace planalto {
namespace {

using planalto::testing::expect_error;
using planalto::testing::TempFolder;

TEST(SpecialTokens, FromTokenizerConfig) {
  tests::TinyFile file;
  file.added = {{"<s>"}, {"</s>"}};
  const Tokenizer tokenizer = file.load();
  const TempFolder folder;
  const SpecialTokens tokens = read_special_tokens(
      folder.write("a.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, )"
                             R"("pad_token": "</s>", "add_bos_token": true, "model_max_length": 1e30})"),
      tokenizer);
  EXPECT_EQ(tokens.bos, 256);
  EXPECT_EQ(tokens.eos, 257);
  EXPECT_EQ(tokens.pad, 257);
  EXPECT_TRUE(tokens.add_bos);
  EXPECT_FALSE(tokens.add_eos);
  const SpecialTokens none = read_special_tokens(folder.write("b.json", R"({"bos_token": null})"), tokenizer);
  EXPECT_FALSE(none.bos);
  EXPECT_FALSE(none.eos);
  expect_error(ErrorKind::data, {"c.json", "eos_token", "<end>"},
               [&] { read_special_tokens(folder.write("c.json", R"({"eos_token": "<end>"})"), tokenizer); });
  expect_error(ErrorKind::data, {"d.json"},
               [&] { read_special_tokens(folder.write("d.json", "[]"), tokenizer); });
  expect_error(ErrorKind::data, {"e.json", "bos_token"},
               [&] { read_special_tokens(folder.write("e.json", R"({"bos_token": 1})"), tokenizer); });
}

TEST(SpecialTokens, GuessedByName) {
  const auto of_family = [](const std::string& family) {
    return guess_special_tokens(
        Tokenizer::load(PLANALTO_GOLDEN "/tokenizers/small/" + family + ".tokenizer.json"));
  };
  EXPECT_EQ(of_family("deepseek_v3").bos, 0);
  EXPECT_EQ(of_family("deepseek_v3").eos, 1);
  EXPECT_EQ(of_family("qwen3").bos, std::nullopt);
  EXPECT_EQ(of_family("qwen3").eos, 4130);
  EXPECT_EQ(of_family("gptoss").bos, 2147);
  EXPECT_EQ(of_family("gptoss").eos, 2148);
  EXPECT_EQ(of_family("llama3").bos, 2130);
  EXPECT_EQ(of_family("llama3").eos, 2131);
  tests::TinyFile file;
  file.added = {{"</s>"}, {"<eos>"}};  // two candidates: no guess
  EXPECT_EQ(guess_special_tokens(file.load()).eos, std::nullopt);
  file.added = {{"</s>", false}};  // HTML's strike-through, not special
  EXPECT_EQ(guess_special_tokens(file.load()).eos, std::nullopt);
}

}  // namespace
}  // namespace planalto
