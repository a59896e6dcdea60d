// SPDX-License-Identifier: Apache-2.0
#include "infer/loaded_model.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/manifest.h"

namespace planalto {

LoadedModel LoadedModel::open(const std::string& path) {
  if (!is_folder(path))
    fail(ErrorKind::data, "{} is not a model folder (config.json, model.safetensors, tokenizer.json)", path);
  verify_model_files(path);
  LoadedModel m;
  m.folder = std::make_shared<const HfFolder>(HfFolder::open(path));
  m.config = with_mtp(read_model_config(read_json_file(m.folder->config_path()), m.folder->config_path()), 0);
  return m;
}

Tokenizer LoadedModel::tokenizer() const {
  const std::string path = folder->file("tokenizer.json");
  if (!path_exists(path)) fail(ErrorKind::data, "{} has no tokenizer.json", folder->path());
  return Tokenizer::load(path);
}

void LoadedModel::load_into(const ParameterSet& parameters, const BufferTable& table,
                            const AddressOf& address) const {
  load_hf_weights(*folder, config, parameters, table, address);
}

bool LoadedModel::is_eos(std::int32_t id) const {
  return std::find(config.eos_token_ids.begin(), config.eos_token_ids.end(), id) !=
         config.eos_token_ids.end();
}

Precision parse_precision(const std::string& name) {
  if (name == "fp32") return Precision::fp32;
  if (name == "bf16") return Precision::bf16;
  fail(ErrorKind::config, "precision \"{}\" is unknown; legal: fp32, bf16", name);
}

}  // namespace planalto
