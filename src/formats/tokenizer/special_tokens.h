// SPDX-License-Identifier: Apache-2.0
// special_tokens.h: which tokens begin and end a document. tokenizer.json does not say it: tokenizer_config.json beside
// it does, or the user, or the name of the token.
// Invariants  pad may be the same id as eos: padding must be known by its place, never by its id
// Errors      io: the file; data: no such object, or a token that the tokenizer does not have
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "formats/tokenizer/tokenizer.h"

namespace planalto {

struct SpecialTokens {
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> eos;
  std::optional<std::int32_t> pad;
  // What transformers puts around a text besides the post-processor of tokenizer.json (DeepSeek's BOS comes so).
  bool add_bos = false;
  bool add_eos = false;
};

// From bos_token, eos_token, pad_token (a string, an object with content, or null), add_bos_token and add_eos_token of
// a tokenizer_config.json; its other fields are not looked at.
SpecialTokens read_special_tokens(const std::string& tokenizer_config_path, const Tokenizer& tokenizer);

// bos and eos by the names that the known families give them; nothing where none or more than one is there.
SpecialTokens guess_special_tokens(const Tokenizer& tokenizer);

}  // namespace planalto
