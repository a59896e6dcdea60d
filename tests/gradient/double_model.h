// SPDX-License-Identifier: Apache-2.0
// double_model.h: the forward pass of a whole language model in double, scalar and written to be read: what gradients are held
// against. It shares the configuration and the names of the weights with the engine, and no arithmetic.
// Shapes      x, y [T, D]; weights as in model/parameters.h, [out, in] row by row
// Invariants  experts are chosen where `choice` has none for a block, and held afterwards: a difference never crosses a choice
// Source      the papers and model files that the headers of src/model name
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/config.h"
#include "ops/routing.h"

namespace planalto::double_model {

struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> values;

  Matrix(std::int64_t r, std::int64_t c) : rows(r), cols(c), values(static_cast<std::size_t>(r * c), 0.0) {}
  double* row(std::int64_t r) { return values.data() + r * cols; }
  const double* row(std::int64_t r) const { return values.data() + r * cols; }
};

// Packed documents: document d owns rows [offsets[d], offsets[d + 1]). A label below 0 is not trained.
struct Batch {
  std::vector<std::int32_t> ids, labels, positions, offsets;
  std::int64_t num_tokens() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t num_trained() const {
    return std::count_if(labels.begin(), labels.end(), [](std::int32_t l) { return l >= 0; });
  }
};

// What the router of one block saw and chose: auxiliary losses look at it after the pass.
struct Routing {
  Matrix logits, scores;              // [T, E]
  std::vector<std::int32_t> ids;      // [T, K] ascending
  std::vector<std::int32_t> offsets;  // of the documents of its batch
};

struct Model {
  ModelConfig config;
  std::vector<ops::AuxLoss> aux;
  std::vector<double> aux_scale;  // [1 + MTP depths, ops::kNumScales]
  std::map<std::string, std::vector<double>> weights;
  std::map<std::int64_t, std::vector<std::int32_t>> choice;  // of each MoE block
  std::map<std::int64_t, Routing> routing;                   // of the last pass

  const std::vector<double>& weight(const std::string& name) const { return weights.at(name); }
  bool has(const std::string& name) const { return weights.contains(name); }
};

// One function a module.
Matrix embedding(const Model& m, const Batch& batch);
// x W^T, and the bias when there is one of that name.
Matrix linear(const Model& m, const Matrix& x, const std::string& name);
// Every run of x as wide as the weight is normalised with it.
Matrix norm(const Model& m, const Matrix& x, const std::string& name, double eps);
Matrix mlp(const Model& m, const Matrix& x, const std::string& prefix);
Matrix gqa(const Model& m, const Batch& batch, const Matrix& x, std::int64_t block);
Matrix mla(const Model& m, const Batch& batch, const Matrix& x, std::int64_t block);
Matrix attention(const Model& m, const Batch& batch, const Matrix& x, std::int64_t block);
Matrix moe(Model& m, const Batch& batch, const Matrix& x, std::int64_t block);
Matrix block(Model& m, const Batch& batch, Matrix x, std::int64_t index);
// The batch of the next MTP depth: rows that have a next row in their document, with its id and label.
Batch shifted(const Batch& batch);
// Hidden states of an MTP depth from those of the depth before, whose batch is `before`.
Matrix mtp(Model& m, const Batch& before, const Matrix& h, std::int64_t depth);

// Sum of the cross-entropies of the trained labels.
double cross_entropy(const Model& m, const Batch& batch, const Matrix& h);
// An auxiliary loss over the blocks of the last pass, coefficient and scales included.
double aux_loss(const Model& m, const ops::AuxLoss& aux);
// A pass through everything: main loss, one of each MTP depth, then the auxiliary losses.
std::vector<double> losses(Model& m, const Batch& batch);

}  // namespace planalto::double_model
