// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "model/attention.h"
#include "ops/cache.h"
#include "ops/linear.h"
#include "ops/rows.h"

namespace planalto {

namespace {

// Queries: x -> (latent -> norm ->) heads of [nope | rope]. Keys and values: x -> [latent | rope key]; the normalised latent
// becomes heads of [nope | v]; the rope key is shared by all heads.
class MlaAttention final : public Attention {
 public:
  MlaAttention(const ModelContext& m, std::int64_t block);
  Buffer forward(Builder& b, const ops::Batch& batch, Buffer x) override;
  void backward(Builder& b, const ops::Batch& batch, Buffer dy, Buffer dx, bool accumulate) override;
  Buffer forward_cached(Builder& b, const ops::Batch& batch, Buffer x, const KvCache& cache) override;

 private:
  const Parameter* find(const std::string& name) const;
  static Buffer weight(const Parameter* p) { return p != nullptr ? p->weight : Buffer{}; }
  void project_queries(Builder& b, const ops::Batch& batch, Buffer x);
  void project_latent(Builder& b, const ops::Batch& batch, Buffer x);
  void queries_backward(Builder& b, const ops::Batch& batch, Buffer dq, Buffer dx, bool accumulate);
  void latent_backward(Builder& b, const ops::Batch& batch, Buffer dkv, Buffer dkv_a, Buffer dx);
  ops::RopeShape query_rope() const;
  ops::RopeShape key_rope() const;
  ops::MlaKeysShape keys_shape() const;
  ops::AttentionOperands operands(const ops::Batch& batch) const;
  Buffer output(Builder& b, const ops::Batch& batch, Buffer heads) const;

