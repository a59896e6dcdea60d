// SPDX-License-Identifier: Apache-2.0
// loaded_model.h: a model folder opened for use: its config, weights and tokenizer files.
// Errors      data: what is missing or wrong in the folder
#pragma once

#include <memory>
#include <string>

#include "formats/tokenizer/tokenizer.h"
#include "train/weights.h"

namespace planalto {

struct LoadedModel {
  ModelConfig config;  // MTP modules dropped: generation and evaluation use the main model
  std::shared_ptr<const HfFolder> folder;

  // A Hugging Face folder or a checkpoint, which is one.
  static LoadedModel open(const std::string& path);
  Tokenizer tokenizer() const;
  void load_into(const ParameterSet& parameters, const BufferTable& table, const AddressOf& address) const;
  bool is_eos(std::int32_t id) const;
};

// "fp32" or "bf16"
Precision parse_precision(const std::string& name);

}  // namespace planalto
