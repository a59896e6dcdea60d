// SPDX-License-Identifier: Apache-2.0
#include "verify/verify_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "infer/generator.h"
#include "model/rope_table.h"
#include "runtime/launch.h"
#include "train/batcher.h"
#include "train/step_program.h"
#include "train/weights.h"
#include "verify/capture.h"

namespace planalto {

namespace {

constexpr double kLogits = 1e-4, kLoss = 5e-6, kHidden = 2e-5, kRouterLogits = 5e-5, kRouterWeights = 5e-5;
constexpr double kGradMax = 1e-4, kGradL2 = 5e-5, kGradNorm = 1e-5, kAdamLoss = 1e-5;
constexpr double kStepRms = 5e-6, kStepShare = 0.005, kStepWorst = 1e-3;

// The run that trains the case: programs, memory, weights, the batch of the vectors.
class CaseRun {
 public:
  CaseRun(const HfFolder& folder, const ModelConfig& config, std::int64_t batch, std::int64_t seq,
          const VerifyOptions& o, std::vector<ops::AuxLoss> aux)
      : config_(config),
        batch_(batch),
        seq_(seq),
        capture_(config.tie_embeddings ? "embed_tokens" : "lm_head"),
        programs_(config, step_options(batch * seq, seq, o, std::move(aux)), o.target, &capture_),
        launch_(programs_.table, programs_.all(), {.target = o.target}) {
    fill_rope_table(config.attention.rope, seq, launch_.data<float>(programs_.buffers.rope_table));
    load_hf_weights(folder, config, programs_.parameters, programs_.table, launch_.address_of());
    reset_moments(programs_.parameters, programs_.table, launch_.address_of());
  }

  // One document per position restart; labels as transformers shifts them.
  void set_batch(const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& labels,
                 const std::vector<std::int64_t>& positions, double mtp_lambda);
  // One optimizer step (number step >= 1) of golden section 4.
  void step(int number);
  double loss() const { return loss_sum(0) / static_cast<double>(trained_); }
  double mtp_loss(std::int64_t depth) const {
    return loss_sum(depth + 1) / static_cast<double>(mtp_trained_[static_cast<std::size_t>(depth)]);
  }
  double loss_sum(std::int64_t i) const { return launch_.data<double>(programs_.buffers.loss_sums)[i]; }
  double grad_norm() const { return launch_.data<ops::StepVerdict>(programs_.buffers.verdict)->grad_norm; }

  std::vector<float> captured(const std::string& name, std::int64_t rows) const;
  std::vector<std::int32_t> captured_ids(const std::string& name, std::int64_t rows) const;
  bool has_captured(const std::string& name) const { return capture_.has(name); }
  // What a tensor of the file corresponds to in a buffer of its parameter's shape.
  std::vector<float> piece(const Parameter& p, const TensorPiece& t, Buffer b) const;
  const ParameterSet& parameters() const { return programs_.parameters; }
  MicrobatchView view() const;

 private:
  static StepOptions step_options(std::int64_t tokens, std::int64_t seq, const VerifyOptions& o,
                                  std::vector<ops::AuxLoss> aux) {
    StepOptions s;
    s.max_tokens = tokens;
    s.max_positions = seq;
    s.recompute = o.recompute;
    s.loss_tile_rows = 32;
    s.aux_losses = std::move(aux);
    s.clip_norm = 1.0;
    s.weight_decay = 0.1F;
    s.decays = [](const ParameterSpec&) { return true; };  // the reference decays every parameter
    return s;
  }

