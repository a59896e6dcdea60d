// SPDX-License-Identifier: Apache-2.0
// The vectors of tests/golden/README.md, section 10: ids and texts that the Hugging Face library gave. The small
// tokenizers are part of the repository; whole ones are looked for in the folder that PLANALTO_TOKENIZERS names, or in
// ../shared/golden/tokenizers/full beside the checkout: NAME.tokenizer.json or NAME.tokenizer.json.xz, its vectors in
// NAME.jsonl beside it or in tests/golden/tokenizers.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "formats/tokenizer/tokenizer.h"
#include "formats/tokenizer/verify_vectors.h"

namespace {

using planalto::Tokenizer;

const std::string kGolden = PLANALTO_GOLDEN "/tokenizers";

void expect_all(const std::string& vectors, const Tokenizer& tokenizer, std::int64_t at_least) {
  const std::vector<planalto::VectorRow> rows = planalto::verify_tokenizer_vectors(vectors, tokenizer);
  EXPECT_GE(static_cast<std::int64_t>(rows.size()), at_least) << vectors;
  for (const planalto::VectorRow& row : rows) {
    EXPECT_TRUE(row.ok) << vectors << ":" << row.line << ": " << row.what << " " << row.detail;
  }
}

class SmallTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(SmallTokenizer, EncodesAndDecodesAsTheReference) {
  const std::string base = kGolden + "/small/" + GetParam();
  const Tokenizer tokenizer = Tokenizer::load(base + ".tokenizer.json");
  expect_all(base + ".jsonl", tokenizer, 5 * 190);
  expect_all(base + ".decode.jsonl", tokenizer, 3 * 40);
}

INSTANTIATE_TEST_SUITE_P(Families, SmallTokenizer,
                         testing::Values("deepseek_v3", "qwen3", "gptoss", "llama3"),
                         [](const auto& family) { return std::string(family.param); });

std::string folder_of_whole_tokenizers() {
  const char* named = std::getenv("PLANALTO_TOKENIZERS");
  return named != nullptr ? named : kGolden + "/../../../../shared/golden/tokenizers/full";
}

std::string unpacked(const std::string& path) {
  if (!path.ends_with(".xz")) return planalto::read_text_file(path, std::int64_t{1} << 30);
  std::FILE* pipe = popen(("xz -dc '" + path + "'").c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  std::vector<char> buffer(1 << 20);
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), n);
  return pclose(pipe) == 0 ? text : std::string();
}

TEST(WholeTokenizers, EncodeAndDecodeAsTheReference) {
  const std::string folder = folder_of_whole_tokenizers();
  if (!planalto::is_folder(folder)) GTEST_SKIP() << "no whole tokenizers (PLANALTO_TOKENIZERS is not set)";
  std::int64_t num_checked = 0;
  for (const std::string& file : planalto::list_folder(folder)) {
    const std::size_t end = file.find(".tokenizer.json");
    const std::string path = planalto::join_path(folder, file);
    const std::string name = file.substr(0, end);
    if (end == std::string::npos || !planalto::is_regular_file(path) || name == "llama2") continue;
    const std::string text = unpacked(path);
    if (text.empty()) GTEST_SKIP() << path << " could not be unpacked (xz is needed)";
    const Tokenizer tokenizer = Tokenizer::from_text(text, file);
    const std::string beside = planalto::join_path(folder, name + ".jsonl");
    expect_all(planalto::path_exists(beside) ? beside : kGolden + "/" + name + ".jsonl", tokenizer, 1);
    ++num_checked;
  }
  EXPECT_GT(num_checked, 0) << folder;
}

}  // namespace