  const ModelContext* m_;
  const AttentionConfig* a_;
  std::string prefix_;
  const Parameter *q_ = nullptr, *q_a_ = nullptr, *q_a_bias_ = nullptr, *q_b_ = nullptr;
  const Parameter *kv_a_ = nullptr, *kv_a_bias_ = nullptr, *kv_b_ = nullptr, *o_ = nullptr,
                  *o_bias_ = nullptr;
  std::optional<Norm> q_a_norm_, kv_a_norm_;
  Buffer x_, q_latent_, q_latent_normed_, q_heads_, kv_latent_, kv_latent_normed_, kv_heads_, keys_, out_,
      lse_;
};

MlaAttention::MlaAttention(const ModelContext& m, std::int64_t block)
    : m_(&m), a_(&m.config->attention), prefix_("layers." + std::to_string(block) + ".self_attn.") {
  if (a_->q_lora_rank > 0) {
    q_a_ = find("q_a_proj");
    q_b_ = find("q_b_proj");
    if (a_->latent_bias) q_a_bias_ = find("q_a_proj.bias");
    q_a_norm_.emplace(m, prefix_ + "q_a_layernorm", a_->latent_norm_eps);
  } else {
    q_ = find("q_proj");
  }
  kv_a_ = find("kv_a_proj");
  if (a_->latent_bias) kv_a_bias_ = find("kv_a_proj.bias");
  kv_a_norm_.emplace(m, prefix_ + "kv_a_layernorm", a_->latent_norm_eps);
  kv_b_ = find("kv_b_proj");
  o_ = find("o_proj");
  if (a_->o_bias) o_bias_ = find("o_proj.bias");
}

const Parameter* MlaAttention::find(const std::string& name) const {
  return &m_->parameters->at(prefix_ + name);
}

ops::RopeShape MlaAttention::query_rope() const {
  return {a_->num_heads, a_->qk_dim, a_->nope_dim, a_->rope_dim / 2, a_->rope.style, m_->rope_table};
}
ops::RopeShape MlaAttention::key_rope() const {
  return {
      1, a_->kv_lora_rank + a_->rope_dim, a_->kv_lora_rank, a_->rope_dim / 2, a_->rope.style, m_->rope_table};
}
ops::MlaKeysShape MlaAttention::keys_shape() const {
  return {a_->num_heads, a_->nope_dim, a_->rope_dim, a_->nope_dim + a_->v_dim};
}

void MlaAttention::project_queries(Builder& b, const ops::Batch& batch, Buffer x) {
  const std::int64_t t = batch.max_tokens;
  const ops::Rows rows = batch.tokens();
  q_heads_ = b.transient("q", m_->dtype, t, a_->num_heads * a_->qk_dim);
  if (q_ != nullptr) {
    ops::linear(b, "q_proj", x, q_->matrix(), q_heads_, rows);
  } else {
    q_latent_ = b.transient("q_latent", m_->dtype, t, a_->q_lora_rank);
    ops::linear(b, "q_a_proj", x, q_a_->matrix(), q_latent_, rows, weight(q_a_bias_));
    q_latent_normed_ = q_a_norm_->forward(b, rows, q_latent_);
    ops::linear(b, "q_b_proj", q_latent_normed_, q_b_->matrix(), q_heads_, rows);
  }
  ops::rope(b, "q_rope", q_heads_, batch, query_rope(), false);
}

void MlaAttention::project_latent(Builder& b, const ops::Batch& batch, Buffer x) {
  const ops::Rows rows = batch.tokens();
  kv_latent_ = b.transient("kv_latent", m_->dtype, batch.max_tokens, a_->kv_lora_rank + a_->rope_dim);
  ops::linear(b, "kv_a_proj", x, kv_a_->matrix(), kv_latent_, rows, weight(kv_a_bias_));
  kv_latent_normed_ = kv_a_norm_->forward(b, rows, {kv_latent_, 0, a_->kv_lora_rank});
  ops::rope(b, "k_rope", kv_latent_, batch, key_rope(), false);
}

ops::AttentionOperands MlaAttention::operands(const ops::Batch& batch) const {
  const std::int64_t t = batch.max_tokens, kv_stride = a_->nope_dim + a_->v_dim;
  return {.shape = {m_->dtype, a_->num_heads, a_->num_heads, a_->qk_dim, a_->v_dim, a_->softmax_scale,
                    a_->window, t, t},
          .q = {q_heads_, a_->qk_dim},
          .k = {keys_, a_->qk_dim},
          .v = {{kv_heads_, a_->nope_dim, a_->num_heads * kv_stride - a_->nope_dim}, kv_stride},
          .out = {out_, a_->v_dim},
          .lse = lse_,
          .q_offsets = batch.doc_offsets,
          .kv_offsets = batch.doc_offsets,
          .documents = batch.documents()};
}

Buffer MlaAttention::output(Builder& b, const ops::Batch& batch, Buffer heads) const {
  const Buffer y = b.transient("y", m_->dtype, batch.max_tokens, m_->config->hidden_size);
  ops::linear(b, "o_proj", heads, o_->matrix(), y, batch.tokens(), weight(o_bias_));
  return y;
}

Buffer MlaAttention::forward(Builder& b, const ops::Batch& batch, Buffer x) {
  const auto scope = b.scope("self_attn");
  const std::int64_t t = batch.max_tokens, h = a_->num_heads;
  const ops::Rows rows = batch.tokens();
  x_ = x;
  project_queries(b, batch, x);
  project_latent(b, batch, x);
  kv_heads_ = b.transient("kv", m_->dtype, t, h * (a_->nope_dim + a_->v_dim));
  ops::linear(b, "kv_b_proj", kv_latent_normed_, kv_b_->matrix(), kv_heads_, rows);
  keys_ = b.transient("keys", m_->dtype, t, h * a_->qk_dim);
  ops::mla_keys(b, "keys", kv_heads_, {kv_latent_, a_->kv_lora_rank, a_->rope_dim}, keys_, rows,
                keys_shape());
  out_ = b.transient("out", m_->dtype, t, h * a_->v_dim);
  lse_ = m_->options.training ? b.transient("lse", DType::f32, t, h) : Buffer{};
  ops::attention(b, "attention", operands(batch));
  return output(b, batch, out_);
}

void MlaAttention::backward(Builder& b, const ops::Batch& batch, Buffer dy, Buffer dx, bool accumulate) {
  const auto scope = b.scope("self_attn");
  const std::int64_t t = batch.max_tokens, h = a_->num_heads, kv_stride = a_->nope_dim + a_->v_dim;
  const ops::Rows rows = batch.tokens();
  if (o_bias_ != nullptr) ops::bias_grad(b, "o_proj.bias_grad", dy, o_bias_->gradient, rows);
  ops::linear_grad_weight(b, "o_proj.grad_weight", dy, out_, o_->gradient, rows);
  const Buffer dout = b.transient("dout", m_->dtype, t, h * a_->v_dim);
  ops::linear_grad_input(b, "o_proj.grad_input", dy, o_->matrix(), dout, rows);
  const Buffer dq = b.transient("dq", m_->dtype, t, h * a_->qk_dim);
  const Buffer dkeys = b.transient("dkeys", m_->dtype, t, h * a_->qk_dim);
  const Buffer dkv = b.transient("dkv", m_->dtype, t, h * kv_stride);  // values here, keys' nope part below
  ops::attention_backward(b, "attention.backward", operands(batch), {dout, a_->v_dim}, {dq, a_->qk_dim},
                          {dkeys, a_->qk_dim},
                          {{dkv, a_->nope_dim, h * kv_stride - a_->nope_dim}, kv_stride});
  queries_backward(b, batch, dq, dx, accumulate);
  const Buffer dkv_a = b.transient("dkv_latent", m_->dtype, t, a_->kv_lora_rank + a_->rope_dim);
  ops::mla_keys_backward(b, "keys.backward", dkeys, dkv, {dkv_a, a_->kv_lora_rank, a_->rope_dim}, rows,
                         keys_shape());
  latent_backward(b, batch, dkv, dkv_a, dx);
}

void MlaAttention::queries_backward(Builder& b, const ops::Batch& batch, Buffer dq, Buffer dx,
                                    bool accumulate) {
  const ops::Rows rows = batch.tokens();
  ops::rope(b, "q_rope.backward", dq, batch, query_rope(), true);
  if (q_ != nullptr) {
    ops::linear_grad_weight(b, "q_proj.grad_weight", dq, x_, q_->gradient, rows);
    ops::linear_grad_input(b, "q_proj.grad_input", dq, q_->matrix(), dx, rows, accumulate);
    return;
  }
  ops::linear_grad_weight(b, "q_b_proj.grad_weight", dq, q_latent_normed_, q_b_->gradient, rows);
  const Buffer dlatent = b.transient("dq_latent", m_->dtype, batch.max_tokens, a_->q_lora_rank);
  ops::linear_grad_input(b, "q_b_proj.grad_input", dq, q_b_->matrix(), dlatent, rows);
  q_a_norm_->backward(b, rows, dlatent, dlatent, false);
  if (q_a_bias_ != nullptr) ops::bias_grad(b, "q_a_proj.bias_grad", dlatent, q_a_bias_->gradient, rows);
  ops::linear_grad_weight(b, "q_a_proj.grad_weight", dlatent, x_, q_a_->gradient, rows);
  ops::linear_grad_input(b, "q_a_proj.grad_input", dlatent, q_a_->matrix(), dx, rows, accumulate);
}

void MlaAttention::latent_backward(Builder& b, const ops::Batch& batch, Buffer dkv, Buffer dkv_a, Buffer dx) {
  const ops::Rows rows = batch.tokens();
  ops::rope(b, "k_rope.backward", dkv_a, batch, key_rope(), true);
  ops::linear_grad_weight(b, "kv_b_proj.grad_weight", dkv, kv_latent_normed_, kv_b_->gradient, rows);
  const Buffer dnormed = b.transient("dkv_latent_normed", m_->dtype, batch.max_tokens, a_->kv_lora_rank);
  ops::linear_grad_input(b, "kv_b_proj.grad_input", dkv, kv_b_->matrix(), dnormed, rows);
  kv_a_norm_->backward(b, rows, dnormed, {dkv_a, 0, a_->kv_lora_rank}, false);
  if (kv_a_bias_ != nullptr) ops::bias_grad(b, "kv_a_proj.bias_grad", dkv_a, kv_a_bias_->gradient, rows);
  ops::linear_grad_weight(b, "kv_a_proj.grad_weight", dkv_a, x_, kv_a_->gradient, rows);
  ops::linear_grad_input(b, "kv_a_proj.grad_input", dkv_a, kv_a_->matrix(), dx, rows, true);
}

// The cache holds [normalised latent | rotated rope key] a token. W_kv_b is absorbed: a query's nope part goes through its key
// half, so all heads attend to the latents themselves (one key head), and the result goes through the value half.
Buffer MlaAttention::forward_cached(Builder& b, const ops::Batch& batch, Buffer x, const KvCache& cache) {
  const auto scope = b.scope("self_attn");
  const std::int64_t t = batch.max_tokens, h = a_->num_heads, lora = a_->kv_lora_rank,
                     rope_dim = a_->rope_dim;
  const std::int64_t wide = lora + rope_dim, kv_stride = a_->nope_dim + a_->v_dim;
  const ops::Rows rows = batch.tokens();
  project_queries(b, batch, x);
  project_latent(b, batch, x);
  ops::append_rows(b, "append_latent", kv_latent_normed_, {cache.keys, 0, lora}, cache.length, rows);
  ops::append_rows(b, "append_rope", {kv_latent_, lora, rope_dim}, {cache.keys, lora, rope_dim}, cache.length,
                   rows);
  const Buffer q_wide = b.transient("q_absorbed", m_->dtype, t, h * wide);
  ops::per_head_product(b, "absorb_keys", q_heads_, kv_b_->weight, q_wide, rows,
                        {.heads = h,
                         .first_row = 0,
                         .row_stride = kv_stride,
                         .rows = a_->nope_dim,
                         .x_first = 0,
                         .x_stride = a_->qk_dim,
                         .y_first = 0,
                         .y_stride = wide});
  for (std::int64_t i = 0; i < h; ++i) {
    ops::add(b, "query_rope", {q_heads_, i * a_->qk_dim + a_->nope_dim, rope_dim}, {},
             {q_wide, i * wide + lora, rope_dim}, rows);
  }
  const Buffer out_wide = b.transient("out_latent", m_->dtype, t, h * lora);
  ops::attention(b, "attention",
                 {.shape = {m_->dtype, h, 1, wide, lora, a_->softmax_scale, a_->window, t, cache.max_len},
                  .q = {q_wide, wide},
                  .k = {cache.keys, wide},
                  .v = {{cache.keys, 0, lora}, wide},
                  .out = {out_wide, lora},
                  .lse = {},
                  .q_offsets = batch.doc_offsets,
                  .kv_offsets = cache.kv_offsets,
                  .documents = batch.documents()});
  const Buffer out = b.transient("out", m_->dtype, t, h * a_->v_dim);
  ops::per_head_product(b, "absorb_values", out_wide, kv_b_->weight, out, rows,
                        {.heads = h,
                         .first_row = a_->nope_dim,
                         .row_stride = kv_stride,
                         .rows = a_->v_dim,
                         .x_first = 0,
                         .x_stride = lora,
                         .y_first = 0,
                         .y_stride = a_->v_dim,
                         .transposed = true});
  return output(b, batch, out);
}

}  // namespace

std::unique_ptr<Attention> make_mla(const ModelContext& m, std::int64_t block) {
  return std::make_unique<MlaAttention>(m, block);
}

}  // namespace planalto
