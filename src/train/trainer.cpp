// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "kernels/isa.h"
#include "model/counts.h"
#include "model/rope_table.h"

namespace planalto {

namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Trainer::Trainer(const ModelConfig& model, const TrainerOptions& options, const TokenSource& data,
                 const TokenSource* eval, TrainerObserver& observer)
    : options_(options),
      observer_(observer),
      programs_(model, options.step, options.target),
      launch_(programs_.table, programs_.all(), {.target = options.target, .executor = options.executor}),
      batcher_(data, {.seq_len = options.seq_len,
                      .rows = options.micro_batch,
                      .seed = options.seed,
                      .shuffle = options.shuffle,
                      .pack = options.pack}),
      mtp_trained_(static_cast<std::size_t>(model.num_mtp)) {
  if (eval != nullptr) {
    eval_batcher_ = std::make_unique<Batcher>(*eval, BatcherOptions{.seq_len = options.seq_len,
                                                                    .rows = options.micro_batch,
                                                                    .shuffle = false,
                                                                    .repeat = false,
                                                                    .pack = options.pack});
  }
  fill_rope_table(model.attention.rope, options.step.max_positions,
                  launch_.data<float>(programs_.buffers.rope_table));
  set_up_routes();
}

// What debug.router asks for. A recording begins with run(): until then nothing is known to go well.
void Trainer::set_up_routes() {
  if (options_.replay_path.empty() && !options_.forced_routes) return;
  PLANALTO_CHECK(programs_.buffers.replay_ids.valid(), "routes are given, but step.replay_routes is off");
  const MoeConfig& c = programs_.config.moe;
  if (options_.forced_routes) {
    moe::forced_ids(*options_.forced_routes, c.num_experts, c.top_k, route_ids(programs_.buffers.replay_ids));
  } else {
    route_replay_ = std::make_unique<RouteReplay>(options_.replay_path, route_shape());
  }
}

RouteShape Trainer::route_shape() const {
  const MoeConfig& c = programs_.config.moe;
  return {.moe_blocks = num_moe_blocks(programs_.config),
          .microbatches = options_.step.num_microbatches,
          .tokens = options_.step.max_tokens,
          .top_k = c.top_k,
          .num_experts = c.num_experts};
}

std::span<std::int32_t> Trainer::route_ids(Buffer ids) const {
  return {launch_.data<std::int32_t>(ids), static_cast<std::size_t>(route_shape().ids())};
}

void Trainer::start_from_random(double initializer_range) {
  initialize_weights(programs_.parameters, programs_.table, launch_.address_of(), initializer_range,
                     options_.init_seed);
  refresh_packed_weights();
  reset_moments(programs_.parameters, programs_.table, launch_.address_of());
}

void Trainer::start_from_weights(const HfFolder& folder) {
  const LoadReport report =
      load_hf_weights(folder, programs_.config, programs_.parameters, programs_.table, launch_.address_of());
  for (const std::string& notice : report.notices) observer_.on_notice(notice);
  refresh_packed_weights();
  reset_moments(programs_.parameters, programs_.table, launch_.address_of());
}

// Whoever fills the parameters writes masters.
void Trainer::refresh_packed_weights() {
  if (!programs_.refresh.ops.empty()) launch_.run(programs_.refresh);
}

void Trainer::resume(const std::string& checkpoint) {
  const LoadedCheckpoint loaded = load_checkpoint(checkpoint, programs_.config, programs_.parameters,
                                                  programs_.table, launch_.address_of());
  check_identity(checkpoint, loaded.identity);
  notice_other_config(checkpoint);
  refresh_packed_weights();
  for (const std::string& notice : loaded.notices) observer_.on_notice(notice);
  batcher_.seek(loaded.state.cursor);
  state_ = loaded.state;
  saved_step_ = state_.step;
}

// What decides the data order and the kind of numbers must be the same; what only rounds otherwise is told.
void Trainer::check_identity(const std::string& checkpoint, const RunIdentity& then) const {
  const RunIdentity now = identity();
  auto same = [&](const char* what, const std::string& before, const std::string& is) {
    if (before == is) return;
    fail(ErrorKind::config, "{} was made with {} {}, this run has {}: it would not be the same run",
         checkpoint, what, before, is);
  };
  auto word = [](bool on) { return std::string(on ? "true" : "false"); };
  same("train.precision", then.precision, now.precision);
  same("train.seed", std::to_string(then.seed), std::to_string(now.seed));
  same("train.seq_len", std::to_string(then.seq_len), std::to_string(now.seq_len));
  same("data.shuffle", word(then.shuffle), word(now.shuffle));
  same("train.packing", then.pack ? "documents" : "none", now.pack ? "documents" : "none");
  same("data", fmt::format("{:016x}", then.data_hash), fmt::format("{:016x}", now.data_hash));
  if (then.batch_rows != now.batch_rows) {
    observer_.on_notice(fmt::format("the checkpoint was made with {} sequences a step, this run has {}",
                                    then.batch_rows, now.batch_rows));
  }
  if (then.tokenizer_hash != now.tokenizer_hash)
    observer_.on_notice("the checkpoint was made with another tokenizer");
  if (then.isa != now.isa) {
    observer_.on_notice(fmt::format(
        "the checkpoint was made on {}, this run uses {}: sums may round differently", then.isa, now.isa));
  }
}

void Trainer::notice_other_config(const std::string& checkpoint) const {
  const std::string path = join_path(checkpoint, "config.json");
  if (options_.config_text.empty() || !is_regular_file(path)) return;
  const JsonValue then = read_json_file(path), now = parse_json(options_.config_text, "the model's config");
  std::string keys;
  auto differs = [&](const std::string& key) { keys += (keys.empty() ? "" : ", ") + key; };
  for (const JsonMember& m : now.as_object("config")) {
    const JsonValue* before = then.find(m.key);
    if (before == nullptr || !(*before == m.value)) differs(m.key);
  }
  for (const JsonMember& m : then.as_object(path)) {
    if (now.find(m.key) == nullptr) differs(m.key);
  }
  if (!keys.empty())
    observer_.on_notice("the checkpoint's config.json has other values than this run: " + keys);
}

RunIdentity Trainer::identity() const {
  return {.precision = options_.step.precision == Precision::fp32 ? "fp32" : "bf16",
          .isa = kernels::to_string(options_.target.isa),
          .threads = options_.target.num_threads,
          .seed = options_.seed,
          .seq_len = options_.seq_len,
          .batch_rows = options_.micro_batch * options_.step.num_microbatches,
          .shuffle = options_.shuffle,
          .pack = options_.pack,
          .data_hash = options_.data_hash,
          .tokenizer_hash = options_.tokenizer_hash};
}

CheckpointSource Trainer::checkpoint_source() const {
  return {&programs_.parameters, &programs_.table, launch_.address_of(), options_.config_text,
          options_.files};
}

MicrobatchView Trainer::microbatch(std::int64_t m) const {
  const StepBuffers& s = programs_.buffers;
  const std::int64_t t = options_.step.max_tokens;
  return {launch_.data<std::int32_t>(s.ids) + m * t, launch_.data<std::int32_t>(s.labels) + m * t,
          launch_.data<std::int32_t>(s.positions) + m * t,
          launch_.data<std::int32_t>(s.doc_offsets) + m * (t + 1),
          launch_.data<std::int64_t>(s.counts) + m * ops::kNumCounts};
}

void Trainer::fill_inputs() {
  const StepBuffers& s = programs_.buffers;
  step_tokens_ = step_trained_ = 0;
  step_pairs_ = 0.0;
  std::fill(mtp_trained_.begin(), mtp_trained_.end(), 0);
  for (std::int64_t m = 0; m < options_.step.num_microbatches; ++m) {
    const MicrobatchView v = microbatch(m);
    batcher_.fill(v);
    step_tokens_ += v.counts[ops::kNumTokens];
    step_trained_ += v.counts[ops::kNumTrained];
    for (std::int64_t d = 0; d < v.counts[ops::kNumDocuments]; ++d) {
      const double n = v.doc_offsets[d + 1] - v.doc_offsets[d];
      step_pairs_ += n * (n + 1) / 2;
    }
    for (std::size_t d = 0; d < mtp_trained_.size(); ++d)
      mtp_trained_[d] += count_mtp_labels(v, static_cast<std::int64_t>(d));
  }
  auto* trained = launch_.data<std::int64_t>(s.trained);
  trained[0] = step_trained_;
  std::copy(mtp_trained_.begin(), mtp_trained_.end(), trained + 1);
  fill_scales();
}

void Trainer::fill_scales() {
  const StepBuffers& s = programs_.buffers;
  double* weights = launch_.data<double>(s.loss_weights);
  weights[0] = 1.0;
  std::fill_n(weights + 1, mtp_trained_.size(),
              options_.mtp_lambda / static_cast<double>(mtp_trained_.size()));
  fill_aux_scales();
  const auto update = static_cast<double>(state_.updates + 1);
  *launch_.data<kernels::AdamWScalars>(s.scalars) = {
      .learning_rate = options_.schedule.at(state_.updates + 1),
      .beta1 = options_.beta1,
      .beta2 = options_.beta2,
      .eps = options_.eps,
      .correction1 = 1.0 - std::pow(options_.beta1, update),
      .correction2 = 1.0 - std::pow(options_.beta2, update)};
}

// The share that a microbatch has of the step's documents and tokens: of the main layers, then of each MTP depth, where every
// document is one row shorter than at the depth before.
void Trainer::fill_aux_scales() {
  const bool by_document =
      std::any_of(options_.step.aux_losses.begin(), options_.step.aux_losses.end(),
                  [](const ops::AuxLoss& a) { return a.kind == kernels::AuxLossKind::sequence; });
  const std::int64_t num_m = options_.step.num_microbatches;
  const std::int64_t depths = 1 + static_cast<std::int64_t>(mtp_trained_.size());
  double* aux = launch_.data<double>(programs_.buffers.aux_scale);
  for (std::int64_t depth = 0; depth < depths; ++depth) {
    double documents = 0.0, tokens = 0.0;
    for (std::int64_t m = 0; m < num_m; ++m) {
      double* scales = aux + (m * depths + depth) * ops::kNumScales;
      scales[ops::kAuxScale] = scales[ops::kZScale] = 0.0;
      const MicrobatchView v = microbatch(m);
      for (std::int64_t d = 0; d < v.counts[ops::kNumDocuments]; ++d) {
        const std::int64_t rows = v.doc_offsets[d + 1] - v.doc_offsets[d] - depth;
        if (rows <= 0) continue;
        scales[ops::kAuxScale] += 1.0;
        scales[ops::kZScale] += static_cast<double>(rows);
      }
      documents += scales[ops::kAuxScale];
      tokens += scales[ops::kZScale];
    }
    for (std::int64_t m = 0; m < num_m; ++m) {
      double* scales = aux + (m * depths + depth) * ops::kNumScales;
      scales[ops::kAuxScale] =
          by_document ? scales[ops::kAuxScale] / std::max(documents, 1.0) : 1.0 / static_cast<double>(num_m);
      scales[ops::kZScale] /= std::max(tokens, 1.0);
    }
  }
}

// True when the step changed the parameters.
bool Trainer::take_step() {
  fill_inputs();
  if (route_replay_) route_replay_->read(state_.step + 1, route_ids(programs_.buffers.replay_ids));
  launch_.run(programs_.step);
  const auto& verdict = *launch_.data<ops::StepVerdict>(programs_.buffers.verdict);
  ++state_.step;
  if (route_recorder_) route_recorder_->add(state_.step, route_ids(programs_.buffers.recorded_ids));
  state_.cursor = batcher_.cursor();
  state_.tokens += step_tokens_;
  if (verdict.skip != 0) {
    judge_skip(verdict);
    return false;
  }
  skip_reason_.clear();
  state_.trained += step_trained_;
  ++state_.updates;
  state_.skipped_in_row = 0;
  return true;
}

// Where it came from: a weight that is not finite itself; else the first op of the step, run once more, that wrote such a value.
std::string Trainer::nonfinite_place(const ops::StepVerdict& verdict) {
  for (const Parameter& p : programs_.parameters.all()) {
    const auto* w = launch_.data<float>(p.master.valid() ? p.master : p.weight);
    const auto* bad = std::find_if(w, w + p.spec.elements(), [](float x) { return !std::isfinite(x); });
    if (bad != w + p.spec.elements())
      return fmt::format("the weight {} is not finite ({} at element {})", p.spec.name, *bad, bad - w);
  }
  const std::string what =
      verdict.bad_loss != 0
          ? std::string("the loss is not finite")
          : fmt::format("the gradient of {} is not finite",
                        programs_.square_sum_names[static_cast<std::size_t>(verdict.bad_gradient)]);
  const std::string first = launch_.first_nonfinite(programs_.step);
  return first.empty() ? what : what + "; first, " + first;
}

void Trainer::judge_skip(const ops::StepVerdict& verdict) {
  ++state_.skipped;
  if (verdict.bad_gradient < 0 && verdict.bad_loss == 0) {
    skip_reason_ = "no trained label";
    return;
  }
  ++state_.skipped_in_row;
  skip_reason_ = nonfinite_place(verdict);
  if (options_.on_nonfinite == NonFinite::stop) {
    fail(ErrorKind::data, "step {}: {}; no parameter was changed (train.on_nonfinite = \"skip\" would go on)",
         state_.step, skip_reason_);
  }
  if (state_.skipped_in_row >= options_.max_bad_steps) {
    fail(ErrorKind::data, "step {}: {}; {} steps in a row (train.max_bad_steps) were not finite", state_.step,
         skip_reason_, state_.skipped_in_row);
  }
}

StopReason Trainer::run() {
  if (!options_.record_path.empty()) {
    PLANALTO_CHECK(programs_.buffers.recorded_ids.valid(),
                   "routes are recorded, but step.record_routes is off");
    route_recorder_ = std::make_unique<RouteRecorder>(options_.record_path, route_shape(), state_.step);
  }
  if (state_.step == 0) evaluate_when_due();
  while (state_.step < options_.steps) {
    const double start = now_seconds();
    const bool updated = take_step();
    const double seconds = now_seconds() - start;
    if (!updated || observer_.wants_report(state_.step)) observer_.on_step(report(seconds));
    const bool last = state_.step == options_.steps;
    evaluate_when_due();
    if (options_.checkpoint_dir.empty()) {
      if (stop_requested()) return last ? StopReason::finished : StopReason::requested;
      continue;
    }
    if (last) {
      save();
    } else if (!stop_requested() && options_.save_every > 0 && state_.step % options_.save_every == 0) {
      save_in_passing();
    }
    if (stop_requested() && !last) {
      if (saved_step_ != state_.step) save();
      return StopReason::requested;
    }
  }
  return StopReason::finished;
}

// A request to stop comes first: the evaluation of that step is left out of the report.
void Trainer::evaluate_when_due() {
  const bool due =
      state_.step % std::max<std::int64_t>(options_.eval_every, 1) == 0 || state_.step == options_.steps;
  if (!eval_batcher_ || options_.eval_every <= 0 || !due || stop_requested()) return;
  const EvalReport r = evaluate();
  if (!r.interrupted) observer_.on_eval(r);
}

std::string Trainer::save() {
  const double start = now_seconds();
  observer_.on_save_begin();
  try {
    std::string path =
        save_checkpoint(options_.checkpoint_dir, checkpoint_source(), state_, identity(), options_.keep);
    saved_step_ = state_.step;
    malloc_trim(0);  // what the save used on the heap: resident stays what the plan says
    observer_.on_save(path, now_seconds() - start);
    return path;
  } catch (const Error& e) {
    observer_.on_save_failed(e.what());
    throw;
  }
}

// A save that is not the last of a run: one that fails for want of space or a right costs a checkpoint, not the run.
void Trainer::save_in_passing() {
  try {
    save();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::io || options_.on_failed_save == FailedSave::stop) throw;
    observer_.on_notice(fmt::format(
        "step {}: the checkpoint could not be saved and the run goes on (checkpoint.on_failed_save): {}; the "
        "one {}",
        state_.step, e.what(),
        saved_step_ < 0 ? std::string("before it: none") : fmt::format("of step {} stays", saved_step_)));
  }
}

