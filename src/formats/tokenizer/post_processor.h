// SPDX-License-Identifier: Apache-2.0
// post_processor.h: the special tokens that the file itself puts around a text.
// Threads     immutable
// Errors      data: a component other than null, ByteLevel, TemplateProcessing, Sequence; a template that does not hold
//             the text exactly once or names an id outside the vocabulary
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/tokenizer/component.h"
#include "formats/tokenizer/vocabulary.h"

namespace planalto::tokenizer {

class PostProcessor {
 public:
  // `value` may be null.
  PostProcessor(const JsonValue& value, const std::string& where, const Vocabulary& vocabulary);

  const std::vector<std::int32_t>& before() const { return before_; }
  const std::vector<std::int32_t>& behind() const { return behind_; }

 private:
  void add_template(const Component& component, const Vocabulary& vocabulary);

  std::vector<std::int32_t> before_;
  std::vector<std::int32_t> behind_;
};

// The only decoder that is supported joins the bytes of the tokens: refuses every other one by name.
void check_decoder(const JsonValue& value, const std::string& where);

}  // namespace planalto::tokenizer
