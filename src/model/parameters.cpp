// SPDX-License-Identifier: Apache-2.0
#include "model/parameters.h"

#include <charconv>

#include "base/error.h"
#include "model/families/family.h"

namespace planalto {
namespace {

std::string filled(std::string_view pattern, std::int64_t block, std::int64_t expert) {
  std::string name(pattern);
  for (const auto& [hole, value] : {std::pair{"{b}", block}, std::pair{"{e}", expert}}) {
    const std::size_t at = name.find(hole);
    if (at != std::string::npos) name.replace(at, 3, std::to_string(value));
  }
  return name;
}

class ParameterList {
 public:
  explicit ParameterList(const ModelConfig& config) : config_(config) {}

  // A vector of n elements in a block (or outside: block -1).
  ParameterSpec& vector(std::int64_t block, std::string_view slot, std::int64_t n, ParameterRole role,
                        ParameterInit init) {
    ParameterSpec& p = add(block, slot, 1, n, ParameterKind::vector, role);
    p.init = init;
    p.decay_by_default = false;
    p.pieces.push_back({.name = file_name(slot, block), .shape = {n}, .rows = 1});
    return p;
  }
  ParameterSpec& norm(std::int64_t block, std::string_view slot, std::int64_t n) {
    return vector(block, slot, n, ParameterRole::norm, ParameterInit::ones);
  }
  ParameterSpec& matrix(std::int64_t block, std::string_view slot, std::int64_t rows, std::int64_t cols,
                        ParameterRole role) {
    ParameterSpec& p = add(block, slot, rows, cols, ParameterKind::matrix, role);
    const WeightName& name = find_name(slot, 0);
    if (name.up.empty()) {
      p.pieces.push_back({.name = filled(name.file, block, 0), .shape = {rows, cols}, .rows = rows});
    } else {
      const std::int64_t half = rows / 2;
      p.pieces.push_back({.name = filled(name.file, block, 0), .shape = {half, cols}, .rows = half});
      p.pieces.push_back(
          {.name = filled(name.up, block, 0), .shape = {half, cols}, .first_row = half, .rows = half});
    }
    return p;
  }
  // The matrices [rows, cols] of all experts, one below the other.
  void experts(std::int64_t block, std::string_view slot, std::int64_t rows, std::int64_t cols) {
    const std::int64_t count = config_.moe.num_experts;
    ParameterSpec& p =
        add(block, slot, count * rows, cols, ParameterKind::stacked, ParameterRole::routed_expert);
    p.num_stacked = count;
    const WeightName& name = find_name(slot, 0);
    for (std::int64_t e = 0; e < count; ++e) {
      if (name.up.empty()) {
        p.pieces.push_back({.name = filled(name.file, block, e),
                            .shape = {rows, cols},
                            .first_row = e * rows,
                            .rows = rows});
        continue;
      }
      const std::int64_t half = rows / 2;
      p.pieces.push_back(
          {.name = filled(name.file, block, e), .shape = {half, cols}, .first_row = e * rows, .rows = half});
      p.pieces.push_back({.name = filled(name.up, block, e),
                          .shape = {half, cols},
                          .first_row = e * rows + half,
                          .rows = half});
    }
    const WeightName& fused = find_name(slot, 1);
    p.other_layouts.push_back(
        {{.name = filled(fused.file, block, 0), .shape = {count, rows, cols}, .rows = count * rows}});
    if (name.up.empty()) return;
    const WeightName& apart = find_name(slot, 2);
    const std::int64_t half = rows / 2;
    TensorPiece gate{
        .name = filled(apart.file, block, 0), .shape = {count, half, cols}, .rows = half, .groups = count};
    gate.group_stride = rows;
    TensorPiece up = gate;
    up.name = filled(apart.up, block, 0);
    up.first_row = half;
    p.other_layouts.push_back({gate, up});
  }

  std::string file_name(std::string_view slot, std::int64_t block) const {
    return filled(find_name(slot, 0).file, block, 0);
  }
  std::vector<ParameterSpec> take() { return std::move(list_); }