// The mean over all labels, not of batch means. Inputs are shared with the step, which fills them anew.
EvalReport Trainer::evaluate() {
  EvalReport r;
  r.step = state_.step;
  const double start = now_seconds();
  eval_batcher_->seek({});
  double sum = 0.0;
  std::int64_t tokens = 0;
  const MicrobatchView v = microbatch(0);
  while ((options_.eval_tokens <= 0 || tokens < options_.eval_tokens) && eval_batcher_->fill(v)) {
    if (stop_requested()) {
      r.interrupted = true;
      break;
    }
    launch_.run(programs_.eval);
    sum += launch_.data<double>(programs_.buffers.loss_sums)[0];
    r.labels += v.counts[ops::kNumTrained];
    tokens += v.counts[ops::kNumTokens];
  }
  r.loss = r.labels == 0 ? 0.0 : sum / static_cast<double>(r.labels);
  r.seconds = now_seconds() - start;
  return r;
}

double Trainer::model_flops() const {
  const ModelConfig& c = programs_.config;
  const AttentionConfig& a = c.attention;
  const auto products = static_cast<double>(count_parameters(c).active_without_embedding);
  return 6.0 * products * static_cast<double>(step_tokens_) +
         6.0 * static_cast<double>(a.num_heads * (a.qk_dim + a.v_dim) * c.num_layers) * step_pairs_;
}