  const ModelConfig& config_;
  std::int64_t batch_, seq_, trained_ = 0;
  std::vector<std::int64_t> mtp_trained_;
  Capture capture_;
  TrainingPrograms programs_;
  Launch launch_;
};

MicrobatchView CaseRun::view() const {
  const StepBuffers& s = programs_.buffers;
  return {launch_.data<std::int32_t>(s.ids), launch_.data<std::int32_t>(s.labels),
          launch_.data<std::int32_t>(s.positions), launch_.data<std::int32_t>(s.doc_offsets),
          launch_.data<std::int64_t>(s.counts)};
}

void CaseRun::set_batch(const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& labels,
                        const std::vector<std::int64_t>& positions, double mtp_lambda) {
  const MicrobatchView v = view();
  const std::int64_t t = batch_ * seq_;
  const auto check_ids = [&](const char* name, const std::vector<std::int64_t>& values, std::int64_t least,
                             std::int64_t end) {
    for (const std::int64_t id : values) {
      if (id >= least && id < end) continue;
      fail(ErrorKind::data, "vectors.safetensors: {} holds {}; legal: {} .. {}", name, id, least, end - 1);
    }
  };
  check_ids("input_ids", ids, 0, config_.vocab_size);
  check_ids("labels", labels, kIgnoreLabel, config_.vocab_size);
  check_ids("the positions", positions, 0, std::int64_t{1} << 31);
  std::int64_t documents = 0;
  trained_ = 0;
  for (std::int64_t i = 0; i < t; ++i) {
    const auto at = static_cast<std::size_t>(i);
    v.ids[i] = static_cast<std::int32_t>(ids[at]);
    v.positions[i] = static_cast<std::int32_t>(positions[at]);
    if (positions[at] == 0) v.doc_offsets[documents++] = static_cast<std::int32_t>(i);
    const bool last = (i + 1) % seq_ == 0 || positions[at + 1] == 0;
    v.labels[i] = last ? kIgnoreLabel : static_cast<std::int32_t>(labels[at + 1]);
    trained_ += v.labels[i] != kIgnoreLabel ? 1 : 0;
  }
  v.doc_offsets[documents] = static_cast<std::int32_t>(t);
  v.counts[ops::kNumTokens] = t;
  v.counts[ops::kNumDocuments] = documents;
  v.counts[ops::kNumTrained] = trained_;
  const StepBuffers& s = programs_.buffers;
  auto* trained = launch_.data<std::int64_t>(s.trained);
  auto* weights = launch_.data<double>(s.loss_weights);
  trained[0] = trained_;
  weights[0] = 1.0;
  std::fill_n(launch_.data<double>(s.aux_scale), (1 + config_.num_mtp) * ops::kNumScales, 1.0);
  mtp_trained_.clear();
  for (std::int64_t d = 0; d < config_.num_mtp; ++d) {
    mtp_trained_.push_back(std::max<std::int64_t>(count_mtp_labels(v, d), 1));
    trained[d + 1] = mtp_trained_.back();
    weights[d + 1] = mtp_lambda / static_cast<double>(config_.num_mtp);
  }
}

void CaseRun::step(int number) {
  auto* scalars = launch_.data<kernels::AdamWScalars>(programs_.buffers.scalars);
  *scalars = {.learning_rate = 1e-3F,
              .beta1 = 0.9F,
              .beta2 = 0.95F,
              .eps = 1e-8F,
              .correction1 = static_cast<float>(1.0 - std::pow(0.9, number)),
              .correction2 = static_cast<float>(1.0 - std::pow(0.95, number))};
  launch_.run(programs_.step);
}

std::vector<float> CaseRun::captured(const std::string& name, std::int64_t rows) const {
  const Buffer b = capture_.at(name);
  const float* p = launch_.data<float>(b);
  return {p, p + rows * programs_.table[b].cols};
}

std::vector<std::int32_t> CaseRun::captured_ids(const std::string& name, std::int64_t rows) const {
  const Buffer b = capture_.at(name);
  const auto* p = launch_.data<std::int32_t>(b);
  return {p, p + rows * programs_.table[b].cols};
}

std::vector<float> CaseRun::piece(const Parameter& p, const TensorPiece& t, Buffer b) const {
  std::vector<float> out;
  const float* data = launch_.data<float>(b);
  for (std::int64_t g = 0; g < t.groups; ++g) {
    const float* first = data + (t.first_row + g * t.group_stride) * p.spec.cols;
    out.insert(out.end(), first, first + t.rows * p.spec.cols);
  }
  return out;
}

ModelConfig read_case_config(const std::string& path) {
  return read_model_config(read_json_file(path), path);
}

class CaseVerifier {
 public:
  CaseVerifier(const std::string& path, const VerifyOptions& o)
      : options_(o),
        folder_(HfFolder::open(path)),
        vectors_(SafetensorsFile::open(join_path(path, "vectors.safetensors"))),
        config_(model_for_weights(read_case_config(join_path(path, o.config_file)), folder_)) {
    const TensorView ids = vectors_.tensor("input_ids");
    if (ids.shape.size() != 2)
      fail(ErrorKind::data, "{}: input_ids has shape {}, not [batch, sequence]", path, shape_text(ids.shape));
    batch_ = ids.shape[0];
    seq_ = ids.shape[1];
  }