 private:
  const WeightName& find_name(std::string_view slot, int layout) const {
    for (const auto names : {config_.family->names, decoder_names()}) {
      for (const WeightName& name : names) {
        if (name.ours == slot && name.layout == layout) return name;
      }
    }
    fail(ErrorKind::internal, "family {} has no weight name for {} in layout {}", config_.family->model_type,
         slot, layout);
  }
  ParameterSpec& add(std::int64_t block, std::string_view slot, std::int64_t rows, std::int64_t cols,
                     ParameterKind kind, ParameterRole role) {
    ParameterSpec p;
    p.name = block < 0 ? std::string(slot) : "layers." + std::to_string(block) + "." + std::string(slot);
    p.rows = rows;
    p.cols = cols;
    p.kind = kind;
    p.role = role;
    p.block = block;
    return list_.emplace_back(std::move(p));
  }

  const ModelConfig& config_;
  std::vector<ParameterSpec> list_;
};

void add_gqa(ParameterList& list, const ModelConfig& c, std::int64_t b) {
  constexpr auto role = ParameterRole::attention;
  const AttentionConfig& a = c.attention;
  const std::int64_t q = a.num_heads * a.qk_dim;
  const std::int64_t k = a.num_kv_heads * a.qk_dim;
  const std::int64_t v = a.num_kv_heads * a.v_dim;
  list.matrix(b, "self_attn.q_proj", q, c.hidden_size, role);
  if (a.qkv_bias) list.vector(b, "self_attn.q_proj.bias", q, role, ParameterInit::zeros);
  list.matrix(b, "self_attn.k_proj", k, c.hidden_size, role);
  if (a.qkv_bias) list.vector(b, "self_attn.k_proj.bias", k, role, ParameterInit::zeros);
  list.matrix(b, "self_attn.v_proj", v, c.hidden_size, role);
  if (a.qkv_bias) list.vector(b, "self_attn.v_proj.bias", v, role, ParameterInit::zeros);
  if (a.qk_norm) {
    list.norm(b, "self_attn.q_norm", a.qk_dim);
    list.norm(b, "self_attn.k_norm", a.qk_dim);
  }
}

void add_mla(ParameterList& list, const ModelConfig& c, std::int64_t b) {
  constexpr auto role = ParameterRole::attention;
  const AttentionConfig& a = c.attention;
  const std::int64_t q = a.num_heads * a.qk_dim;
  if (a.q_lora_rank == 0) {
    list.matrix(b, "self_attn.q_proj", q, c.hidden_size, role);
  } else {
    list.matrix(b, "self_attn.q_a_proj", a.q_lora_rank, c.hidden_size, role);
    if (a.latent_bias) list.vector(b, "self_attn.q_a_proj.bias", a.q_lora_rank, role, ParameterInit::zeros);
    list.norm(b, "self_attn.q_a_layernorm", a.q_lora_rank);
    list.matrix(b, "self_attn.q_b_proj", q, a.q_lora_rank, role);
  }
  const std::int64_t latent = a.kv_lora_rank + a.rope_dim;
  list.matrix(b, "self_attn.kv_a_proj", latent, c.hidden_size, role);
  if (a.latent_bias) list.vector(b, "self_attn.kv_a_proj.bias", latent, role, ParameterInit::zeros);
  list.norm(b, "self_attn.kv_a_layernorm", a.kv_lora_rank);
  list.matrix(b, "self_attn.kv_b_proj", a.num_heads * (a.nope_dim + a.v_dim), a.kv_lora_rank, role);
}

void add_attention(ParameterList& list, const ModelConfig& c, std::int64_t b) {
  const AttentionConfig& a = c.attention;
  if (a.kind == AttentionKind::mla) {
    add_mla(list, c, b);
  } else {
    add_gqa(list, c, b);
  }
  list.matrix(b, "self_attn.o_proj", c.hidden_size, a.num_heads * a.v_dim, ParameterRole::attention);
  if (a.o_bias)
    list.vector(b, "self_attn.o_proj.bias", c.hidden_size, ParameterRole::attention, ParameterInit::zeros);
}

void add_moe(ParameterList& list, const ModelConfig& c, std::int64_t b) {
  const MoeConfig& moe = c.moe;
  list.matrix(b, "router", moe.num_experts, c.hidden_size, ParameterRole::router);
  if (moe.correction_bias) {
    list.vector(b, "router.correction_bias", moe.num_experts, ParameterRole::router_bias,
                ParameterInit::zeros)
        .trainable = false;
  }
  list.experts(b, "experts.gate_up", 2 * moe.width, c.hidden_size);
  list.experts(b, "experts.down", c.hidden_size, moe.width);
  if (moe.shared_width > 0) {
    list.matrix(b, "shared.gate_up", 2 * moe.shared_width, c.hidden_size, ParameterRole::shared_expert);
    list.matrix(b, "shared.down", c.hidden_size, moe.shared_width, ParameterRole::shared_expert);
  }
}

void add_block(ParameterList& list, const ModelConfig& c, std::int64_t b) {
  list.norm(b, "input_layernorm", c.hidden_size);
  add_attention(list, c, b);
  list.norm(b, "post_attention_layernorm", c.hidden_size);
  if (c.is_moe(b)) {
    add_moe(list, c, b);
  } else {
    list.matrix(b, "mlp.gate_up", 2 * c.dense_width, c.hidden_size, ParameterRole::dense_mlp);
    list.matrix(b, "mlp.down", c.hidden_size, c.dense_width, ParameterRole::dense_mlp);
  }
}

TensorPiece same_rows(std::string name, PieceUse use, const ParameterSpec& p) {
  return {.name = std::move(name), .shape = {p.rows, p.cols}, .use = use, .rows = p.rows};
}

// The number after "layers." in a bare name; -1 when there is none.
std::int64_t block_of(std::string_view name) {
  constexpr std::string_view prefix = "layers.";
  if (!name.starts_with(prefix)) return -1;
  name.remove_prefix(prefix.size());
  std::int64_t block = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), block);
  return error == std::errc{} && end < name.data() + name.size() && *end == '.' ? block : -1;
}

}  // namespace

