// SPDX-License-Identifier: Apache-2.0
// trainer.h: the training loop over planned programs: fills inputs, runs steps, judges them, evaluates, saves, resumes.
// Invariants  a step whose gradient or loss is not finite, or that trains no label, changes no parameter, moment or schedule; its data is
//             consumed. Evaluation touches neither parameters nor the data cursor
// Memory      after construction a step allocates nothing; reports and saves do
// Threads     run() on one thread; request_stop() from any thread or a signal handler
// Errors      data: a non-finite step when on_nonfinite is stop, or too many in a row, naming step and tensor; io: the last save of a
//             run failed, or any when on_failed_save is stop (the checkpoint before stays)
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "moe/forced_routes.h"
#include "runtime/launch.h"
#include "train/batcher.h"
#include "train/checkpoint.h"
#include "train/route_file.h"
#include "train/run_config.h"
#include "train/schedule.h"
#include "train/step_program.h"

namespace planalto {

struct TrainerOptions {
  StepOptions step;
  Schedule schedule;
  Target target;
  ExecutorOptions executor;
  std::int64_t seq_len = 0, micro_batch = 0;
  std::int64_t steps = 0;
  std::uint64_t seed = 0;
  std::uint64_t init_seed = 0;  // of random weights
  bool shuffle = true, pack = true;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double mtp_lambda = 0.3;
  NonFinite on_nonfinite = NonFinite::stop;
  std::int64_t max_bad_steps = 10;
  std::int64_t eval_every = 0, eval_tokens = 0;
  std::int64_t save_every = 0, keep = 2;
  std::string checkpoint_dir;
  std::string config_text;
  std::vector<ModelFile> files;  // kept with the model in checkpoints
  FailedSave on_failed_save = FailedSave::go_on;
  std::uint64_t tokenizer_hash = 0, data_hash = 0;
  // debug.router, at most one; the first needs step.record_routes, the others step.replay_routes.
  std::string record_path, replay_path;
  std::optional<moe::ForcedPattern> forced_routes;
};

// How the routes of one MoE layer fell in a step.
struct LayerBalance {
  std::int64_t block = 0;
  double max_over_mean = 0.0, min_over_mean = 0.0;
  double dead_share = 0.0;  // experts without a route
  double entropy = 0.0;     // of the shares, divided by log E: 1 is uniform
  double bias_min = 0.0, bias_max = 0.0;
};

struct StepReport {
  std::int64_t step = 0, updates = 0;
  double loss = 0.0;  // mean over trained labels, main model
  std::vector<double> mtp_losses;
  double aux_loss = 0.0;  // as added to the gradient
  double grad_norm = 0.0, learning_rate = 0.0;
  bool skipped = false;
  std::string skip_reason;
  std::int64_t positions = 0, tokens = 0, trained = 0;  // of this step: computed, real, with a label
  double seconds = 0.0;
  double model_flops = 0.0;
  std::vector<LayerBalance> balance;
};

struct EvalReport {
  std::int64_t step = 0;
  double loss = 0.0;
  std::int64_t labels = 0, bytes = 0;
  double seconds = 0.0;
  bool interrupted = false;  // by a request to stop: the figures are of a part
};

class TrainerObserver {
 public:
  virtual ~TrainerObserver() = default;
  virtual bool wants_report(std::int64_t /*step*/) { return true; }
  virtual void on_step(const StepReport&) {}
  virtual void on_eval(const EvalReport&) {}
  virtual void on_save_begin() {}
  virtual void on_save(const std::string& /*path*/, double /*seconds*/) {}
  virtual void on_save_failed(const std::string& /*why*/) {}
  virtual void on_notice(const std::string&) {}
};

enum class StopReason { finished, requested };

class Trainer {
 public:
  // eval may be null. Sources outlive the trainer.
  Trainer(const ModelConfig& model, const TrainerOptions& options, const TokenSource& data,
          const TokenSource* eval, TrainerObserver& observer);

  void start_from_random(double initializer_range);
  void start_from_weights(const HfFolder& folder);
  void resume(const std::string& checkpoint);

  StopReason run();
  // Makes run() return after the step or save in progress, saved.
  void request_stop() { stop_.store(true, std::memory_order_relaxed); }

  EvalReport evaluate();
  std::string save();
  const TrainState& state() const { return state_; }
  const TrainingPrograms& programs() const { return programs_; }
  const Launch& launch() const { return launch_; }
  CheckpointSource checkpoint_source() const;

 private:
  MicrobatchView microbatch(std::int64_t m) const;
  void refresh_packed_weights();
  void fill_inputs();
  void set_up_routes();
  RouteShape route_shape() const;
  std::span<std::int32_t> route_ids(Buffer ids) const;
  void fill_scales();
  void fill_aux_scales();
  bool take_step();
  void judge_skip(const ops::StepVerdict& verdict);
  std::string nonfinite_place(const ops::StepVerdict& verdict);
  StepReport report(double seconds) const;
  LayerBalance balance(std::int64_t block, std::int64_t moe_idx) const;
  double model_flops() const;
  bool stop_requested() const { return stop_.load(std::memory_order_relaxed); }
  void evaluate_when_due();
  void save_in_passing();
  void check_identity(const std::string& checkpoint, const RunIdentity& then) const;
  void notice_other_config(const std::string& checkpoint) const;
  RunIdentity identity() const;

  TrainerOptions options_;
  TrainerObserver& observer_;
  TrainingPrograms programs_;
  Launch launch_;
  Batcher batcher_;
  std::unique_ptr<Batcher> eval_batcher_;
  std::unique_ptr<RouteRecorder> route_recorder_;
  std::unique_ptr<RouteReplay> route_replay_;
  TrainState state_;
  std::atomic<bool> stop_{false};
  // Of the step in progress.
  std::int64_t step_tokens_ = 0, step_trained_ = 0;
  double step_pairs_ = 0.0;
  std::vector<std::int64_t> mtp_trained_;
  std::string skip_reason_;
  std::int64_t saved_step_ = -1;
};

}  // namespace planalto
