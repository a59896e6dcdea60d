// SPDX-License-Identifier: Apache-2.0
// batcher_test.cpp: each token once an epoch, in an order that seed and epoch give; cuts, labels, and going on from a cursor.
#include "train/batcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <set>

#include "base/hash.h"
#include "ops/operand.h"
#include "support/expect_error.h"
#include "support/random_seed.h"

namespace planalto {
namespace {

struct Dice {
  int seed = testing::random_seed();
  std::mt19937_64 engine{static_cast<std::uint64_t>(seed)};
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  }
};

// Documents of given lengths; all tokens of all documents are different, counted from 0.
class NumberedSource final : public TokenSource {
 public:
  explicit NumberedSource(std::vector<std::int64_t> lengths) : lengths_(std::move(lengths)) {
    for (const std::int64_t n : lengths_) begins_.push_back(begins_.back() + n);
  }
  std::int64_t num_documents() const override { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t document_length(std::int64_t d) const override {
    return lengths_.at(static_cast<std::size_t>(d));
  }
  void copy(std::int64_t d, std::int64_t first, std::int64_t n, std::int32_t* out) const override {
    ASSERT_TRUE(first >= 0 && n >= 0 && first + n <= document_length(d)) << d << " " << first << " " << n;
    std::iota(out, out + n, static_cast<std::int32_t>(begins_.at(static_cast<std::size_t>(d)) + first));
  }
  std::int64_t num_tokens() const { return begins_.back(); }
  bool ends_document(std::int32_t token) const {
    return std::find(begins_.begin() + 1, begins_.end(), token + 1) != begins_.end();
  }

 private:
  std::vector<std::int64_t> lengths_;
  std::vector<std::int64_t> begins_{0};
};

// The arrays behind a view, filled with a value that no test expects.
class Microbatch {
 public:
  explicit Microbatch(std::int64_t tokens)
      : ids(static_cast<std::size_t>(tokens), -7), labels(ids), positions(ids), offsets(ids) {
    offsets.push_back(-7);
  }
  MicrobatchView view() { return {ids.data(), labels.data(), positions.data(), offsets.data(), counts}; }
  std::int64_t tokens() const { return counts[ops::kNumTokens]; }
  std::int64_t documents() const { return counts[ops::kNumDocuments]; }
  std::int64_t trained() const { return counts[ops::kNumTrained]; }
  std::uint64_t hash() const {
    Xxh3Stream h;
    h.update(std::as_bytes(std::span(ids.data(), static_cast<std::size_t>(tokens()))));
    h.update(std::as_bytes(std::span(labels.data(), static_cast<std::size_t>(tokens()))));
    h.update(std::as_bytes(std::span(offsets.data(), static_cast<std::size_t>(documents() + 1))));
    h.update(std::as_bytes(std::span(counts)));
    return h.digest();
  }

  std::vector<std::int32_t> ids, labels, positions, offsets;
  std::int64_t counts[ops::kNumCounts] = {};
};

// What holds for every microbatch: document pieces tile it, positions restart, a label is the next token of its document.
void expect_sound(const Microbatch& m, const NumberedSource& source, const BatcherOptions& o) {
  ASSERT_GE(m.documents(), 1);
  ASSERT_EQ(m.offsets[0], 0);
  ASSERT_EQ(m.offsets[static_cast<std::size_t>(m.documents())], m.tokens());
  std::int64_t trained = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(m.documents()); ++d) {
    ASSERT_LT(m.offsets[d], m.offsets[d + 1]);
    for (std::int32_t r = m.offsets[d]; r < m.offsets[d + 1]; ++r) {
      const auto i = static_cast<std::size_t>(r);
      ASSERT_EQ(m.positions[i], r - m.offsets[d]);
      ASSERT_LT(m.positions[i], o.seq_len);
      ASSERT_EQ(m.ids[i], m.ids[static_cast<std::size_t>(m.offsets[d])] + m.positions[i]);
      const bool last = source.ends_document(m.ids[i]);
      ASSERT_EQ(m.labels[i], last ? kIgnoreLabel : m.ids[i] + 1) << "token " << m.ids[i];
      trained += last ? 0 : 1;
    }
  }
  ASSERT_EQ(m.trained(), trained);
}

std::vector<std::int64_t> random_lengths(Dice& random, std::int64_t documents, std::int64_t longest) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t d = 0; d < documents; ++d) lengths.push_back(random.between(0, longest));
  lengths.push_back(1);
  return lengths;
}