  std::vector<VerifyRow> run() {
    forward_backward();
    packed();
    if (vectors_.contains("aux_loss")) auxiliary();
    if (path_exists(join_path(folder_.path(), "generate.safetensors"))) generate();
    return std::move(rows_);
  }

 private:
  std::vector<std::int64_t> integers(const std::string& name) const {
    return vectors_.tensor(name).read_i64();
  }
  double scalar(const std::string& name, std::int64_t i = 0) const {
    double v = 0;
    vectors_.tensor(name).read(i, std::span<double>(&v, 1));
    return v;
  }
  void add(const std::string& quantity, double error, double tolerance, const std::string& note = "") {
    rows_.push_back({quantity, error, tolerance, error <= tolerance, note});
  }
  void add_abs(const std::string& name, const std::vector<float>& ours, double tolerance,
               bool relative_to_max) {
    const Difference d = difference(ours, vectors_.tensor(name).read_f32());
    add(name, relative_to_max ? d.max_abs / std::max(d.max_reference, 1e-30) : d.max_abs, tolerance,
        fmt::format("element {}", d.worst));
  }
  double mtp_lambda() const { return vectors_.contains("mtp_lambda") ? scalar("mtp_lambda") : 0.0; }
  std::int64_t rows_of_block(std::int64_t block) const {
    return batch_ * (seq_ - std::max<std::int64_t>(0, block - config_.num_layers + 1));
  }
  std::vector<std::int64_t> plain_positions() const {
    std::vector<std::int64_t> p(static_cast<std::size_t>(batch_ * seq_));
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<std::int64_t>(i) % seq_;
    return p;
  }

  void forward_backward();
  void hidden_rows(const CaseRun& run);
  void router_rows(const CaseRun& run);
  void mtp_rows(const CaseRun& run);
  void gradient_rows(const CaseRun& run);
  void parameter_rows(const CaseRun& run);
  void packed();
  void packed_mtp(const CaseRun& run);
  void auxiliary();
  void generate();

