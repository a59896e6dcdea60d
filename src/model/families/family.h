// SPDX-License-Identifier: Apache-2.0
// family.h: what one family of models is to this engine: three tables (config keys, weight names, options).
// Invariants  tables are constant and live as long as the program; everything else in model/ is the same for all families
// Names       in weight names {b} stands for the block, {e} for the expert
// Reference   the modeling and configuration files of transformers 4.57 and 5.x for each model_type
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/rope.h"
#include "kernels/router.h"
#include "model/config.h"

namespace planalto {

// The values of a config.json by function; a family's key table says which key fills which.
struct ConfigKeys {
  std::int64_t hidden_size = 0, num_layers = 0, vocab_size = 0, dense_width = 0;
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0, window = 0;
  std::int64_t q_lora_rank = 0, kv_lora_rank = 0, nope_dim = 0, rope_dim = 0, v_dim = 0, qk_dim = 0;
  std::int64_t num_experts = 0, top_k = 0, expert_width = 0, num_shared = 0;
  std::int64_t num_groups = 1, top_groups = 1;
  std::int64_t first_dense = 0, sparse_step = 1, moe_layer_freq = 1;
  std::vector<std::int64_t> dense_layers;
  std::int64_t num_mtp = 0, pad_token_id = -1, bos_token_id = -1, max_positions = 0;
  std::vector<std::int64_t> eos_token_ids;
  double norm_eps = 1e-6, routed_scaling = 1.0, aux_coefficient = 0.0, initializer_range = 0.02,
         attention_dropout = 0.0;
  bool tie_embeddings = false, attention_bias = false, normalize = true, qk_norm = false, use_window = false;
  bool rope_interleave = true;
  std::string activation = "silu", scoring = "sigmoid", topk_method = "noaux_tc";
};
// A scalar given for a list field is a list of one.
using KeyField = std::variant<std::int64_t ConfigKeys::*, double ConfigKeys::*, bool ConfigKeys::*,
                              std::string ConfigKeys::*, std::vector<std::int64_t> ConfigKeys::*>;
// What an absent key means: monostate: refused; keep: the value that ConfigKeys starts with. Where transformers has a default that
// decides shapes (q_lora_rank 1536), an absent key is refused rather than guessed.
struct Keep {};
inline constexpr Keep kKeep;
using KeyDefault = std::variant<std::monostate, Keep, std::int64_t, double, bool>;
// What null means where that differs from an absent key: `wrong`: the value has no null.
enum class KeyNull { as_absent, keep, wrong };
struct ConfigKey {
  std::string_view key;
  KeyField field;
  KeyDefault otherwise = std::monostate{};
  std::string_view also = {};  // other spellings, separated by spaces; two that are given must agree
  KeyNull null = KeyNull::as_absent;
};

// `file` holds the parameter, or its gate rows while `up` holds its up rows. Layout 0 is written; 1 and 2 are read too.
struct WeightName {
  std::string_view ours;
  std::string_view file;
  std::string_view up = {};
  int layout = 0;
};

struct FamilyOptions {
  AttentionKind attention = AttentionKind::gqa;
  bool always_qk_norm = false;
  bool o_bias = false;           // attention_bias covers o_proj too
  bool correction_bias = false;  // of the router (mla families: with topk_method noaux_tc only)
  bool topk_method_key = false;  // topk_method and scoring_func of the file choose the router
  kernels::RouterScore score = kernels::RouterScore::softmax;
  bool partial_rotary = false;  // partial_rotary_factor is legal
  double default_partial = 1.0;
  bool mscale_in_softmax = false;  // mscale_all_dim multiplies the softmax scale
};

struct Family {
  std::string_view model_type;
  std::string_view architecture;
  std::span<const ConfigKey> keys;
  std::span<const WeightName> names;  // over decoder_names()
  FamilyOptions options;
};
// The names that most decoders share; a family lists what it spells otherwise, or has alone.
std::span<const WeightName> decoder_names();
const Family& deepseek_v3_family();
const Family& qwen3_moe_family();
const Family& glm4_moe_family();
// All of them.
std::span<const Family* const> families();

}  // namespace planalto
