// SPDX-License-Identifier: Apache-2.0
// weights.h: fills the parameters of a run: at random from a seed, or from a Hugging Face folder; and writes such a folder.
// Invariants  every parameter is filled by exactly one layout of its tensors; a tensor that fills nothing stops the load, but for
//             those that may be passed over (parameters.h)
// Numerics    random: normal(0, initializer_range) from (seed, name, element), so that neither order nor threads matter;
//             masters take the file's values in fp32, compute copies are rounded from them (packed ones by the program `refresh`)
// Errors      data: missing, left-over or misshaped tensors, all named together
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "formats/hf_folder.h"
#include "model/parameter_set.h"

namespace planalto {

// The address of a persistent buffer of the run.
using AddressOf = std::function<void*(Buffer)>;

void initialize_weights(const ParameterSet& parameters, const BufferTable& table, const AddressOf& address,
                        double initializer_range, std::uint64_t seed);
// Moments to zero.
void reset_moments(const ParameterSet& parameters, const BufferTable& table, const AddressOf& address);

struct LoadReport {
  std::vector<std::string> notices;  // tensors passed over
};
LoadReport load_hf_weights(const HfFolder& folder, const ModelConfig& config, const ParameterSet& parameters,
                           const BufferTable& table, const AddressOf& address);
// The model with as many MTP modules as both the config names and the folder holds weights for.
ModelConfig model_for_weights(const ModelConfig& config, const HfFolder& folder);

// The tensors that an export writes, in order, and a way to stream them.
std::vector<TensorSpec> export_tensors(const ParameterSet& parameters, FileDType dtype);
// Calls write(name, values) for each tensor of export_tensors, from the masters.
void stream_export(const ParameterSet& parameters, const AddressOf& address,
                   const std::function<void(const std::string&, std::span<const float>)>& write);

}  // namespace planalto
