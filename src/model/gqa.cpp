// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "model/attention.h"
#include "ops/cache.h"
#include "ops/linear.h"
#include "ops/rows.h"

namespace planalto {

namespace {

// One of the projections q, k, v: product, optional bias, optional norm per head, rotation (q and k).
struct Projection {
  const Parameter* weight = nullptr;
  const Parameter* bias = nullptr;
  std::optional<Norm> norm;
  std::int64_t heads = 0, head_dim = 0;
  bool rotates = false;
  Buffer raw, value;  // before and after the norm; the same buffer without one
};

class GqaAttention final : public Attention {
 public:
  GqaAttention(const ModelContext& m, std::int64_t block);
  Buffer forward(Builder& b, const ops::Batch& batch, Buffer x) override;
  void backward(Builder& b, const ops::Batch& batch, Buffer dy, Buffer dx, bool accumulate) override;
  Buffer forward_cached(Builder& b, const ops::Batch& batch, Buffer x, const KvCache& cache) override;

 private:
  Projection projection(const std::string& name, std::int64_t heads, std::int64_t head_dim,
                        bool rotates) const;
  void project(Builder& b, const ops::Batch& batch, Buffer x, const std::string& name, Projection& p) const;
  void project_backward(Builder& b, const ops::Batch& batch, const std::string& name, const Projection& p,
                        Buffer dvalue, Buffer dx, bool accumulate) const;
  ops::RopeShape rope_shape(const Projection& p) const;
  ops::AttentionOperands operands(const ops::Batch& batch, Buffer keys, Buffer values, Buffer kv_offsets,
                                  std::int64_t max_kv_rows) const;
  Buffer output(Builder& b, const ops::Batch& batch) const;

