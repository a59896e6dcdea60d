// SPDX-License-Identifier: Apache-2.0
// inspect.h: what a path is, recognised from its content, how large, and what is wrong with it.
// Errors      io: the path cannot be looked at; everything that is wrong with the content becomes a problem instead
// Units       bytes
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace planalto {

enum class PathKind {
  safetensors,
  hf_folder,
  checkpoint,
  token_shard,
  tokenizer,
  model_config,
  json,
  jsonl,
  text,
  folder,
  unknown
};
const char* to_string(PathKind kind);  // "safetensors file", "Hugging Face model folder", ...

struct Inspection {
  std::string path;
  PathKind kind = PathKind::unknown;
  std::int64_t bytes = 0;             // of the file, or of all files of the folder
  JsonObject facts;                   // counts and properties, in the order in which they read well
  std::vector<std::string> problems;  // something is wrong
  std::vector<std::string> notices;   // something is worth knowing
};

struct InspectOptions {
  bool contents = true;  // read everything: checksums, ids, UTF-8; without it headers and sizes only
  bool tensors = false;  // list every tensor under "tensors"
};

Inspection inspect(const std::string& path, const InspectOptions& options = {});

// {"path", "kind", "bytes", facts..., "problems", "notices"}
JsonValue to_json(const Inspection& inspection);

}  // namespace planalto
