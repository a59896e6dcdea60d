// SPDX-License-Identifier: Apache-2.0
// evaluator.h: the loss of a model on text: mean over all labels, perplexity, bits per byte.
// Numerics    one sum over labels in double; never a mean of batch means
// Units       nats a label; bytes of the text
#pragma once

#include "infer/inference_programs.h"
#include "infer/loaded_model.h"
#include "runtime/launch.h"
#include "train/batcher.h"

namespace planalto {

struct TextLoss {
  double loss_sum = 0.0;  // nats
  std::int64_t labels = 0, tokens = 0;

  double loss() const { return labels == 0 ? 0.0 : loss_sum / static_cast<double>(labels); }
};

struct EvaluatorOptions {
  Precision precision = Precision::fp32;
  std::int64_t seq_len = 0, rows = 1;
  Target target;
};

class Evaluator {
 public:
  Evaluator(const LoadedModel& model, const EvaluatorOptions& options);
  TextLoss run(const TokenSource& source);
  const MemoryPlan& plan() const { return launch_.plan(); }

 private:
  EvaluatorOptions options_;
  EvalPrograms programs_;
  Launch launch_;
};

}  // namespace planalto
