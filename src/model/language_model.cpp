// SPDX-License-Identifier: Apache-2.0
#include "model/language_model.h"

#include <algorithm>

#include "ops/loss.h"
#include "ops/rows.h"

namespace planalto {

std::int64_t num_moe_blocks(const ModelConfig& config) {
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < config.num_blocks(); ++i) n += config.is_moe(i) ? 1 : 0;
  return n;
}

LanguageModel::LanguageModel(const ModelContext& m)
    : m_(&m),
      embedding_(&m.parameters->at("embed_tokens")),
      head_(&m.parameters->at(m.config->tie_embeddings ? "embed_tokens" : "lm_head")),
      final_norm_(m, "norm", m.config->norm_eps) {
  std::int64_t moe_idx = 0;
  for (std::int64_t i = 0; i < m.config->num_layers; ++i) {
    blocks_.emplace_back(m, i, m.config->is_moe(i) ? moe_idx++ : -1);
  }
  for (std::int64_t d = 0; d < m.config->num_mtp; ++d) {
    mtp_.emplace_back(m, d, m.config->is_moe(m.config->num_layers + d) ? moe_idx++ : -1);
  }
}

Buffer LanguageModel::hidden_states(Builder& b, const ops::Batch& batch) {
  Buffer x = b.transient("embedded", m_->dtype, batch.max_tokens, m_->config->hidden_size, Role::boundary);
  ops::embedding(b, "embed", embedding_->weight, batch, x);
  m_->observe(b, "hidden_states.embed", x, batch.tokens());
  for (Block& block : blocks_) x = block.forward(b, batch, x);
  final_hidden_ = final_norm_.forward(b, batch.tokens(), x);
  m_->observe(b, "hidden_states.final_norm", final_hidden_, batch.tokens());
  return final_hidden_;
}

Buffer LanguageModel::hidden_states_cached(Builder& b, const ops::Batch& batch,
                                           const std::vector<KvCache>& caches) {
  Buffer x = b.transient("embedded", m_->dtype, batch.max_tokens, m_->config->hidden_size);
  ops::embedding(b, "embed", embedding_->weight, batch, x);
  for (std::size_t i = 0; i < blocks_.size(); ++i) x = blocks_[i].forward_cached(b, batch, x, caches[i]);
  final_hidden_ = final_norm_.forward(b, batch.tokens(), x);
  return final_hidden_;
}

void LanguageModel::losses(Builder& b, const ops::Batch& batch, Buffer grad_scales) {
  grads_.clear();
  auto head = [&](const std::string& name, Buffer h, const ops::Batch& rows, std::int64_t index) {
    ops::LossOutputs out{.loss_sums = m_->loss_sums,
                         .index = index,
                         .row_loss = {},
                         .grad_scales = grad_scales,
                         .dx = {},
                         .dw = {}};
    if (grad_scales.valid()) {
      out.dx = b.transient(name + ".dx", m_->dtype, batch.max_tokens, m_->config->hidden_size);
      out.dw = head_->gradient;
      grads_.push_back(out.dx);
    }
    ops::loss_head(b, name, h, head_->matrix(), rows, m_->options.loss_tile_rows, out);
  };
  head("loss_head", final_hidden_, batch, 0);
  Buffer h = final_hidden_;
  const ops::Batch* before = &batch;
  for (std::size_t d = 0; d < mtp_.size(); ++d) {
    h = mtp_[d].forward(b, *before, h);
    before = &mtp_[d].batch();
    head("mtp." + std::to_string(d) + ".loss_head", h, *before, static_cast<std::int64_t>(d) + 1);
  }
}

// A loss that joins layers needs the routes of all of them before the first layer's backward.
void LanguageModel::join_counts(Builder& b) const {
  std::vector<Buffer> counts;
  Op op;
  op.name = "join_counts";
  op.kind = "join_counts";
  for (const Block& block : blocks_) {
    if (block.moe() == nullptr) continue;
    counts.push_back(block.moe()->routes().counts);
    op.accesses.push_back(ops::reads(counts.back()));
  }
  op.accesses.push_back(ops::writes(m_->joined_counts));
  const Buffer to = m_->joined_counts;
  const std::int64_t num_experts = m_->config->moe.num_experts;
  op.run = [counts, to, num_experts](const RunContext& ctx) {
    auto* sum = ctx.data<std::int64_t>(to);
    std::fill_n(sum, num_experts, 0);
    for (const Buffer c : counts) {
      for (std::int64_t e = 0; e < num_experts; ++e) sum[e] += ctx.data<std::int64_t>(c)[e];
    }
  };
  b.emit(std::move(op));
}

void LanguageModel::backward(Builder& b, const ops::Batch& batch) {
  if (m_->joined_counts.valid()) join_counts(b);
  for (std::size_t d = mtp_.size(); d-- > 0;) mtp_[d].backward(b, grads_[d + 1], grads_[d]);
  const Buffer grad = grads_[0];
  final_norm_.backward(b, batch.tokens(), grad, grad, false);
  for (std::size_t i = blocks_.size(); i-- > 0;) blocks_[i].backward(b, batch, grad);
  ops::embedding_backward(b, "embed.backward", batch, grad, embedding_->gradient, m_->config->pad_token_id);
}

}  // namespace planalto
