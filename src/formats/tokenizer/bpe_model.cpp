// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace planalto::tokenizer {

namespace {

// Up to here a scan for the best pair after each merge beats a heap; nearly all pieces are this short.
constexpr std::int64_t kShortPiece = 32;

struct TokenPair {
  std::string_view left;
  std::string_view right;
};

// `where` is called only for a message: there are hundreds of thousands of merges.
template <class Where>
TokenPair read_pair(const JsonValue& value, const Where& where) {
  if (value.is_string()) {
    const std::string_view text = value.as_string("merges");
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      fail(ErrorKind::data, "{} must be two tokens with one space between them, not \"{}\"", where(),
           printable(text));
    }
    return {text.substr(0, space), text.substr(space + 1)};
  }
  const bool well_formed = value.is_array() && value.as_array("merges").size() == 2 &&
                           value.as_array("merges")[0].is_string() && value.as_array("merges")[1].is_string();
  if (!well_formed) fail(ErrorKind::data, "{} must be a string or a pair of tokens", where());
  const JsonArray& pair = value.as_array("merges");
  return {pair[0].as_string("merges"), pair[1].as_string("merges")};
}

constexpr std::string_view kFields[] = {
    "type",     "dropout",       "unk_token",     "continuing_subword_prefix",
    "fuse_unk", "byte_fallback", "ignore_merges", "end_of_word_suffix",
    "vocab",    "merges"};

}  // namespace

BpeModel::BpeModel(const JsonValue& model, const std::string& where, const Vocabulary& vocabulary)
    : where_(where) {
  for (const JsonMember& member : model.as_object(where)) {
    if (std::ranges::find(kFields, member.key) == std::end(kFields)) {
      fail(ErrorKind::data, "{} has the field \"{}\", which is not supported", where, printable(member.key));
    }
  }
  read_options(model, vocabulary);
  read_merges(model.at("merges", where), vocabulary);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_[static_cast<std::size_t>(byte)] = vocabulary.find_bytes(std::string_view(&c, 1)).value_or(-1);
  }
}

void BpeModel::read_options(const JsonValue& model, const Vocabulary& vocabulary) {
  const auto where = [&](std::string_view field) { return fmt::format("{}.{}", where_, field); };
  // A field that is set, or null.
  const auto set = [&](std::string_view field) {
    const JsonValue* value = model.find(field);
    return value == nullptr || value->is_null() ? nullptr : value;
  };
  const auto flag = [&](std::string_view field) {
    const JsonValue* value = set(field);
    return value != nullptr && value->as_bool(where(field));
  };
  const JsonValue* dropout = set("dropout");
  if (dropout != nullptr && dropout->as_double(where("dropout")) != 0.0) {
    fail(ErrorKind::data, "{} must be null: ids would depend on chance", where("dropout"));
  }
  for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonValue* value = set(field);
    if (value == nullptr || value->as_string(where(field)).empty()) continue;
    fail(ErrorKind::data, "{} is \"{}\", which is not supported (supported: null)", where(field),
         printable(value->as_string(where(field))));
  }
  if (flag("byte_fallback")) {
    fail(ErrorKind::data, "{} is true, which is not supported (SentencePiece-style vocabulary)",
         where("byte_fallback"));
  }
  fuse_unknown_ = flag("fuse_unk");
  ignore_merges_ = flag("ignore_merges");
  const JsonValue* unknown = set("unk_token");
  if (unknown == nullptr) return;
  const std::string& token = unknown->as_string(where("unk_token"));
  unknown_id_ = vocabulary.find_in_model(token);
  if (!unknown_id_) {
    fail(ErrorKind::data, "{} is \"{}\", which is not in model.vocab", where("unk_token"), printable(token));
  }
}

void BpeModel::read_merges(const JsonValue& value, const Vocabulary& vocabulary) {
  const JsonArray& list = value.as_array(where_ + ".merges");
  if (list.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    fail(ErrorKind::data, "{}: {} merges, more than ranks of 32 bits can number", where_, list.size());
  }
  std::vector<RankedMerge> merges;
  merges.reserve(list.size());
  std::string joined;
  for (std::size_t rank = 0; rank < list.size(); ++rank) {
    const auto where = [&] { return fmt::format("{}.merges[{}]", where_, rank); };
    if (list[rank].type() != list[0].type())
      fail(ErrorKind::data, "{}: strings and pairs are mixed", where());
    const TokenPair pair = read_pair(list[rank], where);
    const auto id_of = [&](std::string_view token) {
      const std::optional<std::int32_t> id = vocabulary.find_in_model(token);
      if (!id) fail(ErrorKind::data, "{}: the token \"{}\" is not in model.vocab", where(), printable(token));
      return *id;
    };
    joined.assign(pair.left).append(pair.right);
    const std::int32_t left = id_of(pair.left);
    merges.push_back({left, {id_of(pair.right), static_cast<std::int32_t>(rank), id_of(joined)}});
  }
  index_merges(std::move(merges), vocabulary.model_size());
}

