// SPDX-License-Identifier: Apache-2.0
#include "train/batcher.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "ops/operand.h"

namespace planalto {

std::int64_t permuted_index(std::int64_t i, std::int64_t n, std::uint64_t key) {
  PLANALTO_CHECK(i >= 0 && i < n, "index {} of {}", i, n);
  if (n == 1) return 0;
  // A balanced Feistel network on the next even number of bits; indices that leave [0, n) walk on until they return.
  const int half = (std::bit_width(static_cast<std::uint64_t>(n - 1)) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  auto x = static_cast<std::uint64_t>(i);
  do {
    std::uint64_t left = x >> half, right = x & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::uint64_t next = left ^ (mix64(key ^ (round << 56) ^ right) & mask);
      left = right;
      right = next;
    }
    x = (left << half) | right;
  } while (x >= static_cast<std::uint64_t>(n));
  return static_cast<std::int64_t>(x);
}

Batcher::Batcher(const TokenSource& source, const BatcherOptions& options)
    : source_(source), options_(options) {
  PLANALTO_CHECK(options.seq_len > 0 && options.rows > 0, "rows of {} tokens, {} of them", options.seq_len,
                 options.rows);
  const std::int64_t documents = source.num_documents();
  first_piece_.reserve(static_cast<std::size_t>(documents + 1));
  first_piece_.push_back(0);
  for (std::int64_t d = 0; d < documents; ++d) {
    const std::int64_t length = source.document_length(d);
    num_tokens_ += length;
    first_piece_.push_back(first_piece_.back() + (length + options.seq_len - 1) / options.seq_len);
  }
  if (num_tokens_ == 0) fail(ErrorKind::data, "the data holds no tokens: {} documents, all empty", documents);
}

Batcher::Piece Batcher::piece_at(std::int64_t order_idx) const {
  std::int64_t piece = order_idx;
  if (options_.shuffle) {
    // Seed and epoch must not be exchangeable: a plain xor of their hashes would give seed 1, epoch 0 and seed 2, epoch 1 one order.
    piece = permuted_index(order_idx, num_pieces(),
                           mix64(mix64(options_.seed) + static_cast<std::uint64_t>(cursor_.epoch)));
  }
  const auto it = std::upper_bound(first_piece_.begin(), first_piece_.end(), piece) - 1;
  const std::int64_t document = it - first_piece_.begin();
  const std::int64_t first = (piece - *it) * options_.seq_len;
  return {document, first, std::min(options_.seq_len, source_.document_length(document) - first)};
}

void Batcher::seek(const DataCursor& c) {
  // At the end of an epoch the piece is num_pieces(); the next fill moves on.
  const bool inside = c.epoch >= 0 && c.piece >= 0 && c.piece <= num_pieces() && c.offset >= 0;
  const DataCursor before = std::exchange(cursor_, c);
  if (inside && (c.piece == num_pieces() ? c.offset == 0 : c.offset < piece_at(c.piece).length)) return;
  cursor_ = before;
  fail(ErrorKind::data, "data position: epoch {}, piece {}, offset {} is not in this data of {} pieces",
       c.epoch, c.piece, c.offset, num_pieces());
}

bool Batcher::fill(const MicrobatchView& out) {
  std::int64_t rows_filled = 0, documents = 0, trained = 0, in_row = 0, at = 0;
  out.doc_offsets[0] = 0;
  while (rows_filled < options_.rows) {
    if (cursor_.piece == num_pieces()) {
      if (!options_.repeat) break;
      cursor_ = {cursor_.epoch + 1, 0, 0};
    }
    const Piece piece = piece_at(cursor_.piece);
    const std::int64_t n = std::min(piece.length - cursor_.offset, options_.seq_len - in_row);
    const std::int64_t first = piece.first + cursor_.offset;
    const bool ends_document = first + n == source_.document_length(piece.document);
    source_.copy(piece.document, first, n, out.ids + at);
    // Labels are the tokens one further on; the last of a document has none.
    source_.copy_labels(piece.document, first + 1, ends_document ? n - 1 : n, out.labels + at);
    if (ends_document) out.labels[at + n - 1] = kIgnoreLabel;
    trained += n - std::count(out.labels + at, out.labels + at + n, kIgnoreLabel);
    for (std::int64_t i = 0; i < n; ++i) out.positions[at + i] = static_cast<std::int32_t>(i);
    at += n;
    in_row += n;
    out.doc_offsets[++documents] = static_cast<std::int32_t>(at);
    cursor_.offset += n;
    const bool piece_done = cursor_.offset == piece.length;
    if (piece_done) cursor_ = {cursor_.epoch, cursor_.piece + 1, 0};
    if (in_row == options_.seq_len || (piece_done && !options_.pack)) {
      in_row = 0;
      ++rows_filled;
    }
  }
  out.counts[ops::kNumTokens] = at;
  out.counts[ops::kNumDocuments] = documents;
  out.counts[ops::kNumTrained] = trained;
  return at > 0;
}

std::int64_t count_mtp_labels(const MicrobatchView& batch, std::int64_t depth) {
  std::int64_t n = 0;
  for (std::int64_t d = 0; d < batch.counts[ops::kNumDocuments]; ++d) {
    for (std::int64_t r = batch.doc_offsets[d] + depth + 1; r < batch.doc_offsets[d + 1]; ++r) {
      n += batch.labels[r] != kIgnoreLabel ? 1 : 0;
    }
  }
  return n;
}

}  // namespace planalto