// The ids of `epochs` epochs as one stream; with packing, rows are full, so that microbatches join without a gap.
std::vector<std::int32_t> stream(Batcher& batcher, const BatcherOptions& o, std::int64_t tokens,
                                 const NumberedSource& source) {
  std::vector<std::int32_t> ids;
  while (static_cast<std::int64_t>(ids.size()) < tokens) {
    Microbatch m(o.seq_len * o.rows);
    EXPECT_TRUE(batcher.fill(m.view()));
    EXPECT_EQ(m.tokens(), o.seq_len * o.rows);
    expect_sound(m, source, o);
    ids.insert(ids.end(), m.ids.begin(), m.ids.begin() + m.tokens());
  }
  ids.resize(static_cast<std::size_t>(tokens));
  return ids;
}

std::vector<std::int32_t> epoch_of(const std::vector<std::int32_t>& ids, std::int64_t tokens,
                                   std::int64_t epoch) {
  return {ids.begin() + epoch * tokens, ids.begin() + (epoch + 1) * tokens};
}
std::vector<std::int32_t> sorted(std::vector<std::int32_t> v) {
  std::sort(v.begin(), v.end());
  return v;
}

TEST(PermutedIndex, IsABijectionForEverySizeAndKey) {
  for (std::int64_t n = 1; n <= 260; ++n) {
    for (std::uint64_t key = 0; key < 4; ++key) {
      std::vector<int> hit(static_cast<std::size_t>(n), 0);
      for (std::int64_t i = 0; i < n; ++i) ++hit.at(static_cast<std::size_t>(permuted_index(i, n, key)));
      EXPECT_EQ(hit, std::vector<int>(static_cast<std::size_t>(n), 1)) << n << " key " << key;
    }
  }
  for (const std::int64_t n : {65535, 65536, 65537, 100003}) {
    std::vector<bool> hit(static_cast<std::size_t>(n), false);
    for (std::int64_t i = 0; i < n; ++i) hit.at(static_cast<std::size_t>(permuted_index(i, n, 99))) = true;
    EXPECT_EQ(std::count(hit.begin(), hit.end(), true), n);
  }
}

// 1000 keys over 8 places: each index lands on each place about 125 times (binomial, deviation 10.5); 6 deviations allowed.
TEST(PermutedIndex, EveryPlaceIsAsLikely) {
  for (std::int64_t i = 0; i < 8; ++i) {
    std::vector<int> hits(8, 0);
    for (std::uint64_t key = 0; key < 1000; ++key)
      ++hits.at(static_cast<std::size_t>(permuted_index(i, 8, key * 0x9e37U)));
    for (const int h : hits) EXPECT_NEAR(h, 125, 63) << "index " << i;
  }
}

TEST(Batcher, EveryTokenOnceAnEpochInAnOrderOfSeedAndEpoch) {
  Dice random;
  for (int trial = 0; trial < 20; ++trial) {
    const NumberedSource source(random_lengths(random, random.between(1, 40), 30));
    const std::int64_t n = source.num_tokens();
    BatcherOptions o{.seq_len = random.between(1, 12), .rows = random.between(1, 5), .seed = 11};
    Batcher batcher(source, o);
    EXPECT_EQ(batcher.num_tokens(), n);
    const std::vector<std::int32_t> ids = stream(batcher, o, 3 * n, source);
    std::vector<std::int32_t> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    for (std::int64_t e = 0; e < 3; ++e)
      ASSERT_EQ(sorted(epoch_of(ids, n, e)), all) << testing::rerun(random.seed) << " epoch " << e;
  }
}

TEST(Batcher, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  const NumberedSource source(std::vector<std::int64_t>(50, 7));
  std::set<std::vector<std::int32_t>> orders;
  for (const std::uint64_t seed : {0, 1, 2}) {
    const BatcherOptions o{.seq_len = 7, .rows = 5, .seed = seed};
    Batcher batcher(source, o), again(source, o);
    const std::vector<std::int32_t> ids = stream(batcher, o, 4 * 350, source);
    EXPECT_EQ(ids, stream(again, o, 4 * 350, source));
    for (std::int64_t e = 0; e < 4; ++e) orders.insert(epoch_of(ids, 350, e));
  }
  EXPECT_EQ(orders.size(), 12U);
}

