// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tiny_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "formats/tokenizer/byte_alphabet.h"

namespace planalto::tests {

std::string TinyFile::json() const {
  std::vector<std::string> vocab;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocab.push_back(tokenizer::spell_bytes(std::string_view(&c, 1)));
  }
  std::string merge_list;
  for (const auto& [left, right] : merges) {
    if (std::ranges::find(vocab, left + right) == vocab.end()) vocab.push_back(left + right);
    merge_list += merge_list.empty() ? "" : ", ";
    merge_list += merges_as_strings ? quote_json(left + " " + right)
                                    : fmt::format("[{}, {}]", quote_json(left), quote_json(right));
  }
  vocab.insert(vocab.end(), words.begin(), words.end());
  std::string vocab_list;
  for (std::size_t id = 0; id < vocab.size(); ++id) {
    vocab_list += fmt::format("{}{}: {}", id == 0 ? "" : ", ", quote_json(vocab[id]), id);
  }
  std::string added_list;
  std::size_t next = vocab.size();
  for (const TinyToken& token : added) {
    const auto known = std::ranges::find(vocab, token.content);
    const auto id = known != vocab.end() ? static_cast<std::size_t>(known - vocab.begin()) : next++;
    added_list += fmt::format(
        R"({}{{"id": {}, "content": {}, "single_word": false, "lstrip": {}, "rstrip": {}, "normalized": {}, "special": {}}})",
        added_list.empty() ? "" : ", ", id, quote_json(token.content), token.lstrip, token.rstrip,
        token.normalized, token.special);
  }
  return fmt::format(
      R"({{{}, "added_tokens": [{}], "normalizer": {}, "pre_tokenizer": {}, "post_processor": {}, "decoder": {}, )"
      R"("model": {{{}, "vocab": {{{}}}, "merges": [{}]}}}})",
      first_fields, added_list, normalizer, pre_tokenizer, post_processor, decoder, model_fields, vocab_list,
      merge_list);
}

std::string sequence_of(const std::string& components) {
  return fmt::format(
      R"({{"type": "Sequence", "pretokenizers": [{}{}{{"type": "ByteLevel", "add_prefix_space": false, )"
      R"("trim_offsets": true, "use_regex": false}}]}})",
      components, components.empty() ? "" : ", ");
}

std::string split_component(const std::string& regex, const std::string& behavior, bool invert) {
  return fmt::format(R"({{"type": "Split", "pattern": {{"Regex": {}}}, "behavior": "{}", "invert": {}}})",
                     quote_json(regex), behavior, invert);
}

}  // namespace planalto::tests
