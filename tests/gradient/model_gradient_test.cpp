// SPDX-License-Identifier: Apache-2.0
// model_gradient_test.cpp: the gradient of whole models against central differences of their own loss, over the options that a
// config.json can combine. Every parameter of every module is covered; all experts are chosen, so no difference crosses a choice.
// Numerics    the loss is fp32 inside: steps of 2e-2 on the largest gradients of each tensor keep its rounding below 2%
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/json.h"
#include "base/random.h"
#include "kernels/isa.h"
#include "model/rope_table.h"
#include "runtime/launch.h"
#include "train/batcher.h"
#include "train/step_program.h"
#include "train/weights.h"

namespace planalto {
namespace {

struct Variant {
  const char* name;
  const char* keys;  // of config.json
  std::vector<ops::AuxLoss> aux;
};

constexpr std::int64_t kTokens = 24;

class ModelRun {
 public:
  explicit ModelRun(const Variant& v)
      : config_(read_model_config(parse_json(v.keys, v.name), v.name)),
        target_{kernels::choose_isa().isa, 1},
        programs_(config_, options(v), target_),
        launch_(programs_.table, {&programs_.step, &programs_.eval}, {.target = target_}) {
    fill_rope_table(config_.attention.rope, kTokens, launch_.data<float>(programs_.buffers.rope_table));
    initialize_weights(programs_.parameters, programs_.table, launch_.address_of(), 0.3, 11);
    reset_moments(programs_.parameters, programs_.table, launch_.address_of());
    // Vectors start at ones and zeros, where some gradients hide: move them.
    for (const Parameter& p : programs_.parameters.all()) {
      if (p.spec.kind != ParameterKind::vector) continue;
      const Random random(5, p.spec.name);
      for (std::int64_t i = 0; i < p.spec.elements(); ++i) {
        weight(p)[i] += static_cast<float>(0.2 * random.normal(static_cast<std::uint64_t>(i)));
      }
    }
    fill_batch();
  }

  // Three documents, one of a single token; a few ignored labels.
  void fill_batch() {
    const StepBuffers& s = programs_.buffers;
    const Random random(3);
    auto* ids = launch_.data<std::int32_t>(s.ids);
    auto* labels = launch_.data<std::int32_t>(s.labels);
    auto* positions = launch_.data<std::int32_t>(s.positions);
    const std::int32_t offsets[] = {0, 13, 14, static_cast<std::int32_t>(kTokens)};
    std::copy(std::begin(offsets), std::end(offsets), launch_.data<std::int32_t>(s.doc_offsets));
    for (std::int64_t i = 0; i < kTokens; ++i) {
      ids[i] = static_cast<std::int32_t>(random.bits(static_cast<std::uint64_t>(i)) %
                                         static_cast<std::uint64_t>(config_.vocab_size));
    }
    std::int64_t trained = 0;
    for (int d = 0; d < 3; ++d) {
      for (std::int32_t i = offsets[d]; i < offsets[d + 1]; ++i) {
        positions[i] = i - offsets[d];
        labels[i] = i + 1 < offsets[d + 1] && i % 7 != 2 ? ids[i + 1] : kIgnoreLabel;
        trained += labels[i] != kIgnoreLabel ? 1 : 0;
      }
    }
    auto* counts = launch_.data<std::int64_t>(s.counts);
    counts[ops::kNumTokens] = kTokens;
    counts[ops::kNumDocuments] = 3;
    counts[ops::kNumTrained] = trained;
    for (std::int64_t i = 0; i <= config_.num_mtp; ++i) {
      launch_.data<std::int64_t>(s.trained)[i] = i == 0 ? trained : 1;
      launch_.data<double>(s.loss_weights)[i] = weight_of_loss(i) * static_cast<double>(i == 0 ? trained : 1);
    }
    *launch_.data<kernels::AdamWScalars>(s.scalars) = {};  // learning rate 0
    std::fill_n(launch_.data<double>(s.aux_scale), programs_.table[s.aux_scale].elements(), 1.0);
  }

  double weight_of_loss(std::int64_t i) const { return i == 0 ? 1.0 / 15.0 : 0.5 / 12.0; }

  void step() { launch_.run(programs_.step); }  // learning rate 0: the parameters stay
  // Main and MTP losses with their weights, and the auxiliary losses: what the gradient is of. The step program gives all of them.
  double loss() {
    step();
    const double* sums = launch_.data<double>(programs_.buffers.loss_sums);
    double total = 0.0;
    for (std::int64_t i = 0; i <= config_.num_mtp; ++i) total += weight_of_loss(i) * sums[i];
    const std::int64_t all = programs_.table[programs_.buffers.loss_sums].elements();
    for (std::int64_t i = 1 + config_.num_mtp; i < all; ++i) total += sums[i];
    return total;
  }
  float* weight(const Parameter& p) { return launch_.data<float>(p.weight); }
  const float* gradient(const Parameter& p) { return launch_.data<float>(p.gradient); }
  const ParameterSet& parameters() const { return programs_.parameters; }

 private:
  static StepOptions options(const Variant& v) {
    StepOptions o;
    o.max_tokens = kTokens;
    o.max_positions = kTokens;
    o.loss_tile_rows = 8;
    o.aux_losses = v.aux;
    return o;
  }

