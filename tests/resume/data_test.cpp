// SPDX-License-Identifier: Apache-2.0
// data_test.cpp: text to the tokens that a run sees: document marks, masks, bad records, caches, held-out parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"
#include "train/data_source.h"
#include "train/setup.h"

namespace planalto {
namespace {

using testing::expect_error;
using testing::TempFolder;

// One token a byte, then <s> 256 and </s> 257.
std::string byte_tokenizer() {
  JsonObject vocab;
  // The visible stand-ins of byte-level files: printable bytes stand for themselves, the others from U+0100 on.
  int next = 256;
  auto utf8 = [](int c) {
    std::string s;
    if (c < 0x80) {
      s.push_back(static_cast<char>(c));
    } else {
      s.push_back(static_cast<char>(0xC0 | c >> 6));
      s.push_back(static_cast<char>(0x80 | (c & 0x3F)));
    }
    return s;
  };
  for (int b = 0; b < 256; ++b) {
    const bool visible = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    vocab.set(utf8(visible ? b : next++), b);
  }
  const std::string level =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
  return R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [)"
         R"({"id": 256, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},)"
         R"({"id": 257, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],)"
         R"("normalizer": null, "pre_tokenizer": )" +
         level + R"(, "post_processor": null, "decoder": )" + level +
         R"(, "model": {"type": "BPE", "dropout": null, "unk_token": null, "vocab": )" + write_json(vocab) +
         R"(, "merges": []}})";
}

using Documents = std::vector<std::vector<std::int32_t>>;
Documents documents_of(const TokenSource& source) {
  Documents all;
  for (std::int64_t d = 0; d < source.num_documents(); ++d) {
    all.emplace_back(static_cast<std::size_t>(source.document_length(d)));
    source.copy(d, 0, source.document_length(d), all.back().data());
  }
  return all;
}
std::vector<std::int32_t> bytes_of(const std::string& text, std::initializer_list<std::int32_t> behind = {}) {
  std::vector<std::int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  ids.insert(ids.end(), behind);
  return ids;
}

class Data : public ::testing::Test {
 protected:
  Data() : tokenizer_(Tokenizer::from_text(byte_tokenizer(), "bytes.json")) {
    options_.eos_id = 257;
    options_.bos_id = 256;
    options_.cache_dir = folder_.file("cache");
  }
  PreparedText prepare(const std::string& path) { return prepare_text(path, tokenizer_, options_); }
  ShardSource open(const std::string& path) {
    std::vector<TokenShard> shards;
    shards.push_back(TokenShard::open(prepare(path).shard_path));
    return ShardSource(std::move(shards));
  }

