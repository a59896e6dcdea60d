// SPDX-License-Identifier: Apache-2.0
#include "model/counts.h"

namespace planalto {
namespace {

std::int64_t attention_elements(const ModelConfig& c) {
  const AttentionConfig& a = c.attention;
  const std::int64_t d = c.hidden_size;
  std::int64_t n = a.num_heads * a.v_dim * d + (a.o_bias ? d : 0);
  if (a.kind == AttentionKind::gqa) {
    const std::int64_t width = a.num_heads * a.qk_dim + a.num_kv_heads * (a.qk_dim + a.v_dim);
    return n + width * d + (a.qkv_bias ? width : 0) + (a.qk_norm ? 2 * a.qk_dim : 0);
  }
  const std::int64_t q = a.num_heads * a.qk_dim;
  const std::int64_t latent = a.kv_lora_rank + a.rope_dim;
  n += latent * d + a.kv_lora_rank + a.kv_lora_rank * a.num_heads * (a.nope_dim + a.v_dim);
  n += a.q_lora_rank == 0 ? q * d : a.q_lora_rank * (d + 1 + q);
  if (a.latent_bias) n += a.q_lora_rank + latent;
  return n;
}

}  // namespace

ParameterCounts count_parameters(const ModelConfig& c) {
  const MoeConfig& moe = c.moe;
  const std::int64_t d = c.hidden_size;
  const std::int64_t routed_layer = moe.num_experts * 3 * moe.width * d;
  const std::int64_t moe_layer = routed_layer + moe.num_experts * d + 3 * moe.shared_width * d;
  const std::int64_t block = attention_elements(c) + 2 * d;
  ParameterCounts n;
  n.layers = c.num_layers;
  n.moe_layers = c.num_moe_layers();
  n.routed = n.moe_layers * routed_layer;
  n.embedding = c.vocab_size * d;
  n.head = c.tie_embeddings ? 0 : n.embedding;
  n.total = n.embedding + n.head + d + n.layers * block + n.moe_layers * moe_layer +
            (n.layers - n.moe_layers) * 3 * c.dense_width * d;
  n.active_with_embedding = n.total - n.routed;
  if (moe.num_experts > 0) n.active_with_embedding += n.routed / moe.num_experts * moe.top_k;
  n.active_without_embedding = n.active_with_embedding - (c.tie_embeddings ? 0 : n.embedding);
  n.router_bias = moe.correction_bias ? n.moe_layers * moe.num_experts : 0;
  for (std::int64_t b = c.num_layers; b < c.num_blocks(); ++b)
    n.mtp += block + (c.is_moe(b) ? moe_layer : 3 * c.dense_width * d) + 2 * d * d + 3 * d;
  return n;
}

double train_flops_per_token(const ModelConfig& c, std::int64_t sequence_length) {
  const AttentionConfig& a = c.attention;
  const double scores =
      static_cast<double>(a.num_heads * (a.qk_dim + a.v_dim)) * static_cast<double>(sequence_length);
  return 6.0 * (static_cast<double>(count_parameters(c).active_without_embedding) +
                scores * static_cast<double>(c.num_layers));
}

}  // namespace planalto
