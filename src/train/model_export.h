// SPDX-License-Identifier: Apache-2.0
// model_export.h: a checkpoint or model folder written as a Hugging Face folder, with weights of another dtype or experts in
// another layout when asked for.
// Numerics    a tensor that keeps its dtype keeps its bits, in whichever layout
// Memory      weights are mapped and go through in pieces
// Errors      data: experts that are not of this model, or of a dtype that no layout can change (tensor named); io
#pragma once

#include <cstdint>
#include <string>

namespace planalto {

enum class ExportDType { keep, bf16, fp32 };
// per_expert: a gate_proj, an up_proj and a down_proj for each expert; fused: one gate_up_proj [E, 2F, D] and one down_proj
// [E, D, F] for each layer.
enum class ExpertLayout { keep, per_expert, fused };
struct ExportOptions {
  ExportDType dtype = ExportDType::keep;  // a router's correction bias keeps its own
  ExpertLayout layout = ExpertLayout::keep;
  bool replace = false;  // a folder that is there
};

// Returns the number of tensors.
std::int64_t export_model(const std::string& from, const std::string& to, const ExportOptions& options);

}  // namespace planalto
