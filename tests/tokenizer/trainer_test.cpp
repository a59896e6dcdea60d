// SPDX-License-Identifier: Apache-2.0
// The trainer: its first merges worked out by hand, its ties, its file, and its counts against counting afresh.
#include "formats/tokenizer/trainer.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "formats/tokenizer/pair_counts.h"
#include "formats/tokenizer/tokenizer.h"
#include "formats/tokenizer/verify_vectors.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace planalto {
namespace {

using planalto::testing::expect_error;
using Ids = std::vector<std::int32_t>;
using Merges = std::vector<std::pair<std::string, std::string>>;

TrainedTokenizer train(const std::vector<std::string>& documents, const BpeTrainerOptions& options) {
  std::size_t next = 0;
  return train_byte_level_bpe(
      [&](std::string* document) {
        if (next == documents.size()) return false;
        *document = documents[next++];
        return true;
      },
      options);
}

Merges merges_of(const TrainedTokenizer& trained) {
  Merges out;
  const JsonValue file = parse_json(trained.json, "trained");
  for (const JsonValue& merge : file.at("model", "").at("merges", "").as_array("")) {
    out.emplace_back(merge.as_array("")[0].as_string(""), merge.as_array("")[1].as_string(""));
  }
  return out;
}

TEST(Trainer, FirstMergesByHand) {
  // The example of Sennrich et al.: low x5, lower x2, newest x6, widest x3, here with a space before each word.
  std::string text;
  for (const auto& [word, count] :
       std::map<std::string, int>{{" low", 5}, {" lower", 2}, {" newest", 6}, {" widest", 3}}) {
    for (int i = 0; i < count; ++i) text += word;
  }
  BpeTrainerOptions options;
  options.vocab_size = 256 + 5;
  const TrainedTokenizer trained = train({text}, options);
  // es 9, st 9, "we" 8: e < s, so es. Then (es, t) 9. Then the sevens and the eights: lo 7, ow 7, " l" 7, but "we" is
  // now 2+6 = 8. In newest w-e stays apart from "est": n e w est, so "we" is 2; ew 6, " n" 6, ne 6; lo 7, ow 7, " l" 7.
  // Ties of 7: the left ids are those of l, o and space; l is the lowest ('l' < 'o' < U+0120).
  // Then (lo, w) 7 and (space, lo) 7: the space's id is below that of lo.
  EXPECT_EQ(merges_of(trained),
            (Merges{{"e", "s"}, {"es", "t"}, {"l", "o"}, {"\u0120", "lo"}, {"\u0120lo", "w"}}));
  EXPECT_EQ(trained.vocab_size, 261);
  EXPECT_EQ(trained.num_merges, 5);
  EXPECT_EQ(trained.num_documents, 1);
  EXPECT_EQ(trained.num_pieces, 4);
}

TEST(Trainer, IdsOfTheFile) {
  BpeTrainerOptions options;
  options.vocab_size = 2 + 256 + 1;
  options.special_tokens = {"<|endoftext|>", "<|pad|>"};
  const Tokenizer tokenizer = Tokenizer::from_text(train({"ab ab ab"}, options).json, "trained");
  EXPECT_EQ(tokenizer.vocab_size(), 259);
  EXPECT_EQ(tokenizer.id_of("<|endoftext|>"), 0);
  EXPECT_EQ(tokenizer.id_of("<|pad|>"), 1);
  EXPECT_EQ(tokenizer.id_of("!"), 2);             // U+0021 is the first character of the alphabet
  EXPECT_EQ(tokenizer.id_of("\u0100"), 2 + 188);  // 188 bytes stand for themselves; then the byte 0
  EXPECT_EQ(tokenizer.id_of("ab"), 258);
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(2));
  EXPECT_EQ(tokenizer.encode("ab<|endoftext|>", true), (Ids{258, 0}));
  EXPECT_EQ(tokenizer.decode(Ids{258, 0}, true), "ab");
}