void BpeModel::index_merges(std::vector<RankedMerge> merges, std::int64_t num_tokens) {
  // A pair that is listed twice has its last rank, as in the reference.
  std::ranges::sort(merges, [](const RankedMerge& a, const RankedMerge& b) {
    return std::tuple(a.left, a.merge.right, -a.merge.rank) <
           std::tuple(b.left, b.merge.right, -b.merge.rank);
  });
  const auto same_pair = [](const RankedMerge& a, const RankedMerge& b) {
    return a.left == b.left && a.merge.right == b.merge.right;
  };
  merges.erase(std::unique(merges.begin(), merges.end(), same_pair), merges.end());
  merge_offsets_.assign(static_cast<std::size_t>(num_tokens) + 1, 0);
  for (const RankedMerge& m : merges) {
    merges_.push_back(m.merge);
    ++merge_offsets_[static_cast<std::size_t>(m.left) + 1];
  }
  for (std::size_t i = 1; i < merge_offsets_.size(); ++i) merge_offsets_[i] += merge_offsets_[i - 1];
}

const BpeModel::Merge* BpeModel::find(std::int32_t left, std::int32_t right) const {
  const Merge* begin = merges_.data() + merge_offsets_[static_cast<std::size_t>(left)];
  const Merge* end = merges_.data() + merge_offsets_[static_cast<std::size_t>(left) + 1];
  const Merge* found =
      std::lower_bound(begin, end, right, [](const Merge& m, std::int32_t value) { return m.right < value; });
  return found != end && found->right == right ? found : nullptr;
}

void BpeModel::first_ids(std::string_view bytes, std::vector<std::int32_t>* ids) const {
  bool unknown_before = false;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    const std::int32_t id = byte_ids_[byte];
    if (id < 0 && !unknown_id_) {
      fail(ErrorKind::data,
           "{}: the byte 0x{:02X} has no token and unk_token is null: the text would be lost", where_, byte);
    }
    if (id >= 0) {
      ids->push_back(id);
    } else if (!unknown_before || !fuse_unknown_) {
      ids->push_back(*unknown_id_);
    }
    unknown_before = id < 0;
  }
}

void BpeModel::encode(std::string_view bytes, const Vocabulary& vocabulary, BpeScratch& scratch,
                      std::vector<std::int32_t>* ids) const {
  if (ignore_merges_) {
    if (const std::optional<std::int32_t> whole = vocabulary.find_bytes(bytes)) return ids->push_back(*whole);
  }
  scratch.ids.clear();
  first_ids(bytes, &scratch.ids);
  if (static_cast<std::int64_t>(scratch.ids.size()) <= kShortPiece) {
    join_short(&scratch.ids);
  } else {
    join_long(scratch);
  }
  ids->insert(ids->end(), scratch.ids.begin(), scratch.ids.end());
}

void BpeModel::join_short(std::vector<std::int32_t>* ids) const {
  std::array<const Merge*, kShortPiece> merge{};  // of the pair that begins here
  std::size_t n = ids->size();
  for (std::size_t i = 0; i + 1 < n; ++i) merge[i] = find((*ids)[i], (*ids)[i + 1]);
  while (n > 1) {
    std::size_t best = n;
    for (std::size_t i = 0; i + 1 < n; ++i) {
      if (merge[i] != nullptr && (best == n || merge[i]->rank < merge[best]->rank)) best = i;
    }
    if (best == n) break;
    (*ids)[best] = merge[best]->joined;
    for (std::size_t i = best + 1; i + 1 < n; ++i) {
      (*ids)[i] = (*ids)[i + 1];
      merge[i] = merge[i + 1];
    }
    --n;
    merge[best] = best + 1 < n ? find((*ids)[best], (*ids)[best + 1]) : nullptr;
    if (best > 0) merge[best - 1] = find((*ids)[best - 1], (*ids)[best]);
  }
  ids->resize(n);
}

namespace {

// For std::push_heap, which keeps the greatest in front: the lowest rank, then the leftmost.
bool comes_later(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

}  // namespace

void BpeModel::consider(std::int64_t at, BpeScratch& scratch) const {
  if (at < 0) return;
  const BpeScratch::Symbol& symbol = scratch.symbols[static_cast<std::size_t>(at)];
  if (symbol.next < 0) return;
  const Merge* merge = find(symbol.id, scratch.symbols[static_cast<std::size_t>(symbol.next)].id);
  if (merge == nullptr) return;
  scratch.heap.push_back({merge->rank, merge->joined, at});
  std::ranges::push_heap(scratch.heap, comes_later);
}

void BpeModel::join_long(BpeScratch& scratch) const {
  const auto n = static_cast<std::int64_t>(scratch.ids.size());
  auto& symbols = scratch.symbols;
  symbols.clear();
  scratch.heap.clear();
  for (std::int64_t i = 0; i < n; ++i) {
    symbols.push_back({scratch.ids[static_cast<std::size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1});
  }
  for (std::int64_t i = 0; i < n; ++i) consider(i, scratch);
  while (!scratch.heap.empty()) {
    std::ranges::pop_heap(scratch.heap, comes_later);
    const BpeScratch::Candidate best = scratch.heap.back();
    scratch.heap.pop_back();
    BpeScratch::Symbol& left = symbols[static_cast<std::size_t>(best.at)];
    if (left.id < 0 || left.next < 0) continue;
    BpeScratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    // A candidate is stale when one of its two symbols has grown since.
    const Merge* merge = find(left.id, right.id);
    if (merge == nullptr || merge->rank != best.rank) continue;
    left.id = merge->joined;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = best.at;
    consider(left.previous, scratch);
    consider(best.at, scratch);
  }
  scratch.ids.clear();
  for (std::int64_t i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
    scratch.ids.push_back(symbols[static_cast<std::size_t>(i)].id);
  }
}

}  // namespace planalto::tokenizer
