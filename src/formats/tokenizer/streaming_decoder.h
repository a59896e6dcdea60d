// SPDX-License-Identifier: Apache-2.0
// streaming_decoder.h: ids one at a time into text that may be printed at once.
// Invariants  what push and finish return, joined, is what Tokenizer::decode gives; each part is valid UTF-8
// Memory      holds at most three bytes: a character that later ids may complete
// Threads     one thread; the tokenizer must outlive it
#pragma once

#include <cstdint>
#include <string>

#include "formats/tokenizer/code_points.h"
#include "formats/tokenizer/tokenizer.h"

namespace planalto {

class StreamingDecoder {
 public:
  StreamingDecoder(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // What can be printed now: often nothing in the middle of a character.
  std::string push(std::int32_t id);
  // The end: U+FFFD when a character was left unfinished. The decoder may then be used for another text.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  tokenizer::LossyUtf8 utf8_;
};

}  // namespace planalto
