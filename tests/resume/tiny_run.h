// SPDX-License-Identifier: Apache-2.0
// tiny_run.h: a run of a golden model on made-up documents, small enough to be repeated many times.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "kernels/isa.h"
#include "train/trainer.h"

namespace planalto::testing {

inline std::string golden(const std::string& name) {
  return std::string(PLANALTO_GOLDEN) + "/" + name;
}

inline std::string read_all(const std::string& path) {
  return read_text_file(path, std::int64_t{1} << 30);
}

// 40 documents of 1 to 40 tokens.
class RandomDocuments final : public TokenSource {
 public:
  explicit RandomDocuments(std::int64_t vocab_size, std::uint64_t seed = 3)
      : random_(seed), vocab_size_(vocab_size) {}
  std::int64_t num_documents() const override { return 40; }
  std::int64_t document_length(std::int64_t d) const override {
    return 1 + static_cast<std::int64_t>(random_.bits(static_cast<std::uint64_t>(d)) % 40);
  }
  void copy(std::int64_t d, std::int64_t first, std::int64_t n, std::int32_t* out) const override {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::uint64_t>(1000 * (d + 1) + first + i);
      out[i] = static_cast<std::int32_t>(random_.bits(at) % static_cast<std::uint64_t>(vocab_size_));
    }
  }

 private:
  Random random_;
  std::int64_t vocab_size_;
};

inline TrainerOptions tiny_options(Precision precision, std::int64_t steps,
                                   const std::string& checkpoint_dir) {
  TrainerOptions o;
  o.seq_len = 16;
  o.micro_batch = 2;
  o.step.precision = precision;
  o.step.max_tokens = 32;
  o.step.num_microbatches = 3;
  o.step.max_positions = 16;
  o.step.loss_tile_rows = 16;
  o.step.recompute = true;
  o.step.aux_losses = {
      {.kind = kernels::AuxLossKind::sequence, .coefficient = 0.01, .scale_index = ops::kAuxScale}};
  o.step.router_bias_rate = 0.01F;
  o.step.clip_norm = 1.0;
  o.step.weight_decay = 0.1F;
  o.schedule = {.kind = ScheduleKind::cosine,
                .learning_rate = 0.01,
                .min_ratio = 0.1,
                .steps = steps,
                .warmup_steps = 5};
  o.target = {kernels::choose_isa().isa, 1};
  o.steps = steps;
  o.seed = 5;
  o.init_seed = 9;
  o.keep = 2;
  o.checkpoint_dir = checkpoint_dir;
  return o;
}

// Keeps what a run reports; asks it to stop at a step.
class Recorder final : public TrainerObserver {
 public:
  void on_step(const StepReport& r) override {
    steps.push_back(r.step);
    losses.push_back(r.loss);
    grad_norms.push_back(r.grad_norm);
    learning_rates.push_back(r.learning_rate);
    for (const double loss : r.mtp_losses) losses.push_back(loss);
    if (at_step) at_step(r.step);
  }
  void on_eval(const EvalReport& r) override { evals.push_back(r.step); }
  void on_save(const std::string& path, double) override { saves.push_back(path); }
  void on_save_failed(const std::string& why) override { failures.push_back(why); }
  void on_notice(const std::string& text) override { notices.push_back(text); }

  std::function<void(std::int64_t)> at_step;
  std::vector<std::int64_t> steps, evals;
  std::vector<double> losses, grad_norms, learning_rates;
  std::vector<std::string> saves, failures, notices;
};

struct TinyRun {
  ModelConfig model;
  RandomDocuments data;
  Recorder recorder;
  std::unique_ptr<Trainer> trainer;

  TinyRun(const std::string& config_path, TrainerOptions options)
      : TinyRun(config_path, read_all(config_path), std::move(options)) {}
  // The text stands for config.json.
  TinyRun(const std::string& name, const std::string& config_text, TrainerOptions options)
      : model(read_model_config(parse_json(config_text, name), name)), data(model.vocab_size) {
    options.config_text = config_text;
    trainer = std::make_unique<Trainer>(model, options, data, nullptr, recorder);
  }
  TinyRun(const TinyRun&) = delete;
  TinyRun& operator=(const TinyRun&) = delete;

  std::vector<float> values(Buffer b) const {
    const auto* data_of = static_cast<const float*>(trainer->launch().address_of()(b));
    const auto bytes = trainer->programs().table[b].bytes();
    return {data_of, data_of + bytes / 4};
  }
};

}  // namespace planalto::testing
