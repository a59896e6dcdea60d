// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "formats/tokenizer/byte_alphabet.h"

namespace planalto::tokenizer {

Vocabulary::Vocabulary(const JsonValue& model_vocab, const std::string& where,
                       const std::vector<AddedToken>& added, const std::string& added_where) {
  read_model(model_vocab, where);
  place_added(added, added_where);
  bytes_.resize(spellings_.size());
  by_spelling_.reserve(spellings_.size());
  by_bytes_.reserve(static_cast<std::size_t>(model_size_));
  for (std::int64_t id = 0; id < size(); ++id) {
    const auto i = static_cast<std::size_t>(id);
    by_spelling_.emplace(spellings_[i], static_cast<std::int32_t>(id));
    const std::optional<std::string> bytes = read_spelling(spellings_[i]);
    bytes_[i] = bytes ? *bytes : spellings_[i];
    if (bytes && id < model_size_) by_bytes_.emplace(bytes_[i], static_cast<std::int32_t>(id));
  }
}

void Vocabulary::read_model(const JsonValue& model_vocab, const std::string& where) {
  const JsonObject& tokens = model_vocab.as_object(where);
  model_size_ = tokens.size();
  if (model_size_ > std::numeric_limits<std::int32_t>::max() / 2) {
    fail(ErrorKind::data, "{} has {} tokens, more than ids of 32 bits can number", where, model_size_);
  }
  spellings_.resize(static_cast<std::size_t>(model_size_));
  special_.assign(static_cast<std::size_t>(model_size_), false);
  std::vector<bool> taken(static_cast<std::size_t>(model_size_), false);
  for (const JsonMember& member : tokens) {
    if (!member.value.is_integer()) {
      fail(ErrorKind::data, "{}: the id of the token \"{}\" is {}, not an integer", where,
           printable(member.key), to_string(member.value.type()));
    }
    const std::int64_t id = member.value.as_int64(where);
    if (id < 0 || id >= model_size_) {
      fail(ErrorKind::data, "{}: the token \"{}\" has the id {}; {} tokens have the ids 0 to {}", where,
           printable(member.key), id, model_size_, model_size_ - 1);
    }
    const auto i = static_cast<std::size_t>(id);
    if (taken[i]) {
      fail(ErrorKind::data, "{}: the tokens \"{}\" and \"{}\" have the same id {}", where,
           printable(spellings_[i]), printable(member.key), id);
    }
    taken[i] = true;
    spellings_[i] = member.key;
  }
}

// A token of the model keeps its id. The others are numbered behind the model in the order of the file, whatever the
// file says: so the reference does it, and a file that says otherwise would mean two things.
void Vocabulary::place_added(const std::vector<AddedToken>& added, const std::string& where) {
  Table ids;
  std::vector<std::string> model_spellings;  // kept unmoved while `ids` looks into them
  model_spellings.swap(spellings_);
  for (std::size_t i = 0; i < model_spellings.size(); ++i) {
    ids.emplace(model_spellings[i], static_cast<std::int32_t>(i));
  }
  std::vector<bool> seen(model_spellings.size() + added.size(), false);
  std::vector<std::string> behind;
  for (const AddedToken& token : added) {
    const auto next = static_cast<std::int32_t>(model_spellings.size() + behind.size());
    const auto [found, is_new] = ids.emplace(token.content, next);
    const std::int64_t id = found->second;
    if (token.id != id) {
      fail(
          ErrorKind::data, "{}: the token \"{}\" has the id {}, but {} {}", where, printable(token.content),
          token.id,
          is_new ? "the next one behind the vocabulary is" : "model.vocab or an earlier added token gives it",
          id);
    }
    if (seen[static_cast<std::size_t>(id)]) {
      fail(ErrorKind::data, "{}: the token \"{}\" is there twice", where, printable(token.content));
    }
    seen[static_cast<std::size_t>(id)] = true;
    if (is_new) {
      behind.push_back(token.content);
      special_.push_back(token.special);
    } else {
      special_[static_cast<std::size_t>(id)] = token.special;
    }
  }
  ids.clear();
  spellings_ = std::move(model_spellings);
  spellings_.insert(spellings_.end(), behind.begin(), behind.end());
}

std::optional<std::int32_t> Vocabulary::find(std::string_view spelling) const {
  const auto found = by_spelling_.find(spelling);
  if (found == by_spelling_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::int32_t> Vocabulary::find_in_model(std::string_view spelling) const {
  const std::optional<std::int32_t> id = find(spelling);
  return id && *id < model_size_ ? id : std::nullopt;
}

std::optional<std::int32_t> Vocabulary::find_bytes(std::string_view bytes) const {
  const auto found = by_bytes_.find(bytes);
  if (found == by_bytes_.end()) return std::nullopt;
  return found->second;
}

}  // namespace planalto::tokenizer