LayerBalance Trainer::balance(std::int64_t block, std::int64_t moe_idx) const {
  const std::int64_t num = programs_.config.moe.num_experts;
  const std::int64_t* counts = launch_.data<std::int64_t>(programs_.buffers.route_totals) + moe_idx * num;
  LayerBalance b;
  b.block = block;
  std::int64_t total = 0, dead = 0;
  for (std::int64_t e = 0; e < num; ++e) {
    total += counts[e];
    dead += counts[e] == 0 ? 1 : 0;
  }
  if (total == 0) return b;
  const double mean = static_cast<double>(total) / static_cast<double>(num);
  b.max_over_mean = static_cast<double>(*std::max_element(counts, counts + num)) / mean;
  b.min_over_mean = static_cast<double>(*std::min_element(counts, counts + num)) / mean;
  b.dead_share = static_cast<double>(dead) / static_cast<double>(num);
  double entropy = 0.0;
  for (std::int64_t e = 0; e < num; ++e) {
    const double share = static_cast<double>(counts[e]) / static_cast<double>(total);
    if (share > 0.0) entropy -= share * std::log(share);
  }
  b.entropy = num > 1 ? entropy / std::log(static_cast<double>(num)) : 1.0;
  if (programs_.config.moe.correction_bias) {
    const std::string name = "layers." + std::to_string(block) + ".router.correction_bias";
    const float* bias = launch_.data<float>(programs_.parameters.at(name).weight);
    b.bias_min = *std::min_element(bias, bias + num);
    b.bias_max = *std::max_element(bias, bias + num);
  }
  return b;
}

