// SPDX-License-Identifier: Apache-2.0
// verify_path.h: finds out from its content what reference vectors a path holds, and runs them.
// Kinds       model case (folder), rope table (JSON list), router cases (safetensors), tokenizer vectors (JSONL),
//             MXFP8 blocks (JSONL), its element tables (by name), a folder of these
// Errors      config: a tokenizer file is needed and not given; data: the path is none of these
#pragma once

#include <string>
#include <vector>

#include "verify/verify_case.h"

namespace planalto {

struct VerifyPathOptions {
  VerifyOptions model;
  std::string tokenizer;  // tokenizer.json for tokenizer vectors
};

std::vector<VerifyRow> verify_path(const std::string& path, const VerifyPathOptions& options);

// rope.json: frequencies, cos/sin scale and softmax scale of each configuration.
std::vector<VerifyRow> verify_rope(const std::string& path);
// routing.safetensors: ids and weights of the router alone; each tag's config is in the file's metadata.
std::vector<VerifyRow> verify_routing(const std::string& path, const Target& target);

}  // namespace planalto