TEST(Trainer, StopsAtRarePairsAndAtNone) {
  BpeTrainerOptions options;
  options.vocab_size = 1000;
  EXPECT_EQ(merges_of(train({"xyz", "xy"}, options)), (Merges{{"x", "y"}}));
  options.min_frequency = 0;
  EXPECT_EQ(merges_of(train({"xyz", "xy"}, options)), (Merges{{"x", "y"}, {"xy", "z"}}));
  options.min_frequency = 3;
  EXPECT_EQ(train({"xyz", "xy"}, options).vocab_size, 256);
  EXPECT_EQ(train({}, options).vocab_size, 256);
  EXPECT_EQ(train({""}, options).num_documents, 1);
}

TEST(Trainer, NeverSpellsASpecialToken) {
  BpeTrainerOptions options;
  options.vocab_size = 1000;
  options.special_tokens = {"abc"};
  const TrainedTokenizer trained = train({"abcd abcd abcd"}, options);
  for (const auto& [left, right] : merges_of(trained)) EXPECT_NE(left + right, "abc");
  const Tokenizer tokenizer = Tokenizer::from_text(trained.json, "trained");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab c abd", false), true), "ab c abd");
}

TEST(Trainer, TheSameTextGivesTheSameFile) {
  const std::string text = read_text_file(PLANALTO_GOLDEN "/README.md", 1 << 24);
  BpeTrainerOptions options;
  options.vocab_size = 700;
  options.special_tokens = {"<|endoftext|>"};
  const TrainedTokenizer trained = train({text}, options);
  EXPECT_EQ(trained.vocab_size, 700);
  EXPECT_EQ(train({text}, options).json, trained.json);
  const Tokenizer tokenizer = Tokenizer::from_text(trained.json, "trained");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, false), false), text);
  EXPECT_LT(tokenizer.encode(text, false).size(), text.size() * 6 / 10);
}

TEST(Trainer, RefusesSettingsAndBrokenText) {
  const auto refused = [](const BpeTrainerOptions& options, std::initializer_list<std::string_view> pieces) {
    expect_error(ErrorKind::config, pieces, [&] { train({"text"}, options); });
  };
  refused({.vocab_size = 256, .special_tokens = {"<s>"}}, {"vocab_size is 256", "257"});
  refused({.vocab_size = std::int64_t{1} << 40, .special_tokens = {}}, {"vocab_size"});
  refused({.vocab_size = 300, .special_tokens = {}, .min_frequency = -1}, {"min_frequency is -1"});
  refused({.vocab_size = 300, .special_tokens = {""}}, {"special_tokens"});
  refused({.vocab_size = 300, .special_tokens = {"a"}}, {"special_tokens", "\"a\""});
  refused({.vocab_size = 300, .special_tokens = {"<s>", "<s>"}}, {"\"<s>\" twice"});
  refused({.vocab_size = 300, .special_tokens = {"<\xFF>"}}, {"special_tokens"});
  expect_error(ErrorKind::data, {"document 1", "byte 2"}, [] {
    train({"fine", "ab\xFF"}, {.vocab_size = 300, .special_tokens = {}});
  });
}

// Counts pairs of all pieces from the start: the pair with the highest count, the lowest ids among equals.
std::pair<tokenizer::SymbolPair, std::int64_t> count_afresh(
    const std::vector<std::pair<Ids, std::int64_t>>& pieces) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> counts;
  for (const auto& [ids, count] : pieces) {
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) counts[{ids[i], ids[i + 1]}] += count;
  }
  std::pair<tokenizer::SymbolPair, std::int64_t> best{{-1, -1}, 0};
  for (const auto& [pair, count] : counts) {
    if (count > best.second) best = {{pair.first, pair.second}, count};
  }
  return best;
}