StepReport Trainer::report(double seconds) const {
  StepReport r;
  const StepBuffers& s = programs_.buffers;
  const double* sums = launch_.data<double>(s.loss_sums);
  const auto& verdict = *launch_.data<ops::StepVerdict>(s.verdict);
  r.step = state_.step;
  r.updates = state_.updates;
  r.loss = step_trained_ == 0 ? 0.0 : sums[0] / static_cast<double>(step_trained_);
  for (std::size_t d = 0; d < mtp_trained_.size(); ++d) {
    r.mtp_losses.push_back(mtp_trained_[d] == 0 ? 0.0 : sums[d + 1] / static_cast<double>(mtp_trained_[d]));
  }
  for (std::size_t i = 0; i < options_.step.aux_losses.size(); ++i)
    r.aux_loss += sums[1 + mtp_trained_.size() + i];
  r.grad_norm = verdict.grad_norm;
  r.learning_rate = launch_.data<kernels::AdamWScalars>(s.scalars)->learning_rate;
  r.skipped = verdict.skip != 0;
  r.skip_reason = skip_reason_;
  r.positions = options_.step.num_microbatches * options_.step.max_tokens;
  r.tokens = step_tokens_;
  r.trained = step_trained_;
  r.seconds = seconds;
  r.model_flops = model_flops();
  std::int64_t moe_idx = 0;
  for (std::int64_t i = 0; i < programs_.config.num_blocks(); ++i) {
    if (programs_.config.is_moe(i)) r.balance.push_back(balance(i, moe_idx++));
  }
  return r;
}

}  // namespace planalto