  const ModelContext* m_;
  std::string prefix_;
  Projection q_, k_, v_;
  const Parameter* o_ = nullptr;
  const Parameter* o_bias_ = nullptr;
  Buffer x_, out_, lse_;
};

GqaAttention::GqaAttention(const ModelContext& m, std::int64_t block)
    : m_(&m), prefix_("layers." + std::to_string(block) + ".self_attn.") {
  const AttentionConfig& a = m.config->attention;
  q_ = projection("q", a.num_heads, a.qk_dim, true);
  k_ = projection("k", a.num_kv_heads, a.qk_dim, true);
  v_ = projection("v", a.num_kv_heads, a.v_dim, false);
  o_ = &m.parameters->at(prefix_ + "o_proj");
  if (a.o_bias) o_bias_ = &m.parameters->at(prefix_ + "o_proj.bias");
}

Projection GqaAttention::projection(const std::string& name, std::int64_t heads, std::int64_t head_dim,
                                    bool rotates) const {
  const AttentionConfig& a = m_->config->attention;
  Projection p;
  p.weight = &m_->parameters->at(prefix_ + name + "_proj");
  if (a.qkv_bias) p.bias = &m_->parameters->at(prefix_ + name + "_proj.bias");
  if (a.qk_norm && rotates) p.norm.emplace(*m_, prefix_ + name + "_norm", m_->config->norm_eps, heads);
  p.heads = heads;
  p.head_dim = head_dim;
  p.rotates = rotates;
  return p;
}

ops::RopeShape GqaAttention::rope_shape(const Projection& p) const {
  const RopeConfig& rope = m_->config->attention.rope;
  return {p.heads, p.head_dim, 0, rope.rotary_dim / 2, rope.style, m_->rope_table};
}

ops::AttentionOperands GqaAttention::operands(const ops::Batch& batch, Buffer keys, Buffer values,
                                              Buffer kv_offsets, std::int64_t max_kv_rows) const {
  const AttentionConfig& a = m_->config->attention;
  return {.shape = {m_->dtype, a.num_heads, a.num_kv_heads, a.qk_dim, a.v_dim, a.softmax_scale, a.window,
                    batch.max_tokens, max_kv_rows},
          .q = {q_.value, q_.head_dim},
          .k = {keys, k_.head_dim},
          .v = {values, v_.head_dim},
          .out = {out_, v_.head_dim},
          .lse = lse_,
          .q_offsets = batch.doc_offsets,
          .kv_offsets = kv_offsets,
          .documents = batch.documents()};
}

void GqaAttention::project(Builder& b, const ops::Batch& batch, Buffer x, const std::string& name,
                           Projection& p) const {
  p.raw = b.transient(name, m_->dtype, batch.max_tokens, p.heads * p.head_dim);
  ops::linear(b, name + "_proj", x, p.weight->matrix(), p.raw, batch.tokens(),
              p.bias != nullptr ? p.bias->weight : Buffer{});
  p.value = p.norm ? p.norm->forward(b, batch.tokens(), p.raw) : p.raw;
  if (p.rotates) ops::rope(b, name + "_rope", p.value, batch, rope_shape(p), false);
}

void GqaAttention::project_backward(Builder& b, const ops::Batch& batch, const std::string& name,
                                    const Projection& p, Buffer dvalue, Buffer dx, bool accumulate) const {
  const ops::Rows rows = batch.tokens();
  if (p.rotates) ops::rope(b, name + "_rope.backward", dvalue, batch, rope_shape(p), true);
  if (p.norm) p.norm->backward(b, rows, dvalue, dvalue, false);
  if (p.bias != nullptr) ops::bias_grad(b, name + "_proj.bias_grad", dvalue, p.bias->gradient, rows);
  ops::linear_grad_weight(b, name + "_proj.grad_weight", dvalue, x_, p.weight->gradient, rows);
  ops::linear_grad_input(b, name + "_proj.grad_input", dvalue, p.weight->matrix(), dx, rows, accumulate);
}

Buffer GqaAttention::output(Builder& b, const ops::Batch& batch) const {
  const Buffer y = b.transient("y", m_->dtype, batch.max_tokens, m_->config->hidden_size);
  ops::linear(b, "o_proj", out_, o_->matrix(), y, batch.tokens(),
              o_bias_ != nullptr ? o_bias_->weight : Buffer{});
  return y;
}

Buffer GqaAttention::forward(Builder& b, const ops::Batch& batch, Buffer x) {
  const auto scope = b.scope("self_attn");
  const std::int64_t t = batch.max_tokens;
  x_ = x;
  project(b, batch, x, "q", q_);
  project(b, batch, x, "k", k_);
  project(b, batch, x, "v", v_);
  out_ = b.transient("out", m_->dtype, t, q_.heads * v_.head_dim);
  lse_ = m_->options.training ? b.transient("lse", DType::f32, t, q_.heads) : Buffer{};
  ops::attention(b, "attention", operands(batch, k_.value, v_.value, batch.doc_offsets, t));
  return output(b, batch);
}

void GqaAttention::backward(Builder& b, const ops::Batch& batch, Buffer dy, Buffer dx, bool accumulate) {
  const auto scope = b.scope("self_attn");
  const std::int64_t t = batch.max_tokens;
  const ops::Rows rows = batch.tokens();
  if (o_bias_ != nullptr) ops::bias_grad(b, "o_proj.bias_grad", dy, o_bias_->gradient, rows);
  ops::linear_grad_weight(b, "o_proj.grad_weight", dy, out_, o_->gradient, rows);
  const Buffer dout = b.transient("dout", m_->dtype, t, q_.heads * v_.head_dim);
  ops::linear_grad_input(b, "o_proj.grad_input", dy, o_->matrix(), dout, rows);
  const Buffer dq = b.transient("dq", m_->dtype, t, q_.heads * q_.head_dim);
  const Buffer dk = b.transient("dk", m_->dtype, t, k_.heads * k_.head_dim);
  const Buffer dv = b.transient("dv", m_->dtype, t, v_.heads * v_.head_dim);
  ops::attention_backward(b, "attention.backward", operands(batch, k_.value, v_.value, batch.doc_offsets, t),
                          {dout, v_.head_dim}, {dq, q_.head_dim}, {dk, k_.head_dim}, {dv, v_.head_dim});
  project_backward(b, batch, "q", q_, dq, dx, accumulate);
  project_backward(b, batch, "k", k_, dk, dx, true);
  project_backward(b, batch, "v", v_, dv, dx, true);
}

Buffer GqaAttention::forward_cached(Builder& b, const ops::Batch& batch, Buffer x, const KvCache& cache) {
  const auto scope = b.scope("self_attn");
  const std::int64_t t = batch.max_tokens;
  project(b, batch, x, "q", q_);
  project(b, batch, x, "k", k_);
  project(b, batch, x, "v", v_);
  ops::append_rows(b, "append_keys", k_.value, cache.keys, cache.length, batch.tokens());
  ops::append_rows(b, "append_values", v_.value, cache.values, cache.length, batch.tokens());
  out_ = b.transient("out", m_->dtype, t, q_.heads * v_.head_dim);
  lse_ = {};
  ops::attention(b, "attention", operands(batch, cache.keys, cache.values, cache.kv_offsets, cache.max_len));
  return output(b, batch);
}

}  // namespace

std::unique_ptr<Attention> make_gqa(const ModelContext& m, std::int64_t block) {
  return std::make_unique<GqaAttention>(m, block);
}

std::unique_ptr<Attention> make_attention(const ModelContext& m, std::int64_t block) {
  return m.config->attention.kind == AttentionKind::gqa ? make_gqa(m, block) : make_mla(m, block);
}

KvCache make_kv_cache(BufferTable& table, const ModelConfig& config, DType dtype, std::int64_t block,
                      std::int64_t max_len, Buffer kv_offsets, Buffer length) {
  const AttentionConfig& a = config.attention;
  auto add = [&](const char* kind, std::int64_t cols) {
    return table.add({.name = std::string(kind) + "." + std::to_string(block),
                      .dtype = dtype,
                      .rows = max_len,
                      .cols = cols,
                      .role = Role::input,
                      .persistent = true});
  };
  KvCache c;
  c.max_len = max_len;
  c.kv_offsets = kv_offsets;
  c.length = length;
  if (a.kind == AttentionKind::gqa) {
    c.keys = add("cache.keys", a.num_kv_heads * a.qk_dim);
    c.values = add("cache.values", a.num_kv_heads * a.v_dim);
  } else {
    c.keys = add("cache.latents", a.kv_lora_rank + a.rope_dim);
  }
  return c;
}

}  // namespace planalto
