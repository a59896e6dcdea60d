// SPDX-License-Identifier: Apache-2.0
// bpe_model.h: byte-pair encoding of one piece of text: the pair with the lowest rank, leftmost first, is joined until
// none is left.
// Numerics    O(n log n) in the bytes of a piece
// Memory      merges: 12 bytes each, found by binary search among those with the same left token; no hashing, so a
//             crafted file cannot make look-ups slow
// Threads     immutable; one scratch per thread at a time
// Errors      data: an option that is not supported; a merge of unknown tokens or into one; a byte without a token
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/tokenizer/vocabulary.h"

namespace planalto::tokenizer {

struct BpeScratch {
  struct Symbol {
    std::int32_t id = -1;  // -1 once joined to its left neighbour
    std::int64_t previous = -1;
    std::int64_t next = -1;
  };
  struct Candidate {
    std::int32_t rank = 0;
    std::int32_t joined = 0;
    std::int64_t at = 0;
  };
  std::vector<std::int32_t> ids;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

class BpeModel {
 public:
  // `model` is the object of the file (its type has been looked at).
  BpeModel(const JsonValue& model, const std::string& where, const Vocabulary& vocabulary);

  // Appends the ids of a piece. The vocabulary must be the one that the model was made with.
  void encode(std::string_view bytes, const Vocabulary& vocabulary, BpeScratch& scratch,
              std::vector<std::int32_t>* ids) const;

 private:
  struct Merge {
    std::int32_t right = 0;
    std::int32_t rank = 0;
    std::int32_t joined = 0;
  };
  struct RankedMerge {
    std::int32_t left = 0;
    Merge merge;
  };

  void read_options(const JsonValue& model, const Vocabulary& vocabulary);
  void read_merges(const JsonValue& value, const Vocabulary& vocabulary);
  void index_merges(std::vector<RankedMerge> merges, std::int64_t num_tokens);
  const Merge* find(std::int32_t left, std::int32_t right) const;
  void first_ids(std::string_view bytes, std::vector<std::int32_t>* ids) const;
  void join_short(std::vector<std::int32_t>* ids) const;
  void join_long(BpeScratch& scratch) const;
  void consider(std::int64_t at, BpeScratch& scratch) const;

  std::array<std::int32_t, 256> byte_ids_{};  // -1: no token
  std::vector<std::int64_t> merge_offsets_;   // by left token
  std::vector<Merge> merges_;                 // ascending by right token among those with the same left
  std::optional<std::int32_t> unknown_id_;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  std::string where_;
};

}  // namespace planalto::tokenizer
