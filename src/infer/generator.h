// SPDX-License-Identifier: Apache-2.0
// generator.h: one sequence, token by token: feeds tokens through prefill and decode, keeps the cache, gives the next logits.
// Invariants  everything is planned and placed at construction; feeding allocates nothing
// Errors      data: more tokens than max_len, an id outside the vocabulary
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "infer/inference_programs.h"
#include "runtime/launch.h"
#include "train/weights.h"

namespace planalto {

class Generator {
 public:
  // Prompts are fed `chunk` tokens at a time.
  Generator(const ModelConfig& config, Precision precision, std::int64_t max_len, const Target& target,
            std::int64_t chunk = 128);

  const ParameterSet& parameters() const { return programs_.parameters; }
  AddressOf address_of() const { return launch_.address_of(); }
  const BufferTable& table() const { return programs_.table; }
  const MemoryPlan& plan() const { return launch_.plan(); }
  std::int64_t length() const { return length_; }

  // Appends these tokens; the logits [V] of what follows the last of them, valid until the next call.
  std::span<const float> feed(std::span<const std::int32_t> tokens);
  void reset() { length_ = 0; }

 private:
  void feed_chunk(std::span<const std::int32_t> tokens);

  GeneratePrograms programs_;
  Launch launch_;
  std::int64_t length_ = 0;
};

}  // namespace planalto
