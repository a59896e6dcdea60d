// SPDX-License-Identifier: Apache-2.0
// qwen3_moe.cpp: grouped-query attention with per-head query and key norms, softmax router, no shared expert.
#include "model/families/family.h"

namespace planalto {
namespace {

using K = ConfigKeys;

const ConfigKey kKeys[] = {
    {"hidden_size", &K::hidden_size},
    {"num_hidden_layers", &K::num_layers},
    {"vocab_size", &K::vocab_size},
    {"num_attention_heads", &K::num_heads},
    {"num_key_value_heads", &K::num_kv_heads, {}, {}, KeyNull::keep},
    {"head_dim", &K::head_dim, kKeep},
    {"attention_bias", &K::attention_bias, false},
    {"attention_dropout", &K::attention_dropout, 0.0},
    {"use_sliding_window", &K::use_window, false},
    {"sliding_window", &K::window, std::int64_t{4096}, {}, KeyNull::keep},
    {"intermediate_size", &K::dense_width, kKeep},
    {"mlp_only_layers", &K::dense_layers, kKeep},
    {"decoder_sparse_step", &K::sparse_step, std::int64_t{1}},
    {"num_experts", &K::num_experts, {}, "num_local_experts n_routed_experts"},
    {"num_experts_per_tok", &K::top_k},
    {"moe_intermediate_size", &K::expert_width},
    {"norm_topk_prob", &K::normalize, false, {}, KeyNull::wrong},
    {"router_aux_loss_coef", &K::aux_coefficient, 0.001},
    {"hidden_act", &K::activation, kKeep},
    {"rms_norm_eps", &K::norm_eps, 1e-6},
    {"tie_word_embeddings", &K::tie_embeddings, false},
    {"initializer_range", &K::initializer_range, 0.02},
    {"max_position_embeddings", &K::max_positions, std::int64_t{32768}},
    {"pad_token_id", &K::pad_token_id, kKeep},
    {"bos_token_id", &K::bos_token_id, kKeep},
    {"eos_token_id", &K::eos_token_ids, kKeep},
};

}  // namespace

const Family& qwen3_moe_family() {
  static const Family family{
      .model_type = "qwen3_moe",
      .architecture = "Qwen3MoeForCausalLM",
      .keys = kKeys,
      .names = {},
      .options = {.always_qk_norm = true, .o_bias = true},
  };
  return family;
}

}  // namespace planalto
