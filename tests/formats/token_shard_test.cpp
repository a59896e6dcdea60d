// SPDX-License-Identifier: Apache-2.0
#include "formats/token_shard.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "formats/hostile.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace planalto {
namespace {

using testing::expect_error;
using testing::TempFolder;

using Ids = std::vector<std::int32_t>;

std::string write_shard(const std::string& path, const TokenShardSpec& spec,
                        const std::vector<Ids>& documents) {
  TokenShardWriter writer(path, spec);
  for (const Ids& d : documents) writer.add_document(d);
  writer.commit();
  return path;
}

Ids ids_of(const TokenSpan& span) {
  Ids out(static_cast<std::size_t>(span.size()));
  span.copy(0, out);
  return out;
}

TEST(TokenShard, DocumentsComeBack) {
  const TempFolder folder;
  const std::vector<Ids> documents{{1, 2, 3}, {}, {65535, 0}, {7}};
  const TokenShard shard =
      TokenShard::open(write_shard(folder.file("s"), {.vocab_size = 65536, .tokenizer_hash = 42}, documents),
                       {.tokenizer_hash = 42});
  ASSERT_EQ(shard.num_documents(), 4);
  EXPECT_EQ(shard.num_tokens(), 6);
  EXPECT_EQ(shard.header().token_bytes, 2U);
  for (std::int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(ids_of(shard.document(i)), documents[static_cast<std::size_t>(i)]) << i;
  EXPECT_EQ(ids_of(shard.tokens()), (Ids{1, 2, 3, 65535, 0, 7}));
  EXPECT_EQ(shard.token(3), 65535);
  EXPECT_EQ(shard.document_of(2), 0);
  EXPECT_EQ(shard.document_of(3), 2);
  EXPECT_EQ(shard.document_of(5), 3);
  EXPECT_TRUE(shard.trained(0));
  EXPECT_THROW(shard.token(6), Error);
  EXPECT_THROW(shard.token(-1), Error);
  EXPECT_THROW(shard.document(4), Error);
}

TEST(TokenShard, AnEmptyShardIsLegal) {
  const TempFolder folder;
  const TokenShard shard = TokenShard::open(write_shard(folder.file("s"), {.vocab_size = 10}, {}));
  EXPECT_EQ(shard.num_documents(), 0);
  EXPECT_EQ(shard.num_tokens(), 0);
}

TEST(TokenShard, TheMaskOfTrainedTokensComesBack) {
  const TempFolder folder;
  TokenShardWriter writer(folder.file("s"), {.vocab_size = 100, .trained_mask = true});
  Ids ids;
  std::vector<std::uint8_t> mask;
  for (int i = 0; i < 150; ++i) {
    ids.push_back(i % 100);
    mask.push_back(i % 3 == 0);
  }
  writer.append(std::span(ids).subspan(0, 70), std::span(mask).subspan(0, 70));
  writer.append(std::span(ids).subspan(70), std::span(mask).subspan(70));
  writer.end_document();
  EXPECT_THROW(writer.append(ids), Error);
  writer.commit();
  const TokenShard shard = TokenShard::open(folder.file("s"));
  for (int i = 0; i < 150; ++i) EXPECT_EQ(shard.trained(i), i % 3 == 0) << i;
  EXPECT_EQ(ids_of(shard.document(0)), ids);
}

TEST(TokenShard, C084WidthFollowsTheVocabulary) {
  const TempFolder folder;
  for (const auto& [vocab_size, width] : {std::pair{65535, 2U}, {65536, 2U}, {65537, 4U}, {151936, 4U}}) {
    const std::int32_t vocab = vocab_size;  // a lambda cannot take a binding
    const TokenShard shard =
        TokenShard::open(write_shard(folder.file("s"), {.vocab_size = vocab}, {{0, vocab - 1, 1}}));
    EXPECT_EQ(shard.header().token_bytes, width) << vocab;
    EXPECT_EQ(ids_of(shard.document(0)), (Ids{0, vocab - 1, 1}));
    TokenShardWriter writer(folder.file("t"), {.vocab_size = vocab});
    expect_error(ErrorKind::data, {std::to_string(vocab)}, [&] { writer.add_document(Ids{vocab}); });
    EXPECT_THROW(writer.add_document(Ids{-1}), Error);
  }
}

// Recomputes the checksum of the header, so that the fields behind it are what is judged.
std::string with_header_field(std::string bytes, std::size_t offset, std::uint64_t value, std::size_t size) {
  std::memcpy(bytes.data() + offset, &value, size);
  const std::uint64_t sum = xxh3_64(std::string_view(bytes).substr(0, 64));
  std::memcpy(bytes.data() + 64, &sum, 8);
  return bytes;
}

TEST(TokenShard, C084AForgedWidthAndAnotherTokenizerAreRefused) {
  const TempFolder folder;
  const std::string path =
      write_shard(folder.file("s"), {.vocab_size = 1000, .tokenizer_hash = 0xabc}, {{1, 2, 3, 4}});
  const std::string bytes = read_text_file(path, 1 << 20);
  expect_error(ErrorKind::data, {"4 bytes a token", "1000"},
               [&] { TokenShard::open(folder.write("w", with_header_field(bytes, 12, 4, 4))); });
  std::string both = with_header_field(bytes, 12, 4, 4);
  both = with_header_field(both, 16, 100000, 8);
  EXPECT_THROW(TokenShard::open(folder.write("w", both)), Error);
  expect_error(ErrorKind::data, {path, "0000000000000abc", "0000000000000def"},
               [&] { TokenShard::open(path, {.tokenizer_hash = 0xdef}); });
}

TEST(TokenShard, ForgedFieldsWithARightChecksumAreRefused) {
  const TempFolder folder;
  const std::string path = write_shard(folder.file("s"), {.vocab_size = 1000}, {{1, 2, 3}, {4}});
  const std::string bytes = read_text_file(path, 1 << 20);
  const std::uint64_t large[] = {0,
                                 1,
                                 5,
                                 1000,
                                 std::uint64_t{1} << 31,
                                 std::uint64_t{1} << 62,
                                 (std::uint64_t{1} << 63) - 1,
                                 ~std::uint64_t{0}};
  for (const std::size_t offset : {32U, 40U, 48U}) {
    for (const std::uint64_t v : large) {
      const std::string changed = with_header_field(bytes, offset, v, 8);
      if (changed == bytes || (offset == 48 && v == 0)) continue;
      EXPECT_THROW(TokenShard::open(folder.write("w", changed)), Error) << offset << " " << v;
    }
  }
  expect_error(ErrorKind::data, {"version 2"},
               [&] { TokenShard::open(folder.write("w", with_header_field(bytes, 8, 2, 4))); });
  for (const std::uint64_t v : {std::uint64_t{0}, std::uint64_t{1} << 31, ~std::uint64_t{0}}) {
    EXPECT_THROW(TokenShard::open(folder.write("w", with_header_field(bytes, 16, v, 8))), Error) << v;
  }
}

// An id beyond the vocabulary would be read outside the embedding; the checksum alone does not tell.
TEST(TokenShard, IdsBeyondTheVocabularyAreRefusedEvenWithRightChecksums) {
  const TempFolder folder;
  std::string bytes =
      read_text_file(write_shard(folder.file("s"), {.vocab_size = 1000}, {{1, 2, 3, 4}}), 1 << 20);
  bytes[128] = static_cast<char>(0xE8);  // 1000
  bytes[129] = static_cast<char>(0x03);
  bytes = with_header_field(bytes, 56, xxh3_64(std::string_view(bytes).substr(128)), 8);
  expect_error(ErrorKind::data, {"token 0", "id 1000", "999"},
               [&] { TokenShard::open(folder.write("w", bytes)); });
}

TEST(TokenShard, DamageIsFoundOnOpenOrOnRequest) {
  const TempFolder folder;
  const std::string bytes =
      read_text_file(write_shard(folder.file("s"), {.vocab_size = 1000}, {{1, 2, 3, 4}}), 1 << 20);
  std::string changed = bytes;
  changed[130] ^= 1;
  const std::string path = folder.write("w", changed);
  expect_error(ErrorKind::data, {path, "checksum"}, [&] { TokenShard::open(path); });
  const TokenShard shard = TokenShard::open(path, {.verify = false});
  expect_error(ErrorKind::data, {path, "checksum"}, [&] { shard.verify(); });
  for (std::size_t i = 128; i < bytes.size(); ++i) {
    changed = bytes;
    changed[i] ^= 1;
    EXPECT_THROW(TokenShard::open(folder.write("w", changed)), Error) << i;
  }
}

TEST(TokenShard, EveryTruncationIsRefused) {
  const TempFolder folder;
  TokenShardWriter writer(folder.file("s"), {.vocab_size = 70000, .trained_mask = true});
  writer.add_document(Ids{1, 69999}, std::vector<std::uint8_t>{0, 1});
  writer.add_document(Ids{5}, std::vector<std::uint8_t>{1});
  writer.commit();
  const std::string bytes = read_text_file(folder.file("s"), 1 << 20);
  const auto open = [](const std::string& p) { TokenShard::open(p); };
  testing::expect_every_truncation_refused(bytes, open);
  EXPECT_EQ(testing::open_every_corruption(bytes, bytes.size(), open), 0);
  EXPECT_THROW(TokenShard::open(folder.write("long", bytes + "x")), Error);
}

TEST(TokenShard, IsNotThereBeforeItsCommit) {
  const TempFolder folder;
  {
    TokenShardWriter writer(folder.file("s"), {.vocab_size = 10});
    writer.append(Ids{1});
    EXPECT_THROW(writer.commit(), Error);  // the document is open
  }
  EXPECT_TRUE(list_folder(folder.path()).empty());
}

}  // namespace
}  // namespace planalto