std::vector<ParameterSpec> parameter_specs(const ModelConfig& c) {
  ParameterList list(c);
  ParameterSpec& embedding =
      list.matrix(-1, "embed_tokens", c.vocab_size, c.hidden_size, ParameterRole::embedding);
  if (c.tie_embeddings)
    embedding.pieces.push_back(same_rows(list.file_name("lm_head", -1), PieceUse::tied, embedding));
  for (std::int64_t b = c.num_layers; b < c.num_blocks(); ++b) {
    embedding.pieces.push_back(same_rows(list.file_name("mtp embed_tokens", b), PieceUse::copy, embedding));
    if (c.tie_embeddings) {
      embedding.pieces.push_back(same_rows(list.file_name("mtp lm_head", b), PieceUse::copy, embedding));
    }
  }
  for (std::int64_t b = 0; b < c.num_layers; ++b) add_block(list, c, b);
  list.norm(-1, "norm", c.hidden_size);
  if (!c.tie_embeddings) {
    ParameterSpec& head = list.matrix(-1, "lm_head", c.vocab_size, c.hidden_size, ParameterRole::head);
    for (std::int64_t b = c.num_layers; b < c.num_blocks(); ++b) {
      head.pieces.push_back(same_rows(list.file_name("mtp lm_head", b), PieceUse::copy, head));
    }
  }
  for (std::int64_t b = c.num_layers; b < c.num_blocks(); ++b) {
    list.norm(b, "enorm", c.hidden_size);
    list.norm(b, "hnorm", c.hidden_size);
    list.matrix(b, "eh_proj", c.hidden_size, 2 * c.hidden_size, ParameterRole::mtp);
    add_block(list, c, b);
    list.norm(b, "final_norm", c.hidden_size);
  }
  return list.take();
}

std::string_view bare_tensor_name(std::string_view name) {
  bool again = true;
  while (again) {
    again = false;
    for (const std::string_view prefix : {"model.", "language_model."}) {
      if (!name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      again = true;
    }
  }
  constexpr std::string_view suffix = ".weight";
  if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  return name;
}

bool may_ignore_tensor(const ModelConfig& config, std::string_view name) {
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  return block_of(bare_tensor_name(name)) >= config.num_blocks();
}

}  // namespace planalto