  TempFolder folder_;
  Tokenizer tokenizer_;
  PrepareOptions options_;
};

// Blank lines, indentation, tabs and CRLF come back byte for byte, with one mark behind the document.
TEST_F(Data, C083TextComesBackByteForByte) {
  const std::string text =
      "def f(x):\n\n    if x:\n\t\treturn  1\r\n\n\n  # \xE4\xBD\xA0 \xF0\x9F\x98\x80 end  \n";
  const ShardSource source = open(folder_.write("a.txt", text));
  EXPECT_EQ(documents_of(source), (Documents{bytes_of(text, {257})}));
  EXPECT_EQ(tokenizer_.decode(documents_of(source)[0], false), text + "</s>");
}

TEST_F(Data, C076And077OneMarkEachWhateverTheTextHolds) {
  const std::string path =
      folder_.write("a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"<s>ab\"}\n{\"text\":\"ab</s>\"}\n");
  options_.text.format = TextSourceOptions::Format::jsonl;
  options_.add_bos = true;
  EXPECT_EQ(documents_of(open(path)),
            (Documents{{256, 97, 98, 257}, {256, 97, 98, 257}, {256, 97, 98, 257}}));
  options_.add_bos = options_.add_eos = false;
  EXPECT_EQ(documents_of(open(path)), (Documents{{97, 98}, {256, 97, 98}, {97, 98, 257}}));
  options_.add_eos = true;
  EXPECT_EQ(documents_of(open(path)), (Documents{{97, 98, 257}, {256, 97, 98, 257}, {97, 98, 257}}));
}

// The mark at the end is a trained label of every document, also where a model pads with the same id: rows are never padded.
TEST_F(Data, C078EndOfDocumentIsTrained) {
  options_.text.separator = "--";
  const ShardSource source = open(folder_.write("a.txt", "abcd\n--\nabcdefg\n"));
  ASSERT_EQ(source.num_documents(), 2);
  Batcher batcher(source, {.seq_len = 16, .rows = 1, .shuffle = false, .repeat = false});
  std::vector<std::int32_t> ids(16), labels(16), positions(16), offsets(17);
  std::int64_t counts[ops::kNumCounts];
  ASSERT_TRUE(batcher.fill({ids.data(), labels.data(), positions.data(), offsets.data(), counts}));
  EXPECT_EQ(std::count(labels.begin(), labels.begin() + counts[ops::kNumTokens], 257), 2);
  EXPECT_EQ(counts[ops::kNumTrained], counts[ops::kNumTokens] - 2);
}

TEST_F(Data, C082TheSameRecordsInOtherWrappings) {
  options_.text.format = TextSourceOptions::Format::jsonl;
  std::string plain, crlf, blanks, trailing;
  for (int i = 0; i < 10; ++i) {
    const std::string record = "{\"text\": \"record " + std::to_string(i) + "\\r\\n\"}";
    plain += record + "\n";
    crlf += record + "\r\n";
    blanks += "\n" + record + "\n\n";
    trailing += "  " + record + "  \t\n";
  }
  const Documents expected = documents_of(open(folder_.write("p.jsonl", plain)));
  ASSERT_EQ(expected.size(), 10U);
  EXPECT_EQ(expected[3], bytes_of("record 3\r\n", {257}));
  for (const std::string& other :
       {"\xEF\xBB\xBF" + plain, crlf, blanks, trailing, plain.substr(0, plain.size() - 1)})
    EXPECT_EQ(documents_of(open(folder_.write("o.jsonl", other))), expected);
}

TEST_F(Data, C081BadRecords) {
  std::string text;
  for (int line = 1; line <= 1000; ++line) {
    if (line == 17)
      text += "{\"text\":\"a\"} {\"text\":\"b\"}\n";
    else if (line == 40)
      text += "[\"text\"]\n";
    else if (line == 77)
      text += "{\"text\":\"\xE4\xBD\"}\n";
    else if (line == 90)
      text += "{\"text\":\"" + std::string(1 << 20, 'x') + "\"}\n";
    else
      text += "{\"text\":\"" + std::to_string(line) + "\"}" + (line == 1000 ? "" : "\n");
  }
  options_.text.format = TextSourceOptions::Format::jsonl;
  const std::string path = folder_.write("a.jsonl", text);
  expect_error(ErrorKind::data, {"a.jsonl", "17"}, [&] { prepare(path); });
  EXPECT_TRUE(list_folder(options_.cache_dir).empty());
  options_.text.skip_bad = true;
  const PreparedText prepared = prepare(path);
  ASSERT_EQ(prepared.report.num_skipped, 3);
  EXPECT_EQ(prepared.report.skipped[0].line, 17);
  EXPECT_EQ(prepared.report.skipped[1].line, 40);
  EXPECT_EQ(prepared.report.skipped[2].line, 77);
  EXPECT_EQ(TokenShard::open(prepared.shard_path).num_documents(), 997);
  EXPECT_TRUE(prepare(path).from_cache);
}

// The name of a cached shard follows from the bytes of the text and what changes tokens, not from names or times.
TEST_F(Data, ACachedShardIsFoundAgainAndOnlyThen) {
  const std::string a = folder_.write("a.txt", "some text");
  const PreparedText first = prepare(a);
  EXPECT_FALSE(first.from_cache);
  EXPECT_TRUE(prepare(a).from_cache);
  EXPECT_EQ(prepare(folder_.write("b.txt", "some text")).shard_path, first.shard_path);
  EXPECT_NE(prepare(folder_.write("a.txt", "some texu")).shard_path, first.shard_path);
  options_.add_bos = true;
  EXPECT_NE(prepare(folder_.write("a.txt", "some text")).shard_path, first.shard_path);
}

// A prompt of 200 and an answer of 5, only the answer trained; then examples without an answer.
TEST_F(Data, C055TrainingOnNothing) {
  auto shard = [&](const std::string& name, std::vector<std::pair<int, int>> prompts_and_answers) {
    TokenShardWriter writer(folder_.file(name),
                            {.vocab_size = 258, .tokenizer_hash = 1, .trained_mask = true});
    for (const auto& [prompt, answer] : prompts_and_answers) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(prompt + answer), 65);
      std::vector<std::uint8_t> trained(static_cast<std::size_t>(prompt), 0);
      trained.resize(ids.size(), 1);
      writer.add_document(ids, trained);
    }
    writer.commit();
    std::vector<TokenShard> shards;
    shards.push_back(TokenShard::open(folder_.file(name)));
    return ShardSource(std::move(shards));
  };
  const ShardSource good = shard("good.tokens", {{200, 5}, {30, 0}});
  const DataSummary summary = summarize(good, 64);
  EXPECT_EQ(summary.tokens, 235);
  EXPECT_EQ(summary.labels, 5);
  EXPECT_EQ(summary.without_label, 1);
  EXPECT_EQ(summary.split, 1);
  Batcher batcher(good, {.seq_len = 64, .rows = 4, .shuffle = false, .repeat = false});
  std::vector<std::int32_t> ids(256), labels(256), positions(256), offsets(257);
  std::int64_t counts[ops::kNumCounts];
  ASSERT_TRUE(batcher.fill({ids.data(), labels.data(), positions.data(), offsets.data(), counts}));
  EXPECT_EQ(counts[ops::kNumTokens], 235);
  EXPECT_EQ(counts[ops::kNumTrained], 5);
  for (int i = 0; i < 235; ++i)
    EXPECT_EQ(labels[static_cast<std::size_t>(i)], i >= 199 && i < 204 ? 65 : kIgnoreLabel) << i;
  EXPECT_EQ(summarize(shard("bad.tokens", {{200, 0}, {1, 0}}), 64).labels, 0);
}

