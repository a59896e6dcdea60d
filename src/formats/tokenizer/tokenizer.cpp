// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/utf8.h"
#include "formats/tokenizer/added_tokens.h"
#include "formats/tokenizer/bpe_model.h"
#include "formats/tokenizer/code_points.h"
#include "formats/tokenizer/component.h"
#include "formats/tokenizer/normalizer.h"
#include "formats/tokenizer/piece_cache.h"
#include "formats/tokenizer/post_processor.h"
#include "formats/tokenizer/pre_tokenizer.h"
#include "formats/tokenizer/vocabulary.h"

namespace planalto {

using namespace tokenizer;  // NOLINT(google-build-using-namespace): the parts of this class

namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 30;

// What one call of encode needs; kept between calls for its cache and its buffers.
struct EncodeScratch {
  PieceCache cache;
  PreTokenizeScratch pre_tokenize;
  BpeScratch bpe;
  std::vector<Stretch> raw;
  std::vector<Stretch> normal;
  std::string normal_text;
  std::vector<std::int32_t> piece_ids;
};

// The members of the file that have a part of their own below; those that are missing are null.
struct FileView {
  const JsonValue& file;
  const std::string& source;

  const JsonValue& at(std::string_view key) const {
    static const JsonValue null;
    const JsonValue* found = file.find(key);
    return found == nullptr ? null : *found;
  }
  std::string where(std::string_view key) const { return fmt::format("{}: {}", source, key); }

  std::vector<AddedToken> added_tokens() const {
    if (at("added_tokens").is_null()) return {};
    return read_added_tokens(at("added_tokens"), where("added_tokens"));
  }
};

void check_top_level(const FileView& view) {
  static constexpr std::string_view kKnown[] = {"version",       "truncation", "padding",
                                                "added_tokens",  "normalizer", "model",
                                                "pre_tokenizer", "decoder",    "post_processor"};
  for (const JsonMember& member : view.file.as_object(view.source)) {
    if (std::ranges::find(kKnown, member.key) == std::end(kKnown)) {
      fail(ErrorKind::data, "{}: the field \"{}\" is not one of a tokenizer.json", view.source,
           printable(member.key));
    }
  }
  if (!view.at("version").is_null()) {
    const std::string& text = view.at("version").as_string(view.where("version"));
    if (text != "1.0")
      fail(ErrorKind::data, "{} is \"{}\"; supported: 1.0", view.where("version"), printable(text));
  }
  for (const char* field : {"truncation", "padding"}) {
    if (!view.at(field).is_null()) {
      fail(ErrorKind::data,
           "{} is set, which is not supported: text would be cut or padded (supported: null)",
           view.where(field));
    }
  }
}

// Files of older versions leave the type of the model out; merges tell a BPE.
void check_model_type(const FileView& view) {
  const JsonValue& model = view.file.at("model", view.source);
  if (model.find("type") == nullptr && model.find("merges") != nullptr) return;
  const Component component(model, view.where("model"));
  if (component.type() != "BPE") component.refuse("BPE");
}

}  // namespace

struct Tokenizer::Parts {
  // The components that may be unsupported come first: they are refused before the vocabulary is built.
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Vocabulary vocabulary;
  BpeModel bpe;
  PostProcessor post_processor;
  TokenFinder raw_tokens;     // looked for in the text as it is
  TokenFinder normal_tokens;  // looked for in the normalised text
  std::uint64_t hash = 0;

  std::mutex mutex;
  std::vector<std::unique_ptr<EncodeScratch>> idle;  // guarded by mutex

  Parts(const FileView& view, const std::vector<AddedToken>& added)
      : normalizer(view.at("normalizer"), view.where("normalizer")),
        pre_tokenizer(view.at("pre_tokenizer"), view.where("pre_tokenizer")),
        vocabulary(view.at("model").at("vocab", view.where("model")), view.where("model.vocab"), added,
                   view.where("added_tokens")),
        bpe(view.at("model"), view.where("model"), vocabulary),
        post_processor(view.at("post_processor"), view.where("post_processor"), vocabulary) {
    std::string buffer;
    for (const AddedToken& token : added) {
      if (token.normalized) {
        normal_tokens.add(normalizer.apply(token.content, &buffer), token);
      } else {
        raw_tokens.add(token.content, token);
      }
    }
  }
};

