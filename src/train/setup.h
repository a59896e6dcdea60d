// SPDX-License-Identifier: Apache-2.0
// setup.h: from a run config to what a trainer needs: model, tokenizer, data, options; checked before anything is allocated.
// Errors      config, data: as of the parts; model and tokenizer that do not fit each other
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/tokenizer/tokenizer.h"
#include "train/data_source.h"
#include "train/run_config.h"
#include "train/run_plan.h"
#include "train/trainer.h"

namespace planalto {

struct RunSetup {
  RunConfig config;
  ModelConfig model;
  TrainerOptions options;
  std::string config_text;  // of config.json in checkpoints and exports
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ShardSource> train, eval;  // eval may be null
  DataSummary data;                          // of train
  std::vector<std::string> notices;
};

// Model, options and target; no data is read.
RunSetup setup_model(const RunConfig& config, const Target& target);
// The tokenizer and the shards, tokenised when they are not in the cache.
void setup_data(RunSetup& setup);

StepOptions step_options(const RunConfig& config, const ModelConfig& model);
PlanRequest plan_request(const RunSetup& setup);

}  // namespace planalto