  VerifyOptions options_;
  HfFolder folder_;
  SafetensorsFile vectors_;
  ModelConfig config_;
  std::int64_t batch_ = 0, seq_ = 0;
  std::vector<VerifyRow> rows_;
};

void CaseVerifier::forward_backward() {
  CaseRun run(folder_, config_, batch_, seq_, options_, {});
  run.set_batch(integers("input_ids"), integers("labels"), plain_positions(), mtp_lambda());
  Worst losses("adamw.loss", kAdamLoss), norms("adamw.grad_norm (relative)", kGradNorm);
  for (int i = 0; i < 4; ++i) {
    run.step(i + 1);
    double loss = run.loss();
    if (i == 0) {
      add("loss", std::abs(loss - scalar("loss")), kLoss);
      if (vectors_.contains("loss_f64")) add("loss_f64", std::abs(loss - scalar("loss_f64")), kLoss);
      hidden_rows(run);
      router_rows(run);
      if (config_.num_mtp > 0) mtp_rows(run);
      gradient_rows(run);
    }
    for (std::int64_t d = 0; d < config_.num_mtp; ++d) {
      loss += mtp_lambda() / static_cast<double>(config_.num_mtp) * run.mtp_loss(d);
    }
    if (!vectors_.contains("adamw.loss")) return;
    losses.add(std::abs(loss - scalar("adamw.loss", i)), fmt::format("step {}", i));
    if (i < 3) {
      const double norm = scalar("adamw.grad_norm", i);
      norms.add(std::abs(run.grad_norm() - norm) / norm, fmt::format("step {}", i + 1));
    }
    if (i == 2) parameter_rows(run);
  }
  rows_.push_back(losses.row());
  rows_.push_back(norms.row());
}

void CaseVerifier::hidden_rows(const CaseRun& run) {
  add_abs("logits", run.captured("logits", batch_ * seq_), kLogits, false);
  add_abs("hidden_states.embed", run.captured("hidden_states.embed", batch_ * seq_), kHidden, true);
  for (std::int64_t i = 0; i < config_.num_blocks(); ++i) {
    for (const char* kind : {"hidden_states.layer", "attn_out.layer"}) {
      const std::string name = kind + std::to_string(i);
      if (vectors_.contains(name)) add_abs(name, run.captured(name, rows_of_block(i)), kHidden, true);
    }
  }
  add_abs("hidden_states.final_norm", run.captured("hidden_states.final_norm", batch_ * seq_), kHidden, true);
}

void CaseVerifier::router_rows(const CaseRun& run) {
  for (std::int64_t i = 0; i < config_.num_blocks(); ++i) {
    if (!config_.is_moe(i)) continue;
    const std::string layer = "router.layer" + std::to_string(i);
    const std::int64_t rows = rows_of_block(i);
    add_abs(layer + ".logits", run.captured(layer + ".logits", rows), kRouterLogits, false);
    const std::vector<std::int64_t> ids = integers(layer + ".topk_idx");
    const std::vector<std::int32_t> ours = run.captured_ids(layer + ".topk_idx", rows);
    std::int64_t wrong = ids.size() == ours.size() ? 0 : 1;
    for (std::size_t j = 0; wrong == 0 && j < ids.size(); ++j) wrong += ids[j] != ours[j] ? 1 : 0;
    add(layer + ".topk_idx (differences)", static_cast<double>(wrong), 0.0);
    const Difference d = difference(run.captured(layer + ".topk_weight", rows),
                                    vectors_.tensor(layer + ".topk_weight").read_f32());
    add(layer + ".topk_weight (relative)", d.max_relative, kRouterWeights);
  }
}

void CaseVerifier::mtp_rows(const CaseRun& run) {
  double total = run.loss();
  for (std::int64_t d = 0; d < config_.num_mtp; ++d) {
    const std::string name = "mtp." + std::to_string(d);
    const std::int64_t rows = rows_of_block(config_.num_layers + d);
    add_abs(name + ".input", run.captured(name + ".input", rows), kHidden, true);
    add_abs(name + ".hidden", run.captured(name + ".hidden", rows), kHidden, true);
    add_abs(name + ".logits", run.captured(name + ".logits", rows), kLogits, false);
    add(name + ".loss", std::abs(run.mtp_loss(d) - scalar(name + ".loss")), kLoss);
    total += mtp_lambda() / static_cast<double>(config_.num_mtp) * run.mtp_loss(d);
  }
  add("loss_with_mtp", std::abs(total - scalar("loss_with_mtp")), kLoss);
}

void CaseVerifier::gradient_rows(const CaseRun& run) {
  Worst max("gradients: max error / max value", kGradMax), l2("gradients: L2 error / L2 norm", kGradL2);
  Worst idle("gradients that are zero", 0.0);
  Worst missing("gradients without a counterpart", 0.0);
  std::vector<std::pair<std::string, Difference>> compared;
  double largest = 0.0, largest_l2 = 0.0;
  for (const Parameter& p : run.parameters().all()) {
    if (!p.gradient.valid()) continue;
    for (const TensorPiece& t : p.spec.pieces) {
      if (t.use != PieceUse::primary) continue;
      const std::string name = "grad." + t.name;
      if (!vectors_.contains(name)) {
        missing.add(1.0, t.name);
        continue;
      }
      const Difference d = difference(run.piece(p, t, p.gradient), vectors_.tensor(name).read_f32());
      largest = std::max(largest, d.max_reference);
      largest_l2 = std::max(largest_l2, d.l2_reference);
      compared.emplace_back(t.name, d);
    }
  }
  // A gradient that cancels (the router's, with one expert a token and normalised weights) is the reference's rounding alone.
  constexpr double kRounding = 1e-6;
  for (const auto& [name, d] : compared) {
    if (d.max_reference == 0.0) {
      idle.add(d.max_abs, name);
    } else {
      max.add(d.max_abs / std::max(d.max_reference, kRounding * largest), name);
      l2.add(d.l2 / std::max(d.l2_reference, kRounding * largest_l2), name);
    }
  }
  std::int64_t in_file = 0;
  for (const auto& e : vectors_.entries()) in_file += e.spec.name.starts_with("grad.") ? 1 : 0;
  rows_.push_back(max.row());
  rows_.push_back(l2.row());
  if (idle.any()) rows_.push_back(idle.row());
  if (missing.any()) rows_.push_back(missing.row());
  add("gradients in the file that were not compared", static_cast<double>(in_file - std::ssize(compared)),
      0.0);
}

void CaseVerifier::parameter_rows(const CaseRun& run) {
  double squares = 0;
  std::int64_t elements = 0, off = 0;
  Worst worst("adamw.step3: worst element", kStepWorst);
  for (const Parameter& p : run.parameters().all()) {
    if (!p.gradient.valid()) continue;
    for (const TensorPiece& t : p.spec.pieces) {
      if (t.use != PieceUse::primary) continue;
      const std::vector<float> ours = run.piece(p, t, p.master);
      const std::vector<float> reference = vectors_.tensor("adamw.step3." + t.name).read_f32();
      const Difference d = difference(ours, reference);
      worst.add(d.max_abs, t.name);
      squares += d.l2 * d.l2;
      elements += static_cast<std::int64_t>(ours.size());
      for (std::size_t i = 0; i < std::min(ours.size(), reference.size()); ++i)
        off += std::abs(ours[i] - reference[i]) > 2e-6F ? 1 : 0;
    }
  }
  add("adamw.step3: rms", std::sqrt(squares / static_cast<double>(elements)), kStepRms);
  add("adamw.step3: share of elements off by more than 2e-6",
      static_cast<double>(off) / static_cast<double>(elements), kStepShare);
  rows_.push_back(worst.row());
}

void CaseVerifier::packed() {
  if (!vectors_.contains("packed.position_ids")) return;
  CaseRun run(folder_, config_, batch_, seq_, options_, {});
  run.set_batch(integers("input_ids"), integers("packed.labels"), integers("packed.position_ids"),
                mtp_lambda());
  run.step(1);
  add_abs("packed.logits", run.captured("logits", batch_ * seq_), kLogits, false);
  add("packed.loss", std::abs(run.loss() - scalar("packed.loss")), kLoss);
  if (config_.num_mtp > 0) packed_mtp(run);
}

// The reference keeps rows in their place and zeros where a depth has none; ours are packed.
void CaseVerifier::packed_mtp(const CaseRun& run) {
  const MicrobatchView v = run.view();
  double total = run.loss();
  for (std::int64_t depth = 0; depth < config_.num_mtp; ++depth) {
    const std::string name = "packed.mtp." + std::to_string(depth);
    std::vector<float> placed(static_cast<std::size_t>(batch_ * seq_ * config_.vocab_size), 0.0F);
    const std::vector<float> ours = run.captured("mtp." + std::to_string(depth) + ".logits", batch_ * seq_);
    std::int64_t row = 0;
    for (std::int64_t d = 0; d < v.counts[ops::kNumDocuments]; ++d) {
      for (std::int64_t r = v.doc_offsets[d]; r + 1 + depth < v.doc_offsets[d + 1]; ++r, ++row) {
        std::copy_n(ours.begin() + row * config_.vocab_size, config_.vocab_size,
                    placed.begin() + r * config_.vocab_size);
      }
    }
    add_abs(name + ".logits", placed, kLogits, false);
    add(name + ".loss", std::abs(run.mtp_loss(depth) - scalar(name + ".loss")), kLoss);
    total += mtp_lambda() / static_cast<double>(config_.num_mtp) * run.mtp_loss(depth);
  }
  add("packed.loss_with_mtp", std::abs(total - scalar("packed.loss_with_mtp")), kLoss);
}

void CaseVerifier::auxiliary() {
  // With a coefficient of zero the loss still has a value: one too small to move any gradient shows it.
  const double coefficient = config_.moe.aux_coefficient > 0.0 ? config_.moe.aux_coefficient : 1e-30;
  const ops::AuxLoss aux{.kind = kernels::AuxLossKind::joined, .coefficient = coefficient};
  CaseRun run(folder_, config_, batch_, seq_, options_, {aux});
  run.set_batch(integers("input_ids"), integers("labels"), plain_positions(), 0.0);
  run.step(1);
  const double scaled = run.loss_sum(1);
  add("aux_loss", std::abs(scaled / coefficient - scalar("aux_loss")), kLoss);
  add("loss_with_aux", std::abs(run.loss() + scaled - scalar("loss_with_aux")), kLoss);
  Worst max("grad_with_aux: max error / max value", kGradMax),
      l2("grad_with_aux: L2 error / L2 norm", kGradL2);
  for (const Parameter& p : run.parameters().all()) {
    for (const TensorPiece& t : p.spec.pieces) {
      const std::string name = "grad_with_aux." + t.name;
      if (!vectors_.contains(name)) continue;
      const Difference d = difference(run.piece(p, t, p.gradient), vectors_.tensor(name).read_f32());
      max.add(d.max_abs / d.max_reference, t.name);
      l2.add(d.l2 / d.l2_reference, t.name);
    }
  }
  rows_.push_back(max.row());
  rows_.push_back(l2.row());
}

void CaseVerifier::generate() {
  const SafetensorsFile file = SafetensorsFile::open(join_path(folder_.path(), "generate.safetensors"));
  const std::vector<std::int64_t> prompt = file.tensor("prompt_ids").read_i64();
  const std::vector<std::int64_t> expected = file.tensor("generated_ids").read_i64();
  const std::vector<float> step_logits = file.tensor("step_logits").read_f32();
  Generator generator(config_, Precision::fp32, static_cast<std::int64_t>(prompt.size() + expected.size()),
                      options_.target);
  load_hf_weights(folder_, with_mtp(config_, 0), generator.parameters(), generator.table(),
                  generator.address_of());
  std::span<const float> logits = generator.feed(std::vector<std::int32_t>(prompt.begin(), prompt.end()));
  Worst error("generate.step_logits", kLogits);
  std::int64_t wrong = 0;
  const auto vocab = static_cast<std::size_t>(config_.vocab_size);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error.add(difference(logits, std::span(step_logits).subspan(i * vocab, vocab)).max_abs,
              fmt::format("token {}", i));
    const auto best =
        static_cast<std::int64_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    wrong += best != expected[i] ? 1 : 0;
    if (i + 1 < expected.size()) {
      const auto next = static_cast<std::int32_t>(best);
      logits = generator.feed({&next, 1});
    }
  }
  add("generate.generated_ids (differences)", static_cast<double>(wrong), 0.0);
  rows_.push_back(error.row());
}

}  // namespace

std::vector<VerifyRow> verify_case(const std::string& folder, const VerifyOptions& options) {
  return CaseVerifier(folder, options).run();
}

bool is_model_case(const std::string& folder) {
  return is_folder(folder) && path_exists(join_path(folder, "vectors.safetensors")) &&
         path_exists(join_path(folder, "model.safetensors"));
}

}  // namespace planalto
