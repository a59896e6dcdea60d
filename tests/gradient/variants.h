// SPDX-License-Identifier: Apache-2.0
// variants.h: small models over the options that a config.json can combine, and what a gradient is taken at: weights, a batch,
// weights of the losses. Everything is off its neutral value: vectors are neither one nor zero, no two scales are equal.
#pragma once

#include <vector>

#include "gradient/double_model.h"
#include "model/parameter_set.h"
#include "train/batcher.h"
#include "train/weights.h"

namespace planalto {

struct Variant {
  const char* name;
  const char* keys;  // of config.json
  std::vector<ops::AuxLoss> aux;
  bool recompute = false;
  ModelConfig config() const;
};
const std::vector<Variant>& variants();

// Room for more tokens than the batch has: the rows behind stay poisoned.
constexpr std::int64_t kTokens = 24, kCapacity = 27;

// Three documents, one of a single token; a few ignored labels.
double_model::Batch sample_batch(const ModelConfig& config);
// Writes it as the inputs of a program.
void write_batch(const double_model::Batch& batch, const MicrobatchView& out);
// What the mean of the main loss (0) and of the loss of each MTP depth counts for.
inline double loss_weight(std::int64_t i) {
  return i == 0 ? 1.0 : 0.6 - 0.1 * static_cast<double>(i);
}
std::vector<double> aux_scales(const ModelConfig& config);

// Fills the weights of a run and returns the model of the same weights in double.
double_model::Model sample_model(const Variant& v, const ModelConfig& config, const ParameterSet& parameters,
                                 const BufferTable& table, const AddressOf& address);

}  // namespace planalto
