// SPDX-License-Identifier: Apache-2.0
// Merging: the order of merges, long pieces against short ones, options of the model, and the cache of pieces.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/tokenizer/bpe_model.h"
#include "formats/tokenizer/piece_cache.h"
#include "formats/tokenizer/vocabulary.h"
#include "support/expect_error.h"
#include "tokenizer/tiny_file.h"

namespace planalto {
namespace {

using planalto::testing::expect_error;
using tests::TinyFile;
using Ids = std::vector<std::int32_t>;

TEST(Bpe, LowestRankFirstThenLeftmost) {
  TinyFile file;
  file.merges = {{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"c", "c"}};  // ids 256, 257, 258, 259
  const Tokenizer tokenizer = file.load();
  EXPECT_EQ(tokenizer.encode("ab", false), (Ids{257}));
  EXPECT_EQ(tokenizer.encode("abc", false), (Ids{258}));  // bc before ab
  EXPECT_EQ(tokenizer.encode("abab", false), (Ids{257, 257}));
  EXPECT_EQ(tokenizer.encode("ccc", false), (Ids{259, 'c'}));  // the left pair of equal ones
  EXPECT_EQ(tokenizer.encode("abcc", false), (Ids{258, 'c'}));
  EXPECT_EQ(tokenizer.encode("acb", false), (Ids{'a', 'c', 'b'}));
}

TEST(Bpe, MergesAsStringsOrPairs) {
  TinyFile file;
  file.merges = {{"\u0120", "t"}, {"\u0120t", "h"}};
  const Tokenizer pairs = file.load();
  file.merges_as_strings = true;
  const Tokenizer strings = file.load();
  EXPECT_EQ(pairs.encode("a th", false), (Ids{'a', 257}));
  EXPECT_EQ(strings.encode("a th", false), (Ids{'a', 257}));
}

TEST(Bpe, APairListedTwiceHasItsLastRank) {
  TinyFile file;
  file.merges = {{"a", "b"}, {"b", "c"}, {"a", "b"}};
  EXPECT_EQ(file.load().encode("abc", false), (Ids{'a', 257}));
}

TEST(Bpe, IgnoreMergesTakesAWholePiece) {
  TinyFile file;
  file.merges = {{"c", "a"}};
  file.words = {"cat", "\u0120cat"};  // 257, 258: no merge reaches them
  EXPECT_EQ(file.load().encode("cat cat", false), (Ids{256, 't', ' ', 256, 't'}));
  file.model_fields += R"(, "ignore_merges": true)";
  EXPECT_EQ(file.load().encode("cat cat", false), (Ids{257, 258}));
  EXPECT_EQ(file.load().encode("cats", false), (Ids{256, 't', 's'}));  // only whole pieces
}

// The definition: among all neighbours the pair of lowest rank, leftmost first, until none is left.
Ids by_definition(std::string_view text, const std::vector<std::pair<std::string, std::string>>& merges,
                  const std::map<std::string, std::int32_t>& ids) {
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  while (true) {
    std::size_t best = parts.size();
    std::size_t best_rank = merges.size();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = std::ranges::find(merges, std::pair(parts[i], parts[i + 1]));
      const auto rank = static_cast<std::size_t>(found - merges.begin());
      if (rank < best_rank) {
        best = i;
        best_rank = rank;
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids out;
  for (const std::string& part : parts) out.push_back(ids.at(part));
  return out;
}

TEST(Bpe, AnyPieceAgainstTheDefinition) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    TinyFile file;
    file.pre_tokenizer = tests::sequence_of("");  // one piece
    std::vector<std::string> known = {"a", "b", "c"};
    std::map<std::string, std::int32_t> ids = {{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
    while (file.merges.size() < 40) {
      const std::pair pair(known[random() % known.size()], known[random() % known.size()]);
      if (std::ranges::find(file.merges, pair) != file.merges.end()) continue;
      file.merges.push_back(pair);
      const std::string joined = pair.first + pair.second;  // may be there by another split
      if (ids.emplace(joined, 256 + static_cast<std::int32_t>(ids.size()) - 3).second)
        known.push_back(joined);
    }
    const Tokenizer tokenizer = file.load();
    for (int round = 0; round < 60; ++round) {
      std::string text;
      const std::size_t length = 1 + random() % 90;  // both sides of the limit between scan and heap
      while (text.size() < length) text += static_cast<char>('a' + random() % 3);
      EXPECT_EQ(tokenizer.encode(text, false), by_definition(text, file.merges, ids))
          << text << ", seed " << seed;
    }
  }
}

TEST(Bpe, AWordOfManyLettersEnds) {
  TinyFile file;
  file.merges = {{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}};
  const std::string word(400'000, 'a');
  const Ids ids = file.load().encode(word, false);
  EXPECT_EQ(ids, Ids(50'000, 258));
}

TEST(Bpe, UnknownBytes) {
  // A vocabulary without the byte 'z'.
  const auto json = [](const std::string& fields) {
    return R"({"model": {"type": "BPE", )" + fields + R"(, "vocab": {"a": 0, "?": 1}, "merges": []}, )" +
           R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}, )" +
           R"("decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true}})";
  };
  const auto load = [&](const std::string& fields) { return Tokenizer::from_text(json(fields), "f.json"); };
  expect_error(ErrorKind::data, {"f.json: model", "0x7A", "lost"},
               [&] { load(R"("unk_token": null)").encode("az", false); });
  EXPECT_EQ(load(R"("unk_token": "?")").encode("azza", false), (Ids{0, 1, 1, 0}));
  EXPECT_EQ(load(R"("unk_token": "?", "fuse_unk": true)").encode("azza", false), (Ids{0, 1, 0}));
  expect_error(ErrorKind::data, {"unk_token", "!"}, [&] { load(R"("unk_token": "!")"); });
}

TEST(Bpe, RefusesOptionsByName) {
  for (const auto& [field, value] :
       std::vector<std::pair<std::string, std::string>>{{"dropout", "0.1"},
                                                        {"byte_fallback", "true"},
                                                        {"continuing_subword_prefix", "\"##\""},
                                                        {"end_of_word_suffix", "\"</w>\""},
                                                        {"max_piece_length", "4"}}) {
    TinyFile file;
    file.model_fields = fmt::format(R"("type": "BPE", "{}": {})", field, value);
    expect_error(ErrorKind::data, {"tiny.json: model", field}, [&] { file.load(); });
  }
  TinyFile file;
  file.model_fields = R"("type": "BPE", "dropout": 0.0, "end_of_word_suffix": "", "byte_fallback": false)";
  file.load();
  file.model_fields = R"("type": "Unigram")";
  expect_error(ErrorKind::data, {"tiny.json: model", "Unigram", "BPE"}, [&] { file.load(); });
  file.model_fields = R"("dropout": null)";  // as old files have it
  file.load();
}

TEST(Bpe, RefusesBrokenMergesByPlace) {
  const auto refused = [](const std::string& merges, std::initializer_list<std::string_view> pieces) {
    const std::string json =
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": )" + merges +
        R"(}, "decoder": {"type": "ByteLevel"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}})";
    expect_error(ErrorKind::data, pieces, [&] { Tokenizer::from_text(json, "f.json"); });
  };
  refused(R"(["a b", "a c"])", {"f.json: model.merges[1]", "\"c\"", "model.vocab"});
  refused(R"(["b a"])", {"model.merges[0]", "\"ba\""});  // what it would give is no token
  refused(R"(["ab"])", {"model.merges[0]", "one space"});
  refused(R"(["a  b"])", {"model.merges[0]", "one space"});
  refused(R"([["a", "b", "c"]])", {"model.merges[0]", "pair"});
  refused(R"([["a", 1]])", {"model.merges[0]", "pair"});
  refused(R"([3])", {"model.merges[0]"});
  refused(R"(["a b", ["a", "b"]])", {"model.merges[1]", "mixed"});
  refused(R"({"a": "b"})", {"model.merges"});
}

TEST(PieceCache, KeepsForgetsAndNeverMixesUp) {
  tokenizer::PieceCache cache;
  EXPECT_TRUE(cache.find("a").empty());
  std::mt19937_64 random(3);
  std::int64_t num_found = 0;
  for (std::int32_t i = 0; i < 200'000; ++i) {  // more than fits: slots are replaced and arenas dropped
    const std::string key = fmt::format("key {}", i);
    const Ids ids = {i, i + 1};
    cache.put(key, ids);
    const auto found = cache.find(key);
    ASSERT_EQ(Ids(found.begin(), found.end()), ids);
    const auto earlier = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(i + 1));
    const auto old = cache.find(fmt::format("key {}", earlier));
    if (old.empty()) continue;
    ++num_found;
    ASSERT_EQ(Ids(old.begin(), old.end()), (Ids{earlier, earlier + 1}));
  }
  EXPECT_GT(num_found, 0);
  EXPECT_LT(num_found, 200'000);
  const std::string longest(65, 'x');
  cache.put(longest, Ids{1});
  EXPECT_TRUE(cache.find(longest).empty());
}

}  // namespace
}  // namespace planalto
