// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/streaming_decoder.h"

#include "base/error.h"

namespace planalto {

std::string StreamingDecoder::push(std::int32_t id) {
  if (id < 0) fail(ErrorKind::data, "the token id {} is negative", id);
  std::string text;
  if (id >= tokenizer_->vocab_size() || (skip_special_ && tokenizer_->is_special(id))) return text;
  utf8_.push(tokenizer_->bytes_of(id), &text);
  return text;
}

std::string StreamingDecoder::finish() {
  std::string text;
  utf8_.finish(&text);
  return text;
}

}  // namespace planalto
