// SPDX-License-Identifier: Apache-2.0
// tiny_step.h: the training step that whole-step figures are of, glm4_moe-shaped: 4 layers, all MoE, D 512, 8 query and 2 KV heads of
//              64, 32 experts top-4 of width 256, 1 shared, V 32,000, 8 x 512 random tokens, AdamW.
// Memory      owns the trainer and its data; the observer outlives it
#pragma once

#include <memory>

#include "train/trainer.h"

namespace planalto::bench {

TrainerOptions tiny_step_options(const Target& target, Precision precision, std::int64_t steps);

class TinyStep {
 public:
  TinyStep(const TrainerOptions& options, TrainerObserver& observer);  // with random weights
  ~TinyStep();
  Trainer& trainer() { return *trainer_; }
  const ModelConfig& model() const { return model_; }

 private:
  ModelConfig model_;
  std::unique_ptr<TokenSource> tokens_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace planalto::bench
