// SPDX-License-Identifier: Apache-2.0
// config.h: a model as one struct, named by function; read from a Hugging Face config.json of any family in families/.
// Invariants  what read_model_config returns is complete and consistent: shapes divide, the router's choice is possible
// Errors      config: unknown model_type, option or value that this engine cannot compute, named as in the file, with
//             what is legal; all that is wrong is reported together. Keys that mean something in other models are refused,
//             all others ignored (an export keeps them).
// Reference   tests/golden/*/config.json and config_v5.json, tests/golden/configs
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/router.h"
#include "model/rope_config.h"

namespace planalto {

class JsonValue;
struct Family;

enum class AttentionKind { gqa, mla };
struct AttentionConfig {
  AttentionKind kind = AttentionKind::gqa;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;  // mla: = num_heads
  std::int64_t qk_dim = 0;        // width of a query and of a key head (mla: nope_dim + rope_dim)
  std::int64_t v_dim = 0;         // width of a value head
  std::int64_t window = 0;        // 0: none; else the token itself and window - 1 before it
  double softmax_scale = 0.0;     // with the factor that some rope scalings put on it
  bool qk_norm = false;           // gqa: RMSNorm over each query and key head, before the rotation
  bool qkv_bias = false;          // gqa: of q_proj, k_proj, v_proj
  bool latent_bias = false;       // mla: of q_a_proj (with q_lora_rank) and kv_a_proj
  bool o_bias = false;
  // mla only
  std::int64_t q_lora_rank = 0;  // 0: q_proj straight from the hidden state
  std::int64_t kv_lora_rank = 0;
  std::int64_t nope_dim = 0;      // first in a head
  std::int64_t rope_dim = 0;      // second in a head; one rope key for all heads
  double latent_norm_eps = 1e-6;  // of q_a_layernorm and kv_a_layernorm
  RopeConfig rope;
};

struct MoeConfig {
  std::int64_t num_experts = 0;  // 0: no layer is MoE
  std::int64_t top_k = 0;
  std::int64_t width = 0;         // F, of one expert
  std::int64_t shared_width = 0;  // of the one shared MLP; 0: none
  kernels::RouterOptions router;
  bool correction_bias = false;  // e_score_correction_bias: a buffer that steers the choice
  double aux_coefficient =
      0.0;  // router_aux_loss_coef of the file; what a run uses is the run config's business
};

enum class MlpKind { dense, moe };

struct ModelConfig {
  const Family* family = nullptr;  // never null in what read_model_config returns
  std::int64_t hidden_size = 0;
  // Main layers; MTP modules follow as blocks num_layers .. num_layers + num_mtp - 1.
  std::int64_t num_layers = 0;
  std::int64_t vocab_size = 0;
  std::int64_t dense_width = 0;  // of a dense layer's MLP
  std::vector<MlpKind> mlp;      // [num_layers + num_mtp]
  AttentionConfig attention;
  MoeConfig moe;
  double norm_eps = 1e-6;
  bool tie_embeddings = false;
  std::int64_t num_mtp = 0;        // multi-token prediction modules
  std::int64_t pad_token_id = -1;  // -1: none; else that embedding row gets no gradient
  std::int64_t bos_token_id = -1;
  std::vector<std::int64_t> eos_token_ids;
  double initializer_range = 0.02;
  std::int64_t max_positions = 0;  // max_position_embeddings

  std::int64_t num_blocks() const { return num_layers + num_mtp; }
  bool is_moe(std::int64_t block) const { return mlp[static_cast<std::size_t>(block)] == MlpKind::moe; }
  std::int64_t num_moe_layers() const;  // main layers only
};

// `source` stands in messages: the file's name, or "run.toml [model]".
ModelConfig read_model_config(const JsonValue& config, const std::string& source);
// The keys of a table that cannot hold null (TOML) and leaves them out, as a config.json: with the nulls, and with what means the
// same only here.
JsonValue complete_inline_config(const JsonValue& keys);
// The keys that a config of this family may hold, read or passed over; empty when the family is unknown. For files whose
// keys a person writes: there an unknown key is a mistake.
std::vector<std::string_view> known_config_keys(const JsonValue& config);
// The same model with fewer MTP modules than the file names, or none: many files name one and hold no weights for it.
ModelConfig with_mtp(ModelConfig config, std::int64_t num_mtp);

}  // namespace planalto
