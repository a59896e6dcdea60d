// SPDX-License-Identifier: Apache-2.0
#include "model/block.h"

namespace planalto {

Block::Block(const ModelContext& m, std::int64_t block, std::int64_t moe_idx)
    : m_(&m), block_(block), scope_("layers." + std::to_string(block)) {
  attention_norm_ = Norm(m, scope_ + ".input_layernorm", m.config->norm_eps);
  mlp_norm_ = Norm(m, scope_ + ".post_attention_layernorm", m.config->norm_eps);
  attention_ = make_attention(m, block);
  if (moe_idx >= 0) {
    moe_.emplace(m, block, moe_idx);
  } else {
    mlp_.emplace(m, scope_ + ".mlp");
  }
}

Buffer Block::emit_forward(Builder& b, const ops::Batch& batch, Buffer x, Pass pass, const KvCache* cache) {
  const auto scope = b.scope(pass == Pass::first ? scope_ : scope_ + ".again");
  const ops::Rows rows = batch.tokens();
  const std::int64_t t = batch.max_tokens, d = m_->config->hidden_size;
  const Buffer attention_in = attention_norm_.forward(b, rows, x);
  const Buffer attention_out = cache != nullptr ? attention_->forward_cached(b, batch, attention_in, *cache)
                                                : attention_->forward(b, batch, attention_in);
  if (pass == Pass::first) m_->observe(b, "attn_out.layer" + std::to_string(block_), attention_out, rows);
  const Buffer middle = b.transient("middle", m_->dtype, t, d);
  ops::add(b, "attention_residual", x, attention_out, middle, rows);
  const Buffer mlp_in = mlp_norm_.forward(b, rows, middle);
  const Buffer mlp_out = b.transient("mlp_out", m_->dtype, t, d);
  if (moe_) {
    moe_->forward(b, batch, mlp_in, mlp_out, pass);
  } else {
    mlp_->forward(b, rows, mlp_in, mlp_out, false);
  }
  const Buffer y = b.transient("out", m_->dtype, t, d, Role::boundary);
  ops::add(b, "mlp_residual", middle, mlp_out, y, rows);
  if (pass == Pass::first) m_->observe(b, "hidden_states.layer" + std::to_string(block_), y, rows);
  return y;
}

Buffer Block::forward(Builder& b, const ops::Batch& batch, Buffer x) {
  x_ = x;
  return emit_forward(b, batch, x, Pass::first, nullptr);
}

Buffer Block::forward_cached(Builder& b, const ops::Batch& batch, Buffer x, const KvCache& cache) {
  return emit_forward(b, batch, x, Pass::first, &cache);
}

void Block::backward(Builder& b, const ops::Batch& batch, Buffer grad) {
  if (m_->options.recompute) emit_forward(b, batch, x_, Pass::again, nullptr);
  const auto scope = b.scope(scope_);
  const ops::Rows rows = batch.tokens();
  const std::int64_t t = batch.max_tokens, d = m_->config->hidden_size;
  const Buffer dmlp_in = b.transient("dmlp_in", m_->dtype, t, d);
  if (moe_) {
    moe_->backward(b, batch, grad, dmlp_in);
  } else {
    mlp_->backward(b, rows, grad, dmlp_in, false);
  }
  mlp_norm_.backward(b, rows, dmlp_in, grad, true);
  const Buffer dattention_in = b.transient("dattention_in", m_->dtype, t, d);
  attention_->backward(b, batch, grad, dattention_in, false);
  attention_norm_.backward(b, rows, dattention_in, grad, true);
}

}  // namespace planalto
