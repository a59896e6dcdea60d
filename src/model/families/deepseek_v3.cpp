// SPDX-License-Identifier: Apache-2.0
// deepseek_v3.cpp: multi-head latent attention, sigmoid router with correction bias and expert groups, shared experts,
// leading dense layers, multi-token prediction modules. Also what others publish under this architecture's name.
#include "model/families/family.h"

namespace planalto {
namespace {

using K = ConfigKeys;

const ConfigKey kKeys[] = {
    {"hidden_size", &K::hidden_size},
    {"num_hidden_layers", &K::num_layers},
    {"vocab_size", &K::vocab_size},
    {"num_attention_heads", &K::num_heads},
    {"num_key_value_heads", &K::num_kv_heads, kKeep},
    {"q_lora_rank", &K::q_lora_rank, {}, {}, KeyNull::keep},
    {"kv_lora_rank", &K::kv_lora_rank},
    {"qk_nope_head_dim", &K::nope_dim},
    {"qk_rope_head_dim", &K::rope_dim},
    {"v_head_dim", &K::v_dim},
    {"qk_head_dim", &K::qk_dim, kKeep},
    {"attention_bias", &K::attention_bias, false},
    {"attention_dropout", &K::attention_dropout, 0.0},
    {"rope_interleave", &K::rope_interleave, true, {}, KeyNull::wrong},
    {"intermediate_size", &K::dense_width},
    {"first_k_dense_replace", &K::first_dense},
    {"moe_layer_freq", &K::moe_layer_freq, std::int64_t{1}},
    {"n_routed_experts", &K::num_experts, {}, "num_local_experts num_experts"},
    {"num_experts_per_tok", &K::top_k},
    {"moe_intermediate_size", &K::expert_width},
    {"n_shared_experts", &K::num_shared, std::int64_t{1}, {}, KeyNull::keep},
    {"n_group", &K::num_groups},
    {"topk_group", &K::top_groups},
    {"topk_method", &K::topk_method, kKeep},
    {"scoring_func", &K::scoring, kKeep},
    {"norm_topk_prob", &K::normalize, true, {}, KeyNull::wrong},
    {"routed_scaling_factor", &K::routed_scaling},
    {"num_nextn_predict_layers", &K::num_mtp, std::int64_t{0}, "num_mtp_layers"},
    {"hidden_act", &K::activation, kKeep},
    {"rms_norm_eps", &K::norm_eps, 1e-6},
    {"tie_word_embeddings", &K::tie_embeddings, false},
    {"initializer_range", &K::initializer_range, 0.02},
    {"max_position_embeddings", &K::max_positions, std::int64_t{4096}},
    {"pad_token_id", &K::pad_token_id, kKeep},
    {"bos_token_id", &K::bos_token_id, kKeep},
    {"eos_token_id", &K::eos_token_ids, kKeep},
};

const WeightName kNames[] = {
    {"self_attn.q_a_proj", "model.layers.{b}.self_attn.q_a_proj.weight"},
    {"self_attn.q_a_proj.bias", "model.layers.{b}.self_attn.q_a_proj.bias"},
    {"self_attn.q_a_layernorm", "model.layers.{b}.self_attn.q_a_layernorm.weight"},
    {"self_attn.q_b_proj", "model.layers.{b}.self_attn.q_b_proj.weight"},
    {"self_attn.kv_a_proj", "model.layers.{b}.self_attn.kv_a_proj_with_mqa.weight"},
    {"self_attn.kv_a_proj.bias", "model.layers.{b}.self_attn.kv_a_proj_with_mqa.bias"},
    {"self_attn.kv_a_layernorm", "model.layers.{b}.self_attn.kv_a_layernorm.weight"},
    {"self_attn.kv_b_proj", "model.layers.{b}.self_attn.kv_b_proj.weight"},
};

}  // namespace

const Family& deepseek_v3_family() {
  static const Family family{
      .model_type = "deepseek_v3",
      .architecture = "DeepseekV3ForCausalLM",
      .keys = kKeys,
      .names = kNames,
      .options = {.attention = AttentionKind::mla,
                  .o_bias = true,
                  .correction_bias = true,
                  .topk_method_key = true,
                  .score = kernels::RouterScore::sigmoid,
                  .mscale_in_softmax = true},
  };
  return family;
}

}  // namespace planalto
