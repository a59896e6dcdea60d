// SPDX-License-Identifier: Apache-2.0
// tiny_file.h: a tokenizer.json made by hand: byte b has the id b, then one id a word, in the order given; every part
// can be replaced by other JSON.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "formats/tokenizer/tokenizer.h"

namespace planalto::tests {

struct TinyToken {
  std::string content;
  bool special = true;
  bool normalized = false;
  bool lstrip = false;
  bool rstrip = false;
};

struct TinyFile {
  // Pairs in the spelling of the file ("\u0120" for a space); what they join to becomes a token unless it is one.
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<std::string> words;  // more tokens, which no merge reaches
  std::vector<TinyToken> added;    // numbered behind the vocabulary
  bool merges_as_strings = false;
  std::string normalizer = "null";
  std::string pre_tokenizer =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
  std::string post_processor = "null";
  std::string decoder =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
  std::string model_fields =
      R"("type": "BPE", "dropout": null, "unk_token": null)";  // before vocab and merges
  std::string first_fields = R"("version": "1.0", "truncation": null, "padding": null)";

  std::string json() const;
  Tokenizer load() const { return Tokenizer::from_text(json(), "tiny.json"); }
};

// ByteLevel with use_regex off behind the given components.
std::string sequence_of(const std::string& components);
std::string split_component(const std::string& regex, const std::string& behavior = "Isolated",
                            bool invert = false);

}  // namespace planalto::tests
