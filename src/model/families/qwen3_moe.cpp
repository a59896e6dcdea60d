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
    {"num_key_value_heads", &K::num_kv_heads, kKeep},
    {"head_dim", &K::head_dim, kKeep},
    {"attention_bias", &K::attention_bias, false},
    {"attention_dropout", &K::attention_dropout, 0.0},
    {"use_sliding_window", &K::use_window, false},
    {"sliding_window", &K::window, kKeep},
    {"intermediate_size", &K::dense_width, kKeep},
    {"mlp_only_layers", &K::dense_layers, kKeep},
    {"decoder_sparse_step", &K::sparse_step, std::int64_t{1}},
    {"num_experts", &K::num_experts, {}, "num_local_experts n_routed_experts"},
    {"num_experts_per_tok", &K::top_k},
    {"moe_intermediate_size", &K::expert_width},
    {"norm_topk_prob", &K::normalize, false},
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

const WeightName kNames[] = {
    {"embed_tokens", "model.embed_tokens.weight"},
    {"norm", "model.norm.weight"},
    {"lm_head", "lm_head.weight"},
    {"input_layernorm", "model.layers.{b}.input_layernorm.weight"},
    {"self_attn.q_proj", "model.layers.{b}.self_attn.q_proj.weight"},
    {"self_attn.q_proj.bias", "model.layers.{b}.self_attn.q_proj.bias"},
    {"self_attn.k_proj", "model.layers.{b}.self_attn.k_proj.weight"},
    {"self_attn.k_proj.bias", "model.layers.{b}.self_attn.k_proj.bias"},
    {"self_attn.v_proj", "model.layers.{b}.self_attn.v_proj.weight"},
    {"self_attn.v_proj.bias", "model.layers.{b}.self_attn.v_proj.bias"},
    {"self_attn.q_norm", "model.layers.{b}.self_attn.q_norm.weight"},
    {"self_attn.k_norm", "model.layers.{b}.self_attn.k_norm.weight"},
    {"self_attn.o_proj", "model.layers.{b}.self_attn.o_proj.weight"},
    {"self_attn.o_proj.bias", "model.layers.{b}.self_attn.o_proj.bias"},
    {"post_attention_layernorm", "model.layers.{b}.post_attention_layernorm.weight"},
    {"mlp.gate_up", "model.layers.{b}.mlp.gate_proj.weight", "model.layers.{b}.mlp.up_proj.weight"},
    {"mlp.down", "model.layers.{b}.mlp.down_proj.weight"},
    {"router", "model.layers.{b}.mlp.gate.weight"},
    {"experts.gate_up", "model.layers.{b}.mlp.experts.{e}.gate_proj.weight",
     "model.layers.{b}.mlp.experts.{e}.up_proj.weight"},
    {"experts.down", "model.layers.{b}.mlp.experts.{e}.down_proj.weight"},
    {"experts.gate_up", "model.layers.{b}.mlp.experts.gate_up_proj", {}, 1},
    {"experts.down", "model.layers.{b}.mlp.experts.down_proj", {}, 1},
    {"experts.gate_up", "model.layers.{b}.mlp.experts.gate_proj", "model.layers.{b}.mlp.experts.up_proj", 2},
};

}  // namespace

const Family& qwen3_moe_family() {
  static const Family family{
      .model_type = "qwen3_moe",
      .architecture = "Qwen3MoeForCausalLM",
      .keys = kKeys,
      .names = kNames,
      .options = {.always_qk_norm = true, .o_bias = true},
  };
  return family;
}

}  // namespace planalto
