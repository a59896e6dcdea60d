// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "formats/tokenizer/byte_alphabet.h"
#include "formats/tokenizer/pair_counts.h"
#include "formats/tokenizer/pre_tokenizer.h"
#include "formats/tokenizer/vocabulary.h"

namespace planalto {

using namespace tokenizer;  // NOLINT(google-build-using-namespace): the parts that this is made of

namespace {

constexpr std::int64_t kNumBytes = 256;
constexpr std::string_view kTrainedPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string pre_tokenizer_json() {
  return fmt::format(
      R"({{"type": "Sequence", "pretokenizers": [)"
      R"({{"type": "Split", "pattern": {{"Regex": {}}}, "behavior": "Isolated", "invert": false}}, )"
      R"({{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}}]}})",
      quote_json(kTrainedPattern));
}

using PieceTable = std::unordered_map<std::string, std::int64_t, TextHash>;

PieceTable count_pieces(const NextDocument& next, std::int64_t* num_documents) {
  const PreTokenizer pre_tokenizer(parse_json(pre_tokenizer_json(), "the trained pre-tokenizer"),
                                   "pre_tokenizer");
  PreTokenizeScratch scratch;
  PieceTable counts;
  std::string document;
  for (*num_documents = 0; next(&document); ++*num_documents) {
    if (const std::int64_t at = find_invalid_utf8(document); at >= 0) {
      fail(ErrorKind::data, "document {} is not UTF-8 at byte {}", *num_documents, at);
    }
    pre_tokenizer.cut(document, scratch);
    for (const Span& piece : scratch.pieces) ++counts[std::string(slice(document, piece))];
  }
  return counts;
}

class Trainer {
 public:
  explicit Trainer(const BpeTrainerOptions& options) : options_(options) {
    check_options();
    for (const std::string& token : options.special_tokens) add_token(token);
    add_alphabet();
  }

  void read(const PieceTable& pieces) {
    std::vector<std::int32_t> symbols;
    for (const auto& [piece, count] : pieces) {
      symbols.clear();
      for (const char c : piece) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
      pairs_.add_piece(symbols, count);
    }
  }

  void join_all() {
    const std::int64_t least = std::max<std::int64_t>(options_.min_frequency, 1);
    std::int64_t count = 0;
    while (size() < options_.vocab_size) {
      const std::optional<SymbolPair> pair = pairs_.best(&count);
      if (!pair || count < least) break;
      const std::string joined = token(pair->left) + token(pair->right);
      const auto known = ids_.find(joined);
      // A piece of text must never become a special token, which a decode may leave out.
      if (known != ids_.end() && known->second < num_special()) {
        pairs_.forget(*pair);
        continue;
      }
      const std::int32_t id = known != ids_.end() ? known->second : add_token(joined);
      merges_.push_back(*pair);
      pairs_.join(*pair, id);
    }
  }

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t num_merges() const { return static_cast<std::int64_t>(merges_.size()); }
  std::string json() const;

 private:
  std::int64_t num_special() const { return static_cast<std::int64_t>(options_.special_tokens.size()); }
  const std::string& token(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }

  void check_options() const {
    const std::int64_t least = kNumBytes + num_special();
    if (options_.vocab_size < least || options_.vocab_size > std::numeric_limits<std::int32_t>::max()) {
      fail(ErrorKind::config, "vocab_size is {}; legal: {} (256 bytes and {} special tokens) to {}",
           options_.vocab_size, least, num_special(), std::numeric_limits<std::int32_t>::max());
    }
    if (options_.min_frequency < 0) {
      fail(ErrorKind::config, "min_frequency is {}; legal: 0 and above", options_.min_frequency);
    }
    for (const std::string& special : options_.special_tokens) {
      const std::optional<std::string> bytes =
          find_invalid_utf8(special) < 0 ? read_spelling(special) : std::optional<std::string>("");
      // One character of the alphabet would be a byte of ordinary text.
      if (special.empty() || (bytes && bytes->size() <= 1)) {
        fail(ErrorKind::config, "special_tokens has \"{}\"; legal: UTF-8 text of more than one character",
             printable(special));
      }
      if (std::ranges::count(options_.special_tokens, special) > 1) {
        fail(ErrorKind::config, "special_tokens has \"{}\" twice", printable(special));
      }
    }
  }

  std::int32_t add_token(const std::string& spelling) {
    const auto id = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(spelling);
    ids_.emplace(spelling, id);
    return id;
  }

  void add_alphabet() {
    std::array<int, kNumBytes> bytes{};
    std::iota(bytes.begin(), bytes.end(), 0);
    const auto character = [](int byte) { return alphabet_character(static_cast<std::uint8_t>(byte)); };
    std::ranges::sort(bytes, [&](int a, int b) { return character(a) < character(b); });
    for (const int byte : bytes) {
      const char c = static_cast<char>(byte);
      byte_ids_[static_cast<std::size_t>(byte)] = add_token(spell_bytes(std::string_view(&c, 1)));
    }
  }

  const BpeTrainerOptions& options_;
  std::array<std::int32_t, kNumBytes> byte_ids_{};
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t, TextHash> ids_;
  std::vector<SymbolPair> merges_;
  PairCounts pairs_;
};

std::string Trainer::json() const {
  std::string out =
      "{\n\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n\"added_tokens\": [";
  for (std::int64_t id = 0; id < num_special(); ++id) {
    out +=
        fmt::format(R"({}{{"id": {}, "content": {}, "single_word": false, "lstrip": false, "rstrip": false, )"
                    R"("normalized": false, "special": true}})",
                    id == 0 ? "\n" : ",\n", id, quote_json(token(static_cast<std::int32_t>(id))));
  }
  out += fmt::format("],\n\"normalizer\": null,\n\"pre_tokenizer\": {},\n\"post_processor\": null,\n",
                     pre_tokenizer_json());
  out +=
      "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
      "\"use_regex\": true},\n"
      "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": "
      "null, "
      "\"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": "
      "false,\n"
      "\"vocab\": {";
  for (std::int64_t id = 0; id < size(); ++id) {
    out +=
        fmt::format("{}{}: {}", id == 0 ? "\n" : ",\n", quote_json(token(static_cast<std::int32_t>(id))), id);
  }
  out += "},\n\"merges\": [";
  for (std::size_t i = 0; i < merges_.size(); ++i) {
    out += fmt::format("{}[{}, {}]", i == 0 ? "\n" : ",\n", quote_json(token(merges_[i].left)),
                       quote_json(token(merges_[i].right)));
  }
  out += "]}\n}\n";
  return out;
}

}  // namespace

TrainedTokenizer train_byte_level_bpe(const NextDocument& next, const BpeTrainerOptions& options) {
  Trainer trainer(options);
  TrainedTokenizer trained;
  {
    const PieceTable pieces = count_pieces(next, &trained.num_documents);
    trained.num_pieces = static_cast<std::int64_t>(pieces.size());
    trainer.read(pieces);
  }
  trainer.join_all();
  trained.vocab_size = trainer.size();
  trained.num_merges = trainer.num_merges();
  trained.json = trainer.json();
  return trained;
}

}  // namespace planalto
