// SPDX-License-Identifier: Apache-2.0
// batcher.h: documents of tokens to packed microbatches, in a seeded order with a cursor that a checkpoint keeps.
// Shapes      a row is seq_len tokens; a microbatch is micro_batch rows = T packed tokens with CSR document offsets
// Invariants  the order is a function of (seed, epoch) alone; every token of an epoch is used once; no attention and no label crosses a
//             document; a document longer than a row continues in another (the label at the cut is its next token)
//             an epoch's end is no end of a batch: its last rows and the first of the next epoch share one
// Memory      O(documents) at construction, nothing while batches are made
// Source      pieces are visited in the order of a Feistel permutation with cycle walking (Black and Rogaway 2002), so no order is stored
#pragma once

#include <cstdint>
#include <vector>

namespace planalto {

constexpr std::int32_t kIgnoreLabel = -100;

// What a batcher reads from; token shards implement it.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::int64_t num_documents() const = 0;
  virtual std::int64_t document_length(std::int64_t document) const = 0;
  virtual void copy(std::int64_t document, std::int64_t first, std::int64_t n, std::int32_t* out) const = 0;
  // The same tokens as labels: kIgnoreLabel in place of those that are not to be trained.
  virtual void copy_labels(std::int64_t document, std::int64_t first, std::int64_t n,
                           std::int32_t* out) const {
    copy(document, first, n, out);
  }
  // How many of a document's tokens are trained labels: all but the first.
  virtual std::int64_t num_labels(std::int64_t document) const {
    return document_length(document) > 0 ? document_length(document) - 1 : 0;
  }
};

// Where in the data a run stands: the next token is at `offset` of piece number `piece` in the order of `epoch`.
struct DataCursor {
  std::int64_t epoch = 0, piece = 0, offset = 0;
  bool operator==(const DataCursor&) const = default;
};

// One microbatch of the step's input buffers.
struct MicrobatchView {
  std::int32_t *ids = nullptr, *labels = nullptr, *positions = nullptr;  // [T]
  std::int32_t* doc_offsets = nullptr;                                   // [T + 1]
  std::int64_t* counts = nullptr;                                        // ops::kNumCounts
};

struct BatcherOptions {
  std::int64_t seq_len = 0;
  std::int64_t rows = 0;  // per microbatch
  std::uint64_t seed = 0;
  bool shuffle = true;  // false: documents in order (evaluation)
  bool repeat = true;   // false: stop after one epoch
  bool pack = true;     // false: a row holds one piece of one document, and may be short
};

class Batcher {
 public:
  Batcher(const TokenSource& source, const BatcherOptions& options);

  // Fills one microbatch and advances. False when nothing is left (repeat off); a last partial microbatch has fewer tokens.
  bool fill(const MicrobatchView& out);
  const DataCursor& cursor() const { return cursor_; }
  // Refuses (data) a place that this data does not have.
  void seek(const DataCursor& cursor);
  std::int64_t num_pieces() const { return first_piece_.back(); }
  std::int64_t num_tokens() const { return num_tokens_; }

 private:
  struct Piece {
    std::int64_t document, first, length;
  };
  Piece piece_at(std::int64_t order_idx) const;

  const TokenSource& source_;
  BatcherOptions options_;
  std::vector<std::int64_t> first_piece_;  // [documents + 1]
  std::int64_t num_tokens_ = 0;
  DataCursor cursor_;
};

// A bijection of [0, n), different for every key.
std::int64_t permuted_index(std::int64_t i, std::int64_t n, std::uint64_t key);
// Labels that MTP depth d trains on in this microbatch: those at least d + 1 rows into their document.
std::int64_t count_mtp_labels(const MicrobatchView& batch, std::int64_t depth);

}  // namespace planalto