// A scratch for the length of one call: taken from the idle ones, given back at the end.
class Tokenizer::Lease {
 public:
  Lease(Parts& parts, std::int64_t text_bytes) : parts_(parts), keep_(text_bytes <= kKeepUpTo) {
    {
      const std::lock_guard lock(parts.mutex);
      if (!parts.idle.empty()) {
        scratch_ = std::move(parts.idle.back());
        parts.idle.pop_back();
      }
    }
    if (scratch_ == nullptr) scratch_ = std::make_unique<EncodeScratch>();
  }
  ~Lease() {
    if (!keep_) return;
    const std::lock_guard lock(parts_.mutex);
    parts_.idle.push_back(std::move(scratch_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  EncodeScratch& scratch() { return *scratch_; }

 private:
  static constexpr std::int64_t kKeepUpTo = 16 << 20;  // buffers that a longer text has grown are given back

  Parts& parts_;
  bool keep_;
  std::unique_ptr<EncodeScratch> scratch_;
};

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::string& path) {
  const std::string text = read_text_file(path, kMaxFileBytes);
  return from_text(text, path);
}

Tokenizer Tokenizer::from_text(std::string_view json, const std::string& source) {
  const JsonValue file = parse_json(json, source);
  const FileView view{file, source};
  check_top_level(view);
  check_decoder(view.at("decoder"), view.where("decoder"));
  check_model_type(view);
  auto parts = std::make_unique<Parts>(view, view.added_tokens());
  parts->hash = xxh3_64(json);
  return Tokenizer(std::move(parts));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view utf8, bool add_special_tokens) const {
  std::vector<std::int32_t> ids;
  append_encoded(utf8, add_special_tokens, &ids);
  return ids;
}

void Tokenizer::append_encoded(std::string_view utf8, bool add_special_tokens,
                               std::vector<std::int32_t>* ids) const {
  if (const std::int64_t at = find_invalid_utf8(utf8); at >= 0) {
    fail(ErrorKind::data, "the text is not UTF-8 at byte {}: {}", at,
         printable(utf8.substr(static_cast<std::size_t>(at), 4)));
  }
  if (add_special_tokens) ids->insert(ids->end(), ids_before().begin(), ids_before().end());
  Lease lease(*parts_, static_cast<std::int64_t>(utf8.size()));
  EncodeScratch& s = lease.scratch();
  s.raw.clear();
  parts_->raw_tokens.cut(utf8, {0, static_cast<std::int64_t>(utf8.size())}, &s.raw);
  for (const Stretch& stretch : s.raw) {
    if (stretch.token_id >= 0) {
      ids->push_back(stretch.token_id);
    } else {
      append_text(slice(utf8, stretch.span), lease, ids);
    }
  }
  if (add_special_tokens) ids->insert(ids->end(), ids_behind().begin(), ids_behind().end());
}

// A stretch without raw added tokens: normalised, then searched for those that are looked for in normalised text.
void Tokenizer::append_text(std::string_view text, Lease& lease, std::vector<std::int32_t>* ids) const {
  EncodeScratch& s = lease.scratch();
  const std::string_view normal = parts_->normalizer.apply(text, &s.normal_text);
  s.normal.clear();
  parts_->normal_tokens.cut(normal, {0, static_cast<std::int64_t>(normal.size())}, &s.normal);
  for (const Stretch& stretch : s.normal) {
    if (stretch.token_id >= 0) {
      ids->push_back(stretch.token_id);
    } else {
      append_pieces(slice(normal, stretch.span), lease, ids);
    }
  }
}

void Tokenizer::append_pieces(std::string_view text, Lease& lease, std::vector<std::int32_t>* ids) const {
  EncodeScratch& s = lease.scratch();
  const std::string_view cut = parts_->pre_tokenizer.cut(text, s.pre_tokenize);
  for (const Span& span : s.pre_tokenize.pieces) {
    const std::string_view piece = slice(cut, span);
    std::span<const std::int32_t> known = s.cache.find(piece);
    if (known.empty()) {
      s.piece_ids.clear();
      parts_->bpe.encode(piece, parts_->vocabulary, s.bpe, &s.piece_ids);
      s.cache.put(piece, s.piece_ids);
      known = s.piece_ids;
    }
    ids->insert(ids->end(), known.begin(), known.end());
  }
}

std::vector<std::int32_t> Tokenizer::encode_prompt(std::string_view utf8) const {
  std::vector<std::int32_t> ids = encode(utf8, false);
  const std::vector<std::int32_t>& before = ids_before();
  const std::vector<std::int32_t>& behind = ids_behind();
  const auto n = [](const auto& list) { return static_cast<std::ptrdiff_t>(list.size()); };
  if (n(ids) < n(behind) || !std::equal(behind.begin(), behind.end(), ids.end() - n(behind))) {
    ids.insert(ids.end(), behind.begin(), behind.end());
  }
  if (n(ids) < n(before) || !std::equal(before.begin(), before.end(), ids.begin())) {
    ids.insert(ids.begin(), before.begin(), before.end());
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string text;
  LossyUtf8 utf8;
  for (const std::int32_t id : ids) {
    if (id < 0) fail(ErrorKind::data, "the token id {} is negative", id);
    if (id >= vocab_size() || (skip_special && is_special(id))) continue;
    utf8.push(bytes_of(id), &text);
  }
  utf8.finish(&text);
  return text;
}

std::int64_t Tokenizer::vocab_size() const {
  return parts_->vocabulary.size();
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  return parts_->vocabulary.find(token);
}

std::int32_t Tokenizer::require_id(std::string_view token, std::string_view setting) const {
  const std::optional<std::int32_t> id = id_of(token);
  if (!id) {
    fail(ErrorKind::config, "{} is \"{}\", which is no token of the tokenizer ({} tokens)", setting,
         printable(token), vocab_size());
  }
  return *id;
}

namespace {

std::int64_t checked(std::int64_t id, std::int64_t vocab_size) {
  PLANALTO_CHECK(id >= 0 && id < vocab_size, "token id {} of {}", id, vocab_size);
  return id;
}

}  // namespace

const std::string& Tokenizer::token_of(std::int32_t id) const {
  return parts_->vocabulary.spelling(checked(id, vocab_size()));
}
const std::string& Tokenizer::bytes_of(std::int32_t id) const {
  return parts_->vocabulary.bytes(checked(id, vocab_size()));
}
bool Tokenizer::is_special(std::int32_t id) const {
  return parts_->vocabulary.special(checked(id, vocab_size()));
}

const std::vector<std::int32_t>& Tokenizer::ids_before() const {
  return parts_->post_processor.before();
}
const std::vector<std::int32_t>& Tokenizer::ids_behind() const {
  return parts_->post_processor.behind();
}
std::uint64_t Tokenizer::hash() const {
  return parts_->hash;
}

}  // namespace planalto