TEST(Batcher, WithoutShuffleDocumentsComeAsTheyStand) {
  const NumberedSource source({5, 0, 9, 1});
  const BatcherOptions o{.seq_len = 4, .rows = 1, .shuffle = false};
  Batcher batcher(source, o);
  std::vector<std::int32_t> expected(15);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(stream(batcher, o, 15, source), expected);
}

// A document longer than the context is cut into rows: all of it is used, and the label at a cut is the next token.
TEST(Batcher, C080LongDocumentIsSplit) {
  const NumberedSource source({1000});
  const BatcherOptions o{.seq_len = 64, .rows = 2, .seed = 3, .repeat = false};
  Batcher batcher(source, o);
  EXPECT_EQ(batcher.num_pieces(), 16);
  std::vector<std::int32_t> ids;
  std::int64_t trained = 0;
  for (;;) {
    Microbatch m(128);
    if (!batcher.fill(m.view())) break;
    expect_sound(m, source, o);
    ids.insert(ids.end(), m.ids.begin(), m.ids.begin() + m.tokens());
    trained += m.trained();
  }
  std::vector<std::int32_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted(ids), all);
  EXPECT_EQ(trained, 999);
}

// Two documents of 3 and 6 tokens in rows of 4, in order: 0 1 2 | 3, then 4 5 6 | 7 -- worked out by hand.
TEST(Batcher, RowsAreFilledAcrossDocuments) {
  const NumberedSource source({3, 6});
  Batcher batcher(source, {.seq_len = 4, .rows = 2, .shuffle = false});
  Microbatch m(8);
  ASSERT_TRUE(batcher.fill(m.view()));
  EXPECT_EQ(m.ids, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(m.labels, (std::vector<std::int32_t>{1, 2, kIgnoreLabel, 4, 5, 6, 7, 8}));
  // The second document is cut where its row ends (behind 3) and where its first piece of 4 tokens ends (behind 6).
  EXPECT_EQ(m.positions, (std::vector<std::int32_t>{0, 1, 2, 0, 0, 1, 2, 0}));
  EXPECT_EQ((std::vector<std::int32_t>(m.offsets.begin(), m.offsets.begin() + 5)),
            (std::vector<std::int32_t>{0, 3, 4, 7, 8}));
  EXPECT_EQ(m.documents(), 4);
  EXPECT_EQ(m.trained(), 7);
  EXPECT_EQ(batcher.cursor(), (DataCursor{0, 2, 1}));
}

TEST(Batcher, WithoutPackingARowIsOneDocument) {
  const NumberedSource source({3, 9, 1, 4});
  const BatcherOptions o{.seq_len = 4, .rows = 3, .shuffle = false, .repeat = false, .pack = false};
  Batcher batcher(source, o);
  std::vector<std::vector<std::int32_t>> offsets;
  std::vector<std::int64_t> tokens;
  for (;;) {
    Microbatch m(12);
    if (!batcher.fill(m.view())) break;
    expect_sound(m, source, o);
    offsets.emplace_back(m.offsets.begin(), m.offsets.begin() + m.documents() + 1);
    tokens.push_back(m.tokens());
  }
  // Rows 0-2 | 3-6 | 7-10, then 11 | 12 | 13-16.
  EXPECT_EQ(offsets, (std::vector<std::vector<std::int32_t>>{{0, 3, 7, 11}, {0, 1, 2, 6}}));
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{11, 6}));
}

TEST(Batcher, EvaluationEndsWithAPartialBatch) {
  const NumberedSource source({4, 4, 2});
  const BatcherOptions o{.seq_len = 4, .rows = 2, .shuffle = false, .repeat = false};
  Batcher batcher(source, o);
  Microbatch a(8), b(8), c(8);
  ASSERT_TRUE(batcher.fill(a.view()));
  EXPECT_EQ(a.tokens(), 8);
  ASSERT_TRUE(batcher.fill(b.view()));
  EXPECT_EQ(b.tokens(), 2);
  EXPECT_EQ(b.trained(), 1);
  EXPECT_FALSE(batcher.fill(c.view()));
  EXPECT_EQ(c.tokens(), 0);
  batcher.seek({});
  Microbatch again(8);
  ASSERT_TRUE(batcher.fill(again.view()));
  EXPECT_EQ(again.hash(), a.hash());
}

