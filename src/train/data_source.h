// SPDX-License-Identifier: Apache-2.0
// data_source.h: text to token shards, made once and kept in a cache; shards to the documents that a batcher reads.
// Invariants  a cached shard is named by the hash of the text's bytes, the tokenizer and the options that change tokens; an EOS (BOS)
//             stands once at the end (start) of a document when asked for, never twice
// Memory      shards are memory-mapped; one document is in memory while it is tokenised
// Errors      data: bad text (file, line), an id outside the model's vocabulary, no document
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "formats/text_source.h"
#include "formats/token_shard.h"
#include "formats/tokenizer/tokenizer.h"
#include "train/batcher.h"

namespace planalto {

struct PrepareOptions {
  TextSourceOptions text;
  bool add_bos = false, add_eos = true;
  std::int32_t bos_id = -1, eos_id = -1;  // -1: none
  std::string cache_dir;
};

struct PreparedText {
  std::string shard_path;
  bool from_cache = false;
  TextSourceReport report;  // empty when from the cache
};

// path: a file or a folder; a token shard is returned as it is.
PreparedText prepare_text(const std::string& path, const Tokenizer& tokenizer, const PrepareOptions& options);

// A run of tokens of several shards, one behind the other: the documents in it, cut at both ends.
class ShardSource final : public TokenSource {
 public:
  explicit ShardSource(std::vector<TokenShard> shards);
  std::int64_t num_documents() const override { return static_cast<std::int64_t>(documents_.size()); }
  std::int64_t document_length(std::int64_t document) const override {
    return documents_[static_cast<std::size_t>(document)].length;
  }
  void copy(std::int64_t document, std::int64_t first, std::int64_t n, std::int32_t* out) const override;
  void copy_labels(std::int64_t document, std::int64_t first, std::int64_t n,
                   std::int32_t* out) const override;
  std::int64_t num_labels(std::int64_t document) const override;

  std::int64_t num_tokens() const { return num_tokens_; }
  // XXH3 over the shards' checksums: which data this is.
  std::uint64_t hash() const;
  // Cuts [begin, end) of the token stream off into a source of its own and leaves the rest here. The shards stay shared.
  ShardSource split_off(std::int64_t begin, std::int64_t end);

 private:
  struct Document {
    std::size_t shard = 0;
    std::int64_t first = 0, length = 0;  // tokens of the shard
  };
  ShardSource() = default;

  std::vector<std::shared_ptr<const TokenShard>> shards_;
  std::vector<Document> documents_;
  std::int64_t num_tokens_ = 0;
};

// What a source offers to a run whose rows hold seq_len tokens.
struct DataSummary {
  std::int64_t documents = 0, tokens = 0, labels = 0;
  std::int64_t without_label = 0;  // documents that train nothing
  std::int64_t split = 0;          // documents longer than a row
};
DataSummary summarize(const TokenSource& source, std::int64_t seq_len);
// The first and last ids of the first document, "[1, 2, ... 8, 9]".
std::string sample_ids(const TokenSource& source);

// Mean negative log likelihood (nats a label) of `eval` under token frequencies of `train` with one added to each count:
// what a model that ignores context reaches.
double unigram_loss(const TokenSource& train, const TokenSource& eval, std::int64_t vocab_size);

}  // namespace planalto
