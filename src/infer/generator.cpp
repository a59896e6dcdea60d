// SPDX-License-Identifier: Apache-2.0
#include "infer/generator.h"

#include <algorithm>

#include "base/error.h"
#include "model/rope_table.h"

namespace planalto {

Generator::Generator(const ModelConfig& config, Precision precision, std::int64_t max_len,
                     const Target& target, std::int64_t chunk)
    : programs_(config, precision, max_len, std::min(chunk, max_len), target),
      launch_(programs_.table, {&programs_.prefill, &programs_.decode}, {.target = target}) {
  fill_rope_table(config.attention.rope, max_len, launch_.data<float>(programs_.buffers.rope_table));
}

std::span<const float> Generator::feed(std::span<const std::int32_t> tokens) {
  PLANALTO_CHECK(!tokens.empty(), "no token to feed");
  if (length_ + static_cast<std::int64_t>(tokens.size()) > programs_.max_len) {
    fail(ErrorKind::data, "{} tokens behind {} exceed the planned length of {}", tokens.size(), length_,
         programs_.max_len);
  }
  for (const std::int32_t id : tokens) {
    if (id < 0 || id >= programs_.config.vocab_size) {
      fail(ErrorKind::data, "token id {} is outside the vocabulary of {}", id, programs_.config.vocab_size);
    }
  }
  for (std::size_t at = 0; at < tokens.size(); at += static_cast<std::size_t>(programs_.chunk)) {
    feed_chunk(tokens.subspan(at, std::min(tokens.size() - at, static_cast<std::size_t>(programs_.chunk))));
  }
  return {launch_.data<float>(programs_.buffers.logits),
          static_cast<std::size_t>(programs_.config.vocab_size)};
}

void Generator::feed_chunk(std::span<const std::int32_t> tokens) {
  const GenerateBuffers& s = programs_.buffers;
  const auto n = static_cast<std::int64_t>(tokens.size());
  for (std::int64_t i = 0; i < n; ++i) {
    launch_.data<std::int32_t>(s.ids)[i] = tokens[static_cast<std::size_t>(i)];
    launch_.data<std::int32_t>(s.positions)[i] = static_cast<std::int32_t>(length_ + i);
  }
  launch_.data<std::int32_t>(s.doc_offsets)[0] = 0;
  launch_.data<std::int32_t>(s.doc_offsets)[1] = static_cast<std::int32_t>(n);
  launch_.data<std::int64_t>(s.counts)[ops::kNumTokens] = n;
  launch_.data<std::int64_t>(s.counts)[ops::kNumDocuments] = 1;
  launch_.data<std::int64_t>(s.length)[0] = length_;
  launch_.data<std::int64_t>(s.length)[1] = length_ + n;
  launch_.data<std::int32_t>(s.kv_offsets)[0] = 0;
  launch_.data<std::int32_t>(s.kv_offsets)[1] = static_cast<std::int32_t>(length_ + n);
  launch_.data<std::int32_t>(s.last_row)[0] = static_cast<std::int32_t>(n - 1);
  launch_.run(n == 1 ? programs_.decode : programs_.prefill);
  length_ += n;
}

}  // namespace planalto
