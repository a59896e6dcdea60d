// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/special_tokens.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace planalto {

namespace {

std::optional<std::int32_t> only_one_of(const std::vector<std::string_view>& names,
                                        const Tokenizer& tokenizer) {
  std::optional<std::int32_t> found;
  for (const std::string_view name : names) {
    const std::optional<std::int32_t> id = tokenizer.id_of(name);
    if (!id || !tokenizer.is_special(*id)) continue;
    if (found) return std::nullopt;
    found = id;
  }
  return found;
}

}  // namespace

SpecialTokens read_special_tokens(const std::string& tokenizer_config_path, const Tokenizer& tokenizer) {
  const JsonValue file = read_json_file(tokenizer_config_path);
  file.as_object(tokenizer_config_path);
  const auto where = [&](std::string_view field) {
    return fmt::format("{}: {}", tokenizer_config_path, field);
  };
  const auto token = [&](std::string_view field) -> std::optional<std::int32_t> {
    const JsonValue* value = file.find(field);
    if (value == nullptr || value->is_null()) return std::nullopt;
    const std::string& name = value->is_object() ? value->at("content", where(field)).as_string(where(field))
                                                 : value->as_string(where(field));
    const std::optional<std::int32_t> id = tokenizer.id_of(name);
    if (!id)
      fail(ErrorKind::data, "{} is \"{}\", which the tokenizer does not have", where(field), printable(name));
    return id;
  };
  const auto flag = [&](std::string_view field) {
    const JsonValue* value = file.find(field);
    return value != nullptr && !value->is_null() && value->as_bool(where(field));
  };
  return {token("bos_token"), token("eos_token"), token("pad_token"), flag("add_bos_token"),
          flag("add_eos_token")};
}

SpecialTokens guess_special_tokens(const Tokenizer& tokenizer) {
  SpecialTokens tokens;
  tokens.bos = only_one_of(
      {"<|begin_of_text|>", "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>", "<|startoftext|>", "<s>", "<bos>"},
      tokenizer);
  tokens.eos = only_one_of(
      {"<|endoftext|>", "<|end_of_text|>", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>", "</s>", "<eos>"},
      tokenizer);
  return tokens;
}

}  // namespace planalto