// Frequencies by hand: train aab (a 2, b 1, one added to each of 4): eval labels b and a.
TEST_F(Data, UnigramLoss) {
  class Ids final : public TokenSource {
   public:
    explicit Ids(std::vector<std::int32_t> ids) : ids_(std::move(ids)) {}
    std::int64_t num_documents() const override { return 1; }
    std::int64_t document_length(std::int64_t) const override {
      return static_cast<std::int64_t>(ids_.size());
    }
    void copy(std::int64_t, std::int64_t first, std::int64_t n, std::int32_t* out) const override {
      std::copy(ids_.begin() + first, ids_.begin() + first + n, out);
    }

   private:
    std::vector<std::int32_t> ids_;
  };
  EXPECT_NEAR(unigram_loss(Ids({0, 0, 1}), Ids({2, 1, 0}), 4), -(std::log(2.0 / 7) + std::log(3.0 / 7)) / 2,
              1e-12);
}

TEST_F(Data, SplittingOffKeepsEveryToken) {
  options_.text.separator = "--";
  ShardSource source = open(folder_.write("a.txt", "abcd\n--\nefgh\n--\nij\n"));
  const Documents before = documents_of(source);
  const std::int64_t total = source.num_tokens();
  const std::uint64_t hash = source.hash();
  ShardSource part = source.split_off(total - 5, total);
  EXPECT_EQ(part.num_tokens(), 5);
  EXPECT_EQ(source.num_tokens(), total - 5);
  EXPECT_NE(source.hash(), hash);
  auto flat = [](const Documents& all) {
    std::vector<std::int32_t> ids;
    for (const auto& d : all) ids.insert(ids.end(), d.begin(), d.end());
    return ids;
  };
  std::vector<std::int32_t> joined = flat(documents_of(source));
  for (const std::int32_t id : flat(documents_of(part))) joined.push_back(id);
  EXPECT_EQ(joined, flat(before));
}

// A whole set-up from a config: vocabulary of the model against the tokenizer's, and data without a label.
TEST_F(Data, C059VocabulariesThatDiffer) {
  const std::string tokenizer = folder_.write("tokenizer.json", byte_tokenizer());
  const std::string text = folder_.write("t.txt", "some text to learn from");
  auto set_up = [&](int vocab_size) {
    const std::string toml =
        "[model]\nmodel_type = \"qwen3_moe\"\nhidden_size = 64\nnum_hidden_layers = 2\nnum_attention_heads = "
        "4\n"
        "num_key_value_heads = 2\nnum_experts = 8\nnum_experts_per_tok = 2\nmoe_intermediate_size = 96\n"
        "max_position_embeddings = 64\neos_token_id = " +
        std::to_string(std::min(vocab_size - 1, 257)) + "\nvocab_size = " + std::to_string(vocab_size) +
        "\n[data]\ntrain = \"" + text + "\"\n[tokenizer]\npath = \"" + tokenizer +
        "\"\n[train]\nseq_len = 16\n[output]\ndir = \"" + folder_.file("out") + "\"\n";
    RunSetup s = setup_model(parse_run_config(toml, "run.toml"), {});
    setup_data(s);
    return s;
  };
  const RunSetup wide = set_up(300);
  ASSERT_EQ(wide.notices.size(), 1U);
  for (const char* part : {"300", "258", "never labels"})
    EXPECT_NE(wide.notices[0].find(part), std::string::npos) << wide.notices[0];
  EXPECT_EQ(wide.data.labels, 23);  // 23 bytes and the mark, less the first
  ASSERT_EQ(wide.options.files.size(), 1U);
  EXPECT_EQ(wide.options.files[0].name, "tokenizer.json");
  EXPECT_EQ(wide.options.files[0].content, byte_tokenizer());
  EXPECT_TRUE(set_up(258).notices.empty());
  expect_error(ErrorKind::config, {"258 tokens", "vocab_size is 257"}, [&] { set_up(257); });
  write_file_atomically(text, "x");
  EXPECT_EQ(set_up(258).data.labels, 1);
}

}  // namespace
}  // namespace planalto
