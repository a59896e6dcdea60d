// SPDX-License-Identifier: Apache-2.0
#include "gradient/variants.h"

#include <algorithm>

#include "base/json.h"
#include "base/random.h"

namespace planalto {

ModelConfig Variant::config() const {
  return read_model_config(parse_json(keys, name), name);
}

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
        {.kind = AuxLossKind::z, .coefficient = 0.05, .scale_index = ops::kZScale}}},
      {"deepseek_v3_groups_yarn_two_mtp_recompute_sequence_loss",
       R"({"model_type": "deepseek_v3", "vocab_size": 31, "hidden_size": 18, "num_hidden_layers": 2, "first_k_dense_replace": 1,
           "intermediate_size": 14, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 9, "kv_lora_rank": 7,
           "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 5, "n_routed_experts": 8, "num_experts_per_tok": 3,
           "moe_intermediate_size": 6, "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "norm_topk_prob": true,
           "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 2, "max_position_embeddings": 64,
           "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.7,
                            "mscale_all_dim": 1.0}, "rms_norm_eps": 1e-3})",
       {{.kind = AuxLossKind::sequence, .coefficient = 0.2},
        {.kind = AuxLossKind::z, .coefficient = 0.03, .scale_index = ops::kZScale}},
       true},
      {"deepseek_v3_softmax_best_of_group_unnormalised_microbatch_loss",
       R"({"model_type": "deepseek_v3", "vocab_size": 28, "hidden_size": 16, "num_hidden_layers": 2, "first_k_dense_replace": 0,
           "intermediate_size": 18, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": null, "kv_lora_rank": 8,
           "qk_nope_head_dim": 4, "qk_rope_head_dim": 6, "v_head_dim": 6, "n_routed_experts": 6, "num_experts_per_tok": 2,
           "moe_intermediate_size": 7, "n_shared_experts": 2, "n_group": 3, "topk_group": 2, "norm_topk_prob": false,
           "topk_method": "group_limited_greedy", "scoring_func": "softmax", "routed_scaling_factor": 3.0,
           "rope_interleave": false, "max_position_embeddings": 64})",
       {{.kind = AuxLossKind::microbatch, .coefficient = 0.1}}},
      {"qwen3_moe_dense_layer_unnormalised_padding_microbatch_loss",
       R"({"model_type": "qwen3_moe", "vocab_size": 37, "hidden_size": 20, "num_hidden_layers": 3, "mlp_only_layers": [1],
           "intermediate_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "num_experts": 5,
           "num_experts_per_tok": 5, "moe_intermediate_size": 8, "norm_topk_prob": false, "decoder_sparse_step": 1,
           "attention_bias": true, "tie_word_embeddings": true, "max_position_embeddings": 64})",
       {{.kind = AuxLossKind::microbatch, .coefficient = 0.2}}},
      {"qwen3_moe_two_of_six_normalised_window_joined_loss",
       R"({"model_type": "qwen3_moe", "vocab_size": 30, "hidden_size": 18, "num_hidden_layers": 3, "intermediate_size": 16,
           "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "num_experts": 6, "num_experts_per_tok": 2,
           "moe_intermediate_size": 7, "norm_topk_prob": true, "use_sliding_window": true, "sliding_window": 5,
           "max_position_embeddings": 64})",
       {{.kind = AuxLossKind::joined, .coefficient = 0.15},
        {.kind = AuxLossKind::z, .coefficient = 0.02, .scale_index = ops::kZScale}},
       true},
      {"glm4_moe_partial_rotary_qk_norm_no_bias",
       R"({"model_type": "glm4_moe", "vocab_size": 41, "hidden_size": 24, "num_hidden_layers": 2, "first_k_dense_replace": 1,
           "intermediate_size": 20, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 8, "partial_rotary_factor": 0.5,
           "n_routed_experts": 4, "num_experts_per_tok": 4, "moe_intermediate_size": 6, "n_shared_experts": 1, "n_group": 1,
           "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.0, "attention_bias": false, "use_qk_norm": true,
           "max_position_embeddings": 64, "rms_norm_eps": 1e-3})",
       {}},
      {"glm4_moe_two_of_six_groups_no_shared_expert_mtp",
       R"({"model_type": "glm4_moe", "vocab_size": 26, "hidden_size": 16, "num_hidden_layers": 2, "first_k_dense_replace": 1,
           "intermediate_size": 12, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "partial_rotary_factor": 0.5,
           "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 7, "n_shared_experts": 0, "n_group": 3,
           "topk_group": 2, "norm_topk_prob": true, "routed_scaling_factor": 1.3, "attention_bias": true, "use_qk_norm": true,
           "num_nextn_predict_layers": 1, "max_position_embeddings": 64})",
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

double_model::Batch sample_batch(const ModelConfig& config) {
  double_model::Batch batch;
  batch.offsets = {0, 13, 14, static_cast<std::int32_t>(kTokens)};
  const Random random(3);
  for (std::int64_t i = 0; i < kTokens; ++i) {
    batch.ids.push_back(static_cast<std::int32_t>(random.bits(static_cast<std::uint64_t>(i)) %
                                                  static_cast<std::uint64_t>(config.vocab_size)));
  }
  for (std::size_t d = 0; d + 1 < batch.offsets.size(); ++d) {
    for (std::int32_t i = batch.offsets[d]; i < batch.offsets[d + 1]; ++i) {
      batch.positions.push_back(i - batch.offsets[d]);
      batch.labels.push_back(i + 1 < batch.offsets[d + 1] && i % 7 != 2 ? batch.ids[i + 1] : kIgnoreLabel);
    }
  }
  return batch;
}

void write_batch(const double_model::Batch& batch, const MicrobatchView& out) {
  std::copy(batch.ids.begin(), batch.ids.end(), out.ids);
  std::copy(batch.labels.begin(), batch.labels.end(), out.labels);
  std::copy(batch.positions.begin(), batch.positions.end(), out.positions);
  std::copy(batch.offsets.begin(), batch.offsets.end(), out.doc_offsets);
  out.counts[ops::kNumTokens] = batch.num_tokens();
  out.counts[ops::kNumDocuments] = static_cast<std::int64_t>(batch.offsets.size()) - 1;
  out.counts[ops::kNumTrained] = batch.num_trained();
}

std::vector<double> aux_scales(const ModelConfig& config) {
  std::vector<double> scales;
  for (std::int64_t i = 0; i < (1 + config.num_mtp) * ops::kNumScales; ++i) {
    scales.push_back(1.0 - 0.15 * static_cast<double>(i));
  }
  return scales;
}

double_model::Model sample_model(const Variant& v, const ModelConfig& config, const ParameterSet& parameters,
                                 const BufferTable& table, const AddressOf& address) {
  initialize_weights(parameters, table, address, 0.3, 11);
  reset_moments(parameters, table, address);
  double_model::Model model{config, v.aux, aux_scales(config), {}, {}, {}};
  for (const Parameter& p : parameters.all()) {
    auto* w = static_cast<float*>(address(p.weight));
    const std::int64_t n = p.spec.elements();
    // Vectors start at ones and zeros, where some gradients hide: move them.
    const Random random(5, p.spec.name);
    for (std::int64_t i = 0; p.spec.kind == ParameterKind::vector && i < n; ++i) {
      w[i] += static_cast<float>(0.2 * random.normal(static_cast<std::uint64_t>(i)));
    }
    model.weights[p.spec.name] = {w, w + n};
  }
  return model;
}

}  // namespace planalto
