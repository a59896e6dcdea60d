// SPDX-License-Identifier: Apache-2.0
// vocabulary.h: the tokens by id, as the file spells them and as bytes, and both ways back.
// Invariants  ids are 0..size-1 without gaps: first those of the model, then the added tokens that are not among them
// Memory      owns every token twice (spelling and bytes)
// Threads     immutable once filled
// Errors      data: an id twice, out of range, or other than the reference would give it; a token twice
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "formats/tokenizer/added_tokens.h"

namespace planalto::tokenizer {

struct TextHash {
  std::size_t operator()(std::string_view text) const { return xxh3_64(text); }
};

class Vocabulary {
 public:
  // `model_vocab` is the object {token: id}.
  Vocabulary(const JsonValue& model_vocab, const std::string& where, const std::vector<AddedToken>& added,
             const std::string& added_where);

  Vocabulary(Vocabulary&&) = default;  // a copy would look into the other one
  Vocabulary& operator=(Vocabulary&&) = default;

  std::int64_t size() const { return static_cast<std::int64_t>(spellings_.size()); }
  // Those of the model alone: what merges and whole pieces may give.
  std::int64_t model_size() const { return model_size_; }
  bool has(std::int64_t id) const { return id >= 0 && id < size(); }
  // As the file spells it ("Ġthe"), and the bytes that it stands for (" the"). `id` must be one of ours.
  const std::string& spelling(std::int64_t id) const { return spellings_[static_cast<std::size_t>(id)]; }
  const std::string& bytes(std::int64_t id) const { return bytes_[static_cast<std::size_t>(id)]; }
  bool special(std::int64_t id) const { return special_[static_cast<std::size_t>(id)]; }

  std::optional<std::int32_t> find(std::string_view spelling) const;
  std::optional<std::int32_t> find_in_model(std::string_view spelling) const;
  // A token of the model by its bytes; only tokens spelled in the byte alphabet.
  std::optional<std::int32_t> find_bytes(std::string_view bytes) const;

 private:
  void read_model(const JsonValue& model_vocab, const std::string& where);
  void place_added(const std::vector<AddedToken>& added, const std::string& where);

  using Table = std::unordered_map<std::string_view, std::int32_t, TextHash>;

  std::int64_t model_size_ = 0;
  std::vector<std::string> spellings_;
  std::vector<std::string> bytes_;
  std::vector<bool> special_;
  Table by_spelling_;  // views into spellings_ and bytes_, which do not change once these are filled
  Table by_bytes_;
};

}  // namespace planalto::tokenizer
