// SPDX-License-Identifier: Apache-2.0
// verify_case.h: holds a model case of reference vectors against the very programs and kernels that train.
// Shapes      a folder as tests/golden/README.md describes: config.json, model.safetensors, vectors.safetensors, generate.safetensors
// Numerics    fp32; tolerances are those of that README, section 6
// Errors      data: a file of the case is missing or not what it should be
#pragma once

#include <string>
#include <vector>

#include "base/target.h"
#include "verify/compare.h"

namespace planalto {

struct VerifyOptions {
  std::string config_file = "config.json";
  bool recompute = false;
  Target target;
};

std::vector<VerifyRow> verify_case(const std::string& folder, const VerifyOptions& options);
// True when the folder holds such a case.
bool is_model_case(const std::string& folder);

}  // namespace planalto
