// SPDX-License-Identifier: Apache-2.0
#include "model/mtp.h"

#include "ops/linear.h"
#include "ops/rows.h"

namespace planalto {

namespace {

std::string block_prefix(const ModelContext& m, std::int64_t depth) {
  return "layers." + std::to_string(m.config->num_layers + depth);
}

struct BatchPointers {
  std::int32_t *ids, *labels, *positions, *doc_offsets;
  std::int64_t* counts;
  BatchPointers(const RunContext& ctx, const ops::Batch& batch)
      : ids(ctx.data<std::int32_t>(batch.ids)),
        labels(ctx.data<std::int32_t>(batch.labels)),
        positions(ctx.data<std::int32_t>(batch.positions)),
        doc_offsets(ctx.data<std::int32_t>(batch.doc_offsets)),
        counts(ctx.data<std::int64_t>(batch.counts)) {}
};

// Drops the last row of every document; what is left takes id and label from the row behind it.
void shift_documents(const BatchPointers& from, const BatchPointers& to, std::int32_t* source_row) {
  std::int32_t rows = 0, documents = 0;
  std::int64_t trained = 0;
  to.doc_offsets[0] = 0;
  for (std::int64_t d = 0; d < from.counts[ops::kNumDocuments]; ++d) {
    for (std::int32_t r = from.doc_offsets[d]; r + 1 < from.doc_offsets[d + 1]; ++r, ++rows) {
      to.ids[rows] = from.ids[r + 1];
      to.labels[rows] = from.labels[r + 1];
      to.positions[rows] = from.positions[r];
      source_row[rows] = r;
      trained += to.labels[rows] >= 0 ? 1 : 0;
    }
    if (rows > to.doc_offsets[documents]) to.doc_offsets[++documents] = rows;
  }
  to.counts[ops::kNumTokens] = rows;
  to.counts[ops::kNumDocuments] = documents;
  to.counts[ops::kNumTrained] = trained;
}

}  // namespace

MtpModule::MtpModule(const ModelContext& m, std::int64_t depth, std::int64_t moe_idx)
    : m_(&m),
      depth_(depth),
      scope_("mtp." + std::to_string(depth)),
      embedding_(&m.parameters->at("embed_tokens")),
      projection_(&m.parameters->at(block_prefix(m, depth) + ".eh_proj")),
      embedding_norm_(m, block_prefix(m, depth) + ".enorm", m.config->norm_eps),
      hidden_norm_(m, block_prefix(m, depth) + ".hnorm", m.config->norm_eps),
      final_norm_(m, block_prefix(m, depth) + ".final_norm", m.config->norm_eps),
      block_(m, m.config->num_layers + depth, moe_idx) {}

void MtpModule::shift_batch(Builder& b, const ops::Batch& before) {
  const std::int64_t t = before.max_tokens;
  batch_ = before;  // capacity and loss scales are shared
  batch_.ids = b.transient("ids", DType::i32, t, 1);
  batch_.labels = b.transient("labels", DType::i32, t, 1);
  batch_.positions = b.transient("positions", DType::i32, t, 1);
  batch_.doc_offsets = b.transient("doc_offsets", DType::i32, t + 1, 1);
  batch_.counts = b.transient("counts", DType::i64, ops::kNumCounts, 1);
  source_row_ = b.transient("source_row", DType::i32, t, 1);
  const ops::Batch from = before, to = batch_;
  const Buffer source_row = source_row_;
  b.emit({.name = "shift",
          .kind = "mtp_shift",
          .accesses = {ops::reads(from.ids), ops::reads(from.labels), ops::reads(from.positions),
                       ops::reads(from.doc_offsets), ops::reads(from.counts), ops::writes(to.ids),
                       ops::writes(to.labels), ops::writes(to.positions), ops::writes(to.doc_offsets),
                       ops::writes(to.counts), ops::writes(source_row)},
          .run = [=](const RunContext& ctx) {
            shift_documents(BatchPointers(ctx, from), BatchPointers(ctx, to),
                            ctx.data<std::int32_t>(source_row));
          }});
}

Buffer MtpModule::forward(Builder& b, const ops::Batch& before, Buffer h_before) {
  const auto scope = b.scope(scope_);
  const std::int64_t t = before.max_tokens, d = m_->config->hidden_size;
  shift_batch(b, before);
  const ops::Rows rows = batch_.tokens();
  const Buffer embedded = b.transient("embedded", m_->dtype, t, d);
  ops::embedding(b, "embed", embedding_->weight, batch_, embedded);
  const Buffer h = b.transient("h", m_->dtype, t, d);
  ops::gather_rows(b, "gather_h", h_before, source_row_, h, rows);
  joined_ = b.transient("joined", m_->dtype, t, 2 * d);
  embedding_norm_.forward(b, rows, embedded, {joined_, 0, d});
  hidden_norm_.forward(b, rows, h, {joined_, d, d});
  const Buffer x = b.transient("x", m_->dtype, t, d, Role::boundary);
  ops::linear(b, "eh_proj", joined_, projection_->matrix(), x, rows);
  m_->observe(b, scope_ + ".input", x, rows);
  const Buffer y = final_norm_.forward(b, rows, block_.forward(b, batch_, x));
  m_->observe(b, scope_ + ".hidden", y, rows);
  return y;
}

void MtpModule::backward(Builder& b, Buffer grad, Buffer grad_before) {
  const auto scope = b.scope(scope_);
  const std::int64_t t = batch_.max_tokens, d = m_->config->hidden_size;
  const ops::Rows rows = batch_.tokens();
  final_norm_.backward(b, rows, grad, grad, false);
  block_.backward(b, batch_, grad);
  ops::linear_grad_weight(b, "eh_proj.grad_weight", grad, joined_, projection_->gradient, rows);
  const Buffer djoined = b.transient("djoined", m_->dtype, t, 2 * d);
  ops::linear_grad_input(b, "eh_proj.grad_input", grad, projection_->matrix(), djoined, rows);
  const Buffer dh = b.transient("dh", m_->dtype, t, d);
  hidden_norm_.backward(b, rows, {djoined, d, d}, dh, false);
  ops::scatter_rows(b, "scatter_dh", dh, source_row_, grad_before, rows);
  const Buffer dembedded = b.transient("dembedded", m_->dtype, t, d);
  embedding_norm_.backward(b, rows, {djoined, 0, d}, dembedded, false);
  ops::embedding_backward(b, "embed.backward", batch_, dembedded, embedding_->gradient,
                          m_->config->pad_token_id);
}

}  // namespace planalto