// 858 rows in batches of 32: 26 full batches, and the 27th takes the 26 rows that are left with 6 of the next epoch. Then less
// data than a batch: several epochs stand in one.
TEST(Batcher, C036AnEpochThatTheBatchDoesNotDivide) {
  const NumberedSource source(std::vector<std::int64_t>(858, 4));
  const BatcherOptions o{.seq_len = 4, .rows = 32, .seed = 5};
  Batcher batcher(source, o);
  std::multiset<std::int32_t> seen;
  for (int b = 0; b < 27; ++b) {
    Microbatch m(128);
    ASSERT_TRUE(batcher.fill(m.view()));
    for (std::size_t r = 0; r < 128 && seen.size() < 3432; ++r) seen.insert(m.ids[r]);
  }
  EXPECT_EQ(std::set<std::int32_t>(seen.begin(), seen.end()).size(), 3432U);
  EXPECT_EQ(batcher.cursor(), (DataCursor{1, 6, 0}));
  const NumberedSource few({2, 3, 1});
  const BatcherOptions wide{.seq_len = 8, .rows = 4, .seed = 1};
  Batcher small(few, wide);
  Microbatch m(32);
  ASSERT_TRUE(small.fill(m.view()));
  EXPECT_EQ(m.tokens(), 32);
  expect_sound(m, few, wide);
  EXPECT_EQ(small.cursor().epoch, 5);
}

// Stopped after 5, 16 and 21 batches: a new batcher at the cursor gives the very batches that the uninterrupted one gives.
TEST(Batcher, C093DataOrderAcrossStops) {
  Dice random;
  const NumberedSource source(random_lengths(random, 64, 40));
  const BatcherOptions o{.seq_len = 16, .rows = 3, .seed = 8};
  const std::int64_t batches = 3 * source.num_tokens() / 48 + 1;
  Batcher whole(source, o);
  auto cut = std::make_unique<Batcher>(source, o);
  for (std::int64_t b = 0; b < batches; ++b) {
    if (b == 5 || b == 16 || b == 21) {
      const DataCursor cursor = cut->cursor();
      cut = std::make_unique<Batcher>(source, o);
      cut->seek(cursor);
      ASSERT_EQ(cut->cursor(), cursor);
    }
    Microbatch x(48), y(48);
    ASSERT_TRUE(whole.fill(x.view()));
    ASSERT_TRUE(cut->fill(y.view()));
    ASSERT_EQ(x.hash(), y.hash()) << testing::rerun(random.seed) << " batch " << b;
  }
  EXPECT_GE(whole.cursor().epoch, 3);
}

TEST(Batcher, RefusesDataWithoutTokensAndPlacesThatAreNotThere) {
  const NumberedSource empty({0, 0});
  testing::expect_error(ErrorKind::data, {"no tokens", "2 documents"},
                        [&] { Batcher(empty, {.seq_len = 4, .rows = 1}); });
  const NumberedSource source({5, 3});
  Batcher batcher(source, {.seq_len = 4, .rows = 1, .shuffle = false});
  batcher.seek({2, 1, 0});
  batcher.seek({0, 3, 0});  // the end of an epoch
  for (const DataCursor bad :
       {DataCursor{0, 4, 0}, {0, 3, 1}, {0, 1, 1}, {0, -1, 0}, {-1, 0, 0}, {0, 0, -1}}) {
    testing::expect_error(ErrorKind::data, {"data position", "3 pieces"}, [&] { batcher.seek(bad); });
    EXPECT_EQ(batcher.cursor(), (DataCursor{0, 3, 0}));
  }
}

// Depth d trains the rows at least d + 1 into their document whose label is trained: documents of 4 and 2 rows by hand.
TEST(Batcher, CountsTheLabelsOfMtp) {
  const NumberedSource source({4, 2});
  Batcher batcher(source, {.seq_len = 6, .rows = 1, .shuffle = false, .repeat = false});
  Microbatch m(6);
  ASSERT_TRUE(batcher.fill(m.view()));
  EXPECT_EQ(m.labels, (std::vector<std::int32_t>{1, 2, 3, kIgnoreLabel, 5, kIgnoreLabel}));
  EXPECT_EQ(count_mtp_labels(m.view(), 0), 2);  // rows 1 and 2
  EXPECT_EQ(count_mtp_labels(m.view(), 1), 1);  // row 2
  EXPECT_EQ(count_mtp_labels(m.view(), 2), 0);
}

}  // namespace
}  // namespace planalto