  ModelConfig config_;
  Target target_;
  TrainingPrograms programs_;
  Launch launch_;
};

const std::vector<Variant>& variants() {
  using kernels::AuxLossKind;
  static const std::vector<Variant> all = {
      {"deepseek_v3_no_q_lora_biases_tied_mtp",
       R"({"model_type": "deepseek_v3", "vocab_size": 40, "hidden_size": 20, "num_hidden_layers": 2, "first_k_dense_replace": 1,
           "intermediate_size": 18, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": null, "kv_lora_rank": 10,
           "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 7, "n_routed_experts": 4, "num_experts_per_tok": 4,
           "moe_intermediate_size": 9, "n_shared_experts": 2, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
           "routed_scaling_factor": 1.7, "attention_bias": true, "tie_word_embeddings": true, "num_nextn_predict_layers": 1,
           "max_position_embeddings": 64, "rms_norm_eps": 1e-5})",
       {}},
      {"deepseek_v3_q_lora_bias_unnormalised_sequence_loss",
       R"({"model_type": "deepseek_v3", "vocab_size": 33, "hidden_size": 24, "num_hidden_layers": 2, "first_k_dense_replace": 0,
           "intermediate_size": 18, "num_attention_heads": 3, "num_key_value_heads": 3, "q_lora_rank": 8, "kv_lora_rank": 6,
           "qk_nope_head_dim": 5, "qk_rope_head_dim": 2, "v_head_dim": 4, "n_routed_experts": 3, "num_experts_per_tok": 3,
           "moe_intermediate_size": 7, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": false,
           "routed_scaling_factor": 0.8, "attention_bias": true, "rope_interleave": true, "max_position_embeddings": 64})",
       {{.kind = AuxLossKind::sequence, .coefficient = 0.3},
        {.kind = AuxLossKind::z, .coefficient = 0.05, .scale_index = 1}}},
      {"qwen3_moe_dense_layer_unnormalised_padding_microbatch_loss",
       R"({"model_type": "qwen3_moe", "vocab_size": 37, "hidden_size": 20, "num_hidden_layers": 3, "mlp_only_layers": [1],
           "intermediate_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "num_experts": 5,
           "num_experts_per_tok": 5, "moe_intermediate_size": 8, "norm_topk_prob": false, "decoder_sparse_step": 1,
           "attention_bias": true, "tie_word_embeddings": true, "max_position_embeddings": 64})",
       {{.kind = AuxLossKind::microbatch, .coefficient = 0.2}}},
      {"glm4_moe_partial_rotary_qk_norm_no_bias",
       R"({"model_type": "glm4_moe", "vocab_size": 41, "hidden_size": 24, "num_hidden_layers": 2, "first_k_dense_replace": 1,
           "intermediate_size": 20, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 8, "partial_rotary_factor": 0.5,
           "n_routed_experts": 4, "num_experts_per_tok": 4, "moe_intermediate_size": 6, "n_shared_experts": 1, "n_group": 1,
           "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.0, "attention_bias": false, "use_qk_norm": true,
           "max_position_embeddings": 64, "rms_norm_eps": 1e-3})",
       {}},
      {"glm4_moe_bias_no_qk_norm_yarn",
       R"({"model_type": "glm4_moe", "vocab_size": 29, "hidden_size": 16, "num_hidden_layers": 2, "first_k_dense_replace": 0,
           "intermediate_size": 20, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "partial_rotary_factor": 1.0,
           "n_routed_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 5, "n_shared_experts": 2, "n_group": 1,
           "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.0, "attention_bias": true, "use_qk_norm": false,
           "max_position_embeddings": 64,
           "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}})",
       {}},
  };
  return all;
}

class ModelGradient : public ::testing::TestWithParam<std::size_t> {};

TEST_P(ModelGradient, EqualsCentralDifferences) {
  const Variant& v = variants()[GetParam()];
  SCOPED_TRACE(v.name);
  ModelRun run(v);
  run.step();
  constexpr int kEntries = 3;
  constexpr double kStep = 2e-2;
  for (const Parameter& p : run.parameters().all()) {
    if (!p.gradient.valid()) continue;
    run.step();
    const std::int64_t n = p.spec.elements();
    const std::vector<float> gradient(run.gradient(p), run.gradient(p) + n);
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + std::min<std::int64_t>(kEntries, n), order.end(),
                      [&](std::int64_t a, std::int64_t b) {
                        return std::abs(gradient[static_cast<std::size_t>(a)]) >
                               std::abs(gradient[static_cast<std::size_t>(b)]);
                      });
    // A router whose weights are normalised over all experts may have gradients as small as the noise of the difference.
    const double noise = 2e-6 / kStep;
    for (std::int64_t k = 0; k < std::min<std::int64_t>(kEntries, n); ++k) {
      const std::int64_t i = order[static_cast<std::size_t>(k)];
      float* w = run.weight(p) + i;
      const float old = *w;
      *w = old + static_cast<float>(kStep);
      const double above = run.loss();
      *w = old - static_cast<float>(kStep);
      const double below = run.loss();
      // A second, half as wide difference removes the curvature (Richardson).
      *w = old + static_cast<float>(kStep / 2);
      const double near_above = run.loss();
      *w = old - static_cast<float>(kStep / 2);
      const double near_below = run.loss();
      *w = old;
      const double wide = (above - below) / (2 * kStep), narrow = (near_above - near_below) / kStep;
      const double expected = (4 * narrow - wide) / 3;
      EXPECT_NEAR(gradient[static_cast<std::size_t>(i)], expected, 0.02 * std::abs(expected) + 4 * noise)
          << p.spec.name << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, ModelGradient, ::testing::Range<std::size_t>(0, 5),
                         [](const auto& variant) { return std::string(variants()[variant.param].name); });

}  // namespace
}  // namespace planalto
