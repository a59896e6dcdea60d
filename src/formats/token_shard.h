// SPDX-License-Identifier: Apache-2.0
// token_shard.h: tokenised documents in one memory-mapped file, written once, read by every epoch.
// Shapes      num_tokens ids, 2 bytes each when the vocabulary has at most 65,536 entries, 4 otherwise; a document may
//             be empty; an optional bit a token says whether its label is trained
// Invariants  after open: sizes agree with the file, document offsets ascend from 0 to num_tokens; after verify (open
//             does it unless told not to) the checksum is right and every id is below vocab_size
// Memory      the file stays mapped; a writer keeps 8 bytes a document and one bit a token (with a mask) until commit
// Threads     an open shard may be read by many; a writer belongs to one thread
// Errors      data: damaged, of another tokenizer, of another version; io: the system refused
// Source      original: 128-byte header, tokens, pad to 8, document offsets (u64), mask words (u64); all little-endian
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

namespace planalto {

// A run of token ids inside an open shard.
class TokenSpan {
 public:
  TokenSpan(std::span<const std::byte> bytes, int token_bytes) : bytes_(bytes), token_bytes_(token_bytes) {}

  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()) / token_bytes_; }
  // 0 <= i < size(), checked.
  std::int32_t operator[](std::int64_t i) const;
  // Ids [first, first + out.size()), checked.
  void copy(std::int64_t first, std::span<std::int32_t> out) const;

 private:
  std::span<const std::byte> bytes_;
  int token_bytes_;
};

struct TokenShardHeader {
  std::uint32_t version = 0;
  std::uint32_t token_bytes = 0;
  std::int64_t vocab_size = 0;
  std::uint64_t tokenizer_hash = 0;
  std::int64_t num_tokens = 0;
  std::int64_t num_documents = 0;
  bool has_trained_mask = false;
  std::uint64_t checksum = 0;  // XXH3 of all that follows the header
};

struct TokenShardOptions {
  std::optional<std::uint64_t> tokenizer_hash = {};  // refuse a shard that another tokenizer made
  bool verify = true;                                // read all of it: checksum and ids
};

class TokenShard {
 public:
  static TokenShard open(const std::string& path, const TokenShardOptions& options = {});

  const std::string& path() const { return file_.path(); }
  const TokenShardHeader& header() const { return header_; }
  std::int64_t file_bytes() const { return file_.size(); }
  std::int64_t num_tokens() const { return header_.num_tokens; }
  std::int64_t num_documents() const { return header_.num_documents; }

  TokenSpan tokens() const { return {tokens_, static_cast<int>(header_.token_bytes)}; }
  std::int32_t token(std::int64_t i) const { return tokens()[i]; }
  TokenSpan document(std::int64_t i) const;
  // Position of the first token of document i; i may be num_documents().
  std::int64_t document_begin(std::int64_t i) const;
  // The document that holds token i (the last one that begins at or before it and is not empty).
  std::int64_t document_of(std::int64_t i) const;
  // True for every token when the shard has no mask.
  bool trained(std::int64_t i) const;
  // Reads the whole shard: checksum, ids below vocab_size, no mask bit behind the last token.
  void verify() const;

 private:
  TokenShard() = default;
  void read_header();
  void check_offsets() const;

  MappedFile file_;
  TokenShardHeader header_;
  std::span<const std::byte> body_;
  std::span<const std::byte> tokens_;
  std::span<const std::uint64_t> offsets_;
  std::span<const std::uint64_t> mask_;
};

// True when the file begins as a token shard does.
bool looks_like_token_shard(std::span<const std::byte> bytes);

struct TokenShardSpec {
  std::int64_t vocab_size = 0;
  std::uint64_t tokenizer_hash = 0;
  bool trained_mask = false;
};

class TokenShardWriter {
 public:
  TokenShardWriter(const std::string& path, const TokenShardSpec& spec);
  ~TokenShardWriter();

  // A document may come in pieces. `trained` has one entry an id (0 or 1) when the shard has a mask, none otherwise.
  void append(std::span<const std::int32_t> ids, std::span<const std::uint8_t> trained = {});
  void end_document();
  void add_document(std::span<const std::int32_t> ids, std::span<const std::uint8_t> trained = {}) {
    append(ids, trained);
    end_document();
  }
  std::int64_t num_tokens() const { return num_tokens_; }
  std::int64_t num_documents() const { return static_cast<std::int64_t>(offsets_.size()) - 1; }
  // Every document must have been ended.
  void commit();

 private:
  void put(std::span<const std::byte> bytes);

  std::string path_;
  TokenShardSpec spec_;
  std::uint32_t token_bytes_;
  AtomicFile file_;
  Xxh3Stream checksum_;
  std::int64_t num_tokens_ = 0;
  std::vector<std::uint64_t> offsets_{0};
  std::vector<std::uint64_t> mask_;
  std::vector<std::byte> scratch_;
};

}  // namespace planalto
