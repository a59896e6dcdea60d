// SPDX-License-Identifier: Apache-2.0
#include "bench/step/tiny_step.h"

#include "base/json.h"
#include "base/random.h"

namespace planalto::bench {

namespace {

constexpr const char* kModel = R"({
  "model_type": "glm4_moe", "vocab_size": 32000, "hidden_size": 512, "num_hidden_layers": 4, "first_k_dense_replace": 0,
  "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "partial_rotary_factor": 0.5,
  "n_routed_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 256, "n_shared_experts": 1, "n_group": 1,
  "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.0, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
  "attention_bias": false, "use_qk_norm": false, "tie_word_embeddings": false, "initializer_range": 0.02, "pad_token_id": null
})";

class RandomTokens final : public TokenSource {
 public:
  explicit RandomTokens(std::int64_t vocab) : vocab_(vocab) {}
  std::int64_t num_documents() const override { return 256; }
  std::int64_t document_length(std::int64_t) const override { return 513; }
  void copy(std::int64_t d, std::int64_t first, std::int64_t n, std::int32_t* out) const override {
    const Random random(static_cast<std::uint64_t>(d));
    for (std::int64_t i = 0; i < n; ++i) {
      out[i] = static_cast<std::int32_t>(random.bits(static_cast<std::uint64_t>(first + i)) %
                                         static_cast<std::uint64_t>(vocab_));
    }
  }

 private:
  std::int64_t vocab_;
};

}  // namespace

TrainerOptions tiny_step_options(const Target& target, Precision precision, std::int64_t steps) {
  TrainerOptions o;
  o.target = target;
  o.seq_len = 512;
  o.micro_batch = 8;
  o.steps = steps;
  o.schedule = {.kind = ScheduleKind::constant, .learning_rate = 3e-4, .steps = steps};
  o.step.precision = precision;
  o.step.max_tokens = o.seq_len * o.micro_batch;
  o.step.max_positions = o.seq_len;
  o.step.router_bias_rate = 0.001F;
  o.step.clip_norm = 1.0;
  o.step.weight_decay = 0.1F;
  return o;
}

TinyStep::TinyStep(const TrainerOptions& options, TrainerObserver& observer)
    : model_(read_model_config(parse_json(kModel, "the tiny step"), "the tiny step")),
      tokens_(std::make_unique<RandomTokens>(model_.vocab_size)),
      trainer_(std::make_unique<Trainer>(model_, options, *tokens_, nullptr, observer)) {
  trainer_->start_from_random(model_.initializer_range);
}

TinyStep::~TinyStep() = default;

}  // namespace planalto::bench
