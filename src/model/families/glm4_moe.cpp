// SPDX-License-Identifier: Apache-2.0
// glm4_moe.cpp: grouped-query attention that rotates part of each head, sigmoid router with correction bias, shared expert,
// leading dense layers.
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
    {"use_qk_norm", &K::qk_norm, false},
    {"intermediate_size", &K::dense_width},
    {"first_k_dense_replace", &K::first_dense},
    {"n_routed_experts", &K::num_experts, {}, "num_local_experts num_experts"},
    {"num_experts_per_tok", &K::top_k},
    {"moe_intermediate_size", &K::expert_width},
    {"n_shared_experts", &K::num_shared, std::int64_t{1}, {}, KeyNull::keep},
    {"n_group", &K::num_groups, std::int64_t{1}},
    {"topk_group", &K::top_groups, std::int64_t{1}},
    {"norm_topk_prob", &K::normalize, true, {}, KeyNull::wrong},
    {"routed_scaling_factor", &K::routed_scaling, 1.0},
    {"num_nextn_predict_layers", &K::num_mtp, std::int64_t{0}, "num_mtp_layers"},
    {"hidden_act", &K::activation, kKeep},
    {"rms_norm_eps", &K::norm_eps, 1e-5},
    {"tie_word_embeddings", &K::tie_embeddings, false},
    {"initializer_range", &K::initializer_range, 0.02},
    {"max_position_embeddings", &K::max_positions, std::int64_t{131072}},
    {"pad_token_id", &K::pad_token_id, kKeep},
    {"bos_token_id", &K::bos_token_id, kKeep},
    {"eos_token_id", &K::eos_token_ids, kKeep},
};

}  // namespace

const Family& glm4_moe_family() {
  static const Family family{
      .model_type = "glm4_moe",
      .architecture = "Glm4MoeForCausalLM",
      .keys = kKeys,
      .names = {},
      .options = {.correction_bias = true,
                  .score = kernels::RouterScore::sigmoid,
                  .partial_rotary = true,
                  .default_partial = 0.5},
  };
  return family;
}

}  // namespace planalto
