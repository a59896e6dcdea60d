// SPDX-License-Identifier: Apache-2.0
// run_config.h: everything a run is told, as plain structs, read from strict TOML and from --set section.key=value.
// Invariants  one table (config_keys.cpp) gives each key its name, default, legal values and help; reading, printing and
//             docs/config.md come from it. What load_run_config returns is within range and free of contradictions.
// Errors      config: every mistake of the file together, with line, value, what is legal, nearest key
// Units       in the names: _steps are optimizer updates, _tokens tokens, budgets bytes
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/parameter_set.h"
#include "train/schedule.h"

namespace planalto {

enum class ModelInit { random, weights };
enum class DataFormat { text, jsonl, tokens };
enum class BadRecord { stop, skip };
enum class Packing { documents, none };
enum class NonFinite { stop, skip };
enum class AuxLossChoice { none, sequence, microbatch, joined };
enum class Resume { none, automatic };
enum class FailedSave { go_on, stop };
enum class RouterDebug { none, balanced, all_to_one, replay, record };

struct ByteSize {
  std::int64_t bytes = 0;  // 0: automatic
  bool automatic() const { return bytes == 0; }
};

struct ModelSection {
  std::string hf;  // folder or config.json; empty: the keys stand in the file
  JsonValue keys;  // an object: the Hugging Face keys of [model], when hf is empty
  ModelInit init = ModelInit::random;
  std::int64_t seed = 1;
};
struct DataSection {
  std::vector<std::string> train, eval;
  double eval_fraction = 0.0;
  DataFormat format = DataFormat::text;
  std::string text_field = "text", document_separator;
  bool add_bos = false, add_eos = true, shuffle = true;
  std::string cache_dir;
  BadRecord on_bad_record = BadRecord::stop;
};
struct TrainSection {
  std::int64_t seq_len = 512, micro_batch = 8, global_batch = 8, steps = 1000;
  Precision precision = Precision::bf16;
  bool recompute = false;
  std::int64_t seed = 1;
  Packing packing = Packing::documents;
  std::int64_t eval_every = 0, eval_tokens = 0, log_every = 10;
  NonFinite on_nonfinite = NonFinite::stop;
  std::int64_t max_bad_steps = 10, threads = 0;
  double mtp_lambda = 0.3;
};
struct OptimizerSection {
  double learning_rate = 3e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  std::vector<std::string> decay_exempt = {"*norm", "*.bias"};
  double clip_norm = 1.0;
  ScheduleKind schedule = ScheduleKind::cosine;
  std::int64_t warmup_steps = 0, decay_steps = 0;
  double min_lr_ratio = 0.1;
};
struct RouterSection {
  double bias_update_rate = 0.001;
  AuxLossChoice aux_loss = AuxLossChoice::none;
  double aux_coef = 0.0, z_coef = 0.0;
};
struct MemorySection {
  ByteSize device_budget, host_budget;
  std::int64_t loss_tile_rows = 0;
  bool packed_weights = true;
};
struct CheckpointSection {
  std::string dir;  // empty: "checkpoints" in the output folder
  std::int64_t every = 0, keep = 2;
  Resume resume = Resume::none;
  FailedSave on_failed_save = FailedSave::go_on;
};
struct OutputSection {
  std::string dir = "runs/default", metrics = "metrics.jsonl";
};
struct DebugSection {
  std::string router = "none";
  bool poison = false, measure_memory = false;

  RouterDebug router_kind() const;
  std::string router_file() const;  // of replay and record
};
struct ParallelSection {
  std::int64_t ranks = 1, ep = 1;
};

struct RunConfig {
  std::string source;  // the file
  ModelSection model;
  std::string tokenizer_path;
  DataSection data;
  TrainSection train;
  OptimizerSection optimizer;
  RouterSection router;
  MemorySection memory;
  CheckpointSection checkpoint;
  OutputSection output;
  DebugSection debug;
  ParallelSection parallel;
  // "section.key" -> "file:line" or "--set"; keys that are not here have their default.
  std::map<std::string, std::string> origins;

  bool given(const std::string& key) const { return origins.contains(key); }
  std::int64_t microbatches() const { return train.global_batch / (train.micro_batch * parallel.ranks); }
  Schedule schedule() const;
  std::string checkpoint_dir() const;
  std::string metrics_path() const;
  // The model that [model] describes, read from its file or its keys; with what the file cannot know checked against the run.
  ModelConfig model_config() const;
};

struct RunConfigNeeds {
  bool data =
      true;  // data.train and, for text, tokenizer.path must be given (training does, planning does not)
};
// `overrides` are "section.key=value"; strings need no quotes there.
RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides = {},
                          const RunConfigNeeds& needs = {});
RunConfig parse_run_config(const std::string& text, const std::string& source,
                           const std::vector<std::string>& overrides = {}, const RunConfigNeeds& needs = {});

// TOML that gives the same config again, each line with where its value came from.
std::string print_config(const RunConfig& config);
// docs/config.md.
std::string config_reference();

// Empty, or what is wrong with these sizes: global_batch must be a multiple of micro_batch x ranks.
std::string batch_mistake(std::int64_t global_batch, std::int64_t micro_batch, std::int64_t ranks);
// "*" stands for any characters.
bool matches_pattern(const std::string& name, const std::string& pattern);
bool decays(const RunConfig& config, const std::string& parameter);
// "2GiB", "512 MiB", "1.5GB", "4096"; false when it is none. auto gives 0.
bool parse_byte_size(const std::string& text, ByteSize& out);
std::string to_string(ByteSize size);

}  // namespace planalto
