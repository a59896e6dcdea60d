// SPDX-License-Identifier: Apache-2.0
// tokenizer.h: text to token ids and back, by the tokenizer.json of byte-level BPE families (GPT-2, Llama 3, Qwen,
// DeepSeek, gpt-oss).
// Invariants  ids equal those of the Hugging Face library; encode's pieces, joined, are the (normalised) text
// Memory      bounded by a multiple of the file's size; each thread inside encode holds a scratch of a few MB, kept
// Threads     everything but load and moves may be called from many threads
// Errors      io: the file; data: not a tokenizer.json, a component or option that is not supported (named), text that
//             is not UTF-8
// Units       ids are int32; text is UTF-8
// Reference   tests/golden/README.md, section 10
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace planalto {

class Tokenizer {
 public:
  static Tokenizer load(const std::string& path);
  // `source` names the text in messages.
  static Tokenizer from_text(std::string_view json, const std::string& source);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // add_special_tokens: with what the file's post-processor puts around a text (often nothing). Added tokens spelled
  // in the text become their ids either way.
  std::vector<std::int32_t> encode(std::string_view utf8, bool add_special_tokens) const;
  void append_encoded(std::string_view utf8, bool add_special_tokens, std::vector<std::int32_t>* ids) const;
  // For a prompt that a chat template has written: as with special tokens, but none is put where the text already
  // begins (or ends) with it, so that there is one BOS whoever wrote it.
  std::vector<std::int32_t> encode_prompt(std::string_view utf8) const;

  // Bytes that are not UTF-8 give one U+FFFD for each maximal part. An id behind the vocabulary (a padded row of the
  // embedding) gives nothing; a negative one is refused.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  // Ids are 0..vocab_size()-1; a model's embedding may have more rows.
  std::int64_t vocab_size() const;
  std::optional<std::int32_t> id_of(std::string_view token) const;
  // As id_of, refusing a token that is not there; `setting` is named in the message.
  std::int32_t require_id(std::string_view token, std::string_view setting) const;
  // As the file spells it; the bytes that it stands for; left out by skip_special.
  const std::string& token_of(std::int32_t id) const;
  const std::string& bytes_of(std::int32_t id) const;
  bool is_special(std::int32_t id) const;

  // What add_special_tokens puts before and behind a text.
  const std::vector<std::int32_t>& ids_before() const;
  const std::vector<std::int32_t>& ids_behind() const;

  // XXH3 of the file's bytes: token files carry it, so that another tokenizer's are refused.
  std::uint64_t hash() const;

 private:
  struct Parts;
  class Lease;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  void append_text(std::string_view text, Lease& lease, std::vector<std::int32_t>* ids) const;
  void append_pieces(std::string_view text, Lease& lease, std::vector<std::int32_t>* ids) const;

  std::unique_ptr<Parts> parts_;
};

}  // namespace planalto