TEST(PairCounts, StayThoseOfCountingAfresh) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::pair<Ids, std::int64_t>> pieces;
    tokenizer::PairCounts pairs;
    for (int i = 0; i < 12; ++i) {
      Ids ids(1 + random() % 60);
      for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % (2 + seed % 2));
      pieces.emplace_back(ids, 1 + random() % 4);
      pairs.add_piece(pieces.back().first, pieces.back().second);
    }
    std::map<std::string, std::int32_t> known;  // a text that two pairs spell is one token
    std::vector<std::string> spelling = {"a", "b", "c"};
    while (true) {
      const auto [expected, expected_count] = count_afresh(pieces);
      std::int64_t count = 0;
      const auto found = pairs.best(&count);
      if (expected_count == 0) {
        EXPECT_FALSE(found) << "seed " << seed;
        break;
      }
      ASSERT_TRUE(found) << "seed " << seed;
      ASSERT_EQ(found->left, expected.left) << "seed " << seed;
      ASSERT_EQ(found->right, expected.right) << "seed " << seed;
      ASSERT_EQ(count, expected_count) << "seed " << seed;
      const std::string joined =
          spelling[static_cast<std::size_t>(found->left)] + spelling[static_cast<std::size_t>(found->right)];
      const auto [place, is_new] = known.emplace(joined, static_cast<std::int32_t>(spelling.size()));
      if (is_new) spelling.push_back(joined);
      const std::int32_t id = place->second;
      for (auto& [ids, weight] : pieces) {
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
          if (ids[i] != found->left || ids[i + 1] != found->right) continue;
          ids[i] = id;
          ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
      }
      pairs.join(*found, id);
    }
  }
}

TEST(PairCounts, JoinsFromLeftToRightWhenTwoPairsSpellTheSameToken) {
  tokenizer::PairCounts pairs;
  pairs.add_piece({1, 2, 3, 4, 3, 4}, 1);
  std::int64_t count = 0;
  ASSERT_TRUE(pairs.best(&count));
  pairs.join({3, 4}, 9);   // 1 2 9 9
  pairs.join({1, 2}, 9);   // 9 9 9, the left pair found after the right one
  pairs.join({9, 9}, 10);  // 10 9
  const auto left = pairs.best(&count);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->left, 10);
  EXPECT_EQ(left->right, 9);
  EXPECT_EQ(count, 1);
}

// Writes a trained tokenizer.json and what it makes of some texts, for tests/ecosystem/tokenizer_hf.py to compare.
TEST(Trainer, WritesForOtherReaders) {
  const testing::TempFolder temporary;
  const char* named = std::getenv("PLANALTO_TRAINED");
  const std::string folder = named != nullptr ? named : temporary.path();
  std::string text = read_text_file(PLANALTO_GOLDEN "/README.md", 1 << 24);
  text +=
      "\u4f60\u597d \u4e16\u754c \u0441\u043b\u043e\u0432\u043e \U0001F44D\U0001F3FD caf\u00e9 \"quoted\" "
      "\\back\\ tab\there";
  BpeTrainerOptions options;
  options.vocab_size = 1500;
  options.special_tokens = {"<|endoftext|>", "<\"odd\\>"};
  const TrainedTokenizer trained = train({text}, options);
  const std::string path = join_path(folder, "trained.tokenizer.json");
  write_file_atomically(path, trained.json);
  const Tokenizer tokenizer = Tokenizer::from_text(trained.json, path);
  std::string lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string line = text.substr(at, end - at) + "<|endoftext|>";
    at = end;
    const Ids ids = tokenizer.encode(line, false);
    lines += fmt::format("{{\"text\": {}, \"ids\": [{}], \"decoded\": {}, \"decoded_skip_special\": {}}}\n",
                         quote_json(line), fmt::join(ids, ", "), quote_json(tokenizer.decode(ids, false)),
                         quote_json(tokenizer.decode(ids, true)));
  }
  const std::string vectors = join_path(folder, "trained.jsonl");
  write_file_atomically(vectors, lines);
  for (const VectorRow& row : verify_tokenizer_vectors(vectors, path)) EXPECT_TRUE(row.ok) << row.detail;
}

}  // namespace
}  // namespace planalto
