// SPDX-License-Identifier: Apache-2.0
// normalizer.h: what tokenizer.json does to text before it is cut: nothing, or Unicode normal form C.
// Numerics    time is O(n log n) in the longest run of combining marks
// Threads     immutable
// Errors      data: a normalizer other than NFC and Sequence
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace planalto::tokenizer {

class Normalizer {
 public:
  Normalizer() = default;
  // `value` may be null.
  Normalizer(const JsonValue& value, const std::string& where);

  // `text` itself when nothing changes, else the normal form in `buffer`. Valid UTF-8 in.
  std::string_view apply(std::string_view text, std::string* buffer) const;

 private:
  bool nfc_ = false;
};

}  // namespace planalto::tokenizer
