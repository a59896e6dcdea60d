// SPDX-License-Identifier: Apache-2.0
// tiny_training.h: the model T of the cases (hidden 64, 2 layers, 8 experts of width 96, top 2, vocabulary 512), data for it in
// memory, and what tests look at in a trainer.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "train/trainer.h"

namespace planalto::testing {

// Documents of tokens in memory.
class MemoryTokens final : public TokenSource {
 public:
  explicit MemoryTokens(std::vector<std::vector<std::int32_t>> documents)
      : documents_(std::move(documents)) {}
  std::int64_t num_documents() const override { return static_cast<std::int64_t>(documents_.size()); }
  std::int64_t document_length(std::int64_t document) const override {
    return static_cast<std::int64_t>(documents_[static_cast<std::size_t>(document)].size());
  }
  void copy(std::int64_t document, std::int64_t first, std::int64_t n, std::int32_t* out) const override {
    if (n == 0) return;
    std::memcpy(out, documents_[static_cast<std::size_t>(document)].data() + first,
                static_cast<std::size_t>(n) * sizeof(std::int32_t));
  }

 private:
  std::vector<std::vector<std::int32_t>> documents_;
};

// Ids below 500, so that a test has a few for itself.
std::vector<std::int32_t> random_document(std::int64_t length, std::uint64_t seed);
MemoryTokens random_documents(const std::vector<std::int64_t>& lengths, std::uint64_t seed = 7);
// Of 1 to 100 tokens.
MemoryTokens random_lengths(std::int64_t num_documents, std::uint64_t seed = 7);

// family: "glm4_moe" (sigmoid router with correction bias, shared expert), "qwen3_moe" (softmax router), "deepseek_v3" (latent
// attention, expert groups). more: keys that replace or join those of T.
ModelConfig tiny_model(const std::string& family, const JsonObject& more = {});

struct TinyRun {
  std::int64_t seq_len = 64, micro_batch = 1, num_microbatches = 1;
  Precision precision = Precision::fp32;
  int threads = 1;
  std::int64_t steps = 5;
  bool shuffle = true, pack = true;
};
TrainerOptions tiny_options(const ModelConfig& model, const TinyRun& run);
inline ops::AuxLoss aux_loss(kernels::AuxLossKind kind, double coefficient) {
  return {.kind = kind,
          .coefficient = coefficient,
          .scale_index = kind == kernels::AuxLossKind::z ? ops::kZScale : ops::kAuxScale};
}

// Keeps what it is told; with reports off it asks for none and allocates nothing.
class Recorder final : public TrainerObserver {
 public:
  explicit Recorder(bool reports = true) : reports_(reports) {}
  bool wants_report(std::int64_t) override { return reports_; }
  void on_step(const StepReport& report) override { steps.push_back(report); }
  void on_eval(const EvalReport& report) override {
    if (reports_) evals.push_back(report);
  }
  std::vector<StepReport> steps;
  std::vector<EvalReport> evals;

 private:
  bool reports_;
};

// A trainer over random weights that has taken its steps.
struct Finished {
  Recorder recorder;
  Trainer trainer;
  Finished(const ModelConfig& model, const TrainerOptions& options, const TokenSource& data,
           const TokenSource* eval = nullptr)
      : trainer(model, options, data, eval, recorder) {
    trainer.start_from_random(0.05);
    trainer.run();
  }
};

// All bytes of masters, compute copies and moments, by name.
using Bytes = std::vector<unsigned char>;
std::vector<std::pair<std::string, Bytes>> training_state(const Trainer& trainer);
// The first buffer that differs, or "".
std::string first_difference(const Trainer& a, const Trainer& b);
std::vector<float> gradient_of(const Trainer& trainer, const std::string& parameter);
float* weight_of(const Trainer& trainer, const std::string& parameter);
// max |a - b| / max |b|
double relative_error(const std::vector<float>& a, const std::vector<float>& b);
// The worst of relative_error over all gradients, and where it is.
std::pair<double, std::string> worst_gradient_error(const Trainer& a, const Trainer& b);

}  // namespace planalto::testing
