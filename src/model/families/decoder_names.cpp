// SPDX-License-Identifier: Apache-2.0
// decoder_names.cpp: the weight names that Hugging Face decoders share. A family's own table comes first and lists only what
// it spells otherwise, or has alone.
#include "model/families/family.h"

namespace planalto {
namespace {

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
    {"router.correction_bias", "model.layers.{b}.mlp.gate.e_score_correction_bias"},
    {"experts.gate_up", "model.layers.{b}.mlp.experts.{e}.gate_proj.weight",
     "model.layers.{b}.mlp.experts.{e}.up_proj.weight"},
    {"experts.down", "model.layers.{b}.mlp.experts.{e}.down_proj.weight"},
    {"experts.gate_up", "model.layers.{b}.mlp.experts.gate_up_proj", {}, 1},
    {"experts.down", "model.layers.{b}.mlp.experts.down_proj", {}, 1},
    {"experts.gate_up", "model.layers.{b}.mlp.experts.gate_proj", "model.layers.{b}.mlp.experts.up_proj", 2},
    {"shared.gate_up", "model.layers.{b}.mlp.shared_experts.gate_proj.weight",
     "model.layers.{b}.mlp.shared_experts.up_proj.weight"},
    {"shared.down", "model.layers.{b}.mlp.shared_experts.down_proj.weight"},
    {"enorm", "model.layers.{b}.enorm.weight"},
    {"hnorm", "model.layers.{b}.hnorm.weight"},
    {"eh_proj", "model.layers.{b}.eh_proj.weight"},
    {"final_norm", "model.layers.{b}.shared_head.norm.weight"},
    {"mtp embed_tokens", "model.layers.{b}.embed_tokens.weight"},
    {"mtp lm_head", "model.layers.{b}.shared_head.head.weight"},
};

}  // namespace

std::span<const WeightName> decoder_names() {
  return kNames;
}

}  // namespace planalto
