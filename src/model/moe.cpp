// SPDX-License-Identifier: Apache-2.0
#include "model/moe.h"

#include <algorithm>

#include "ops/linear.h"
#include "ops/rows.h"

namespace planalto {

MoeLayer::MoeLayer(const ModelContext& m, std::int64_t block, std::int64_t moe_idx)
    : m_(&m), block_(block), moe_idx_(moe_idx) {
  const std::string prefix = "layers." + std::to_string(block) + ".";
  router_ = &m.parameters->at(prefix + "router");
  if (m.config->moe.correction_bias) correction_bias_ = &m.parameters->at(prefix + "router.correction_bias");
  gate_up_ = &m.parameters->at(prefix + "experts.gate_up");
  down_ = &m.parameters->at(prefix + "experts.down");
  if (m.config->moe.shared_width > 0) shared_.emplace(m, prefix + "shared");
}

Buffer MoeLayer::in_fp32(Builder& b, const ops::Rows& rows, Buffer x) const {
  if (m_->dtype == DType::f32) return x;
  const Buffer wide = b.transient("x_fp32", DType::f32, rows.max_rows(), m_->config->hidden_size);
  ops::add(b, "x_fp32", x, {}, wide, rows);
  return wide;
}

// The ids of this block and microbatch stand behind those of blocks and microbatches before.
void MoeLayer::replay_ids(Builder& b, Buffer ids) const {
  const Buffer from = m_->replay_ids;
  const std::int64_t n = b.info(ids).elements();
  const std::int64_t first = moe_idx_ * m_->num_microbatches + m_->first_microbatch;
  b.emit({.name = "replay",
          .kind = "replay_ids",
          .accesses = {ops::reads(from), ops::writes(ids)},
          .run = [=](const RunContext& ctx) {
            const std::int32_t* source = ctx.data<std::int32_t>(from) + (first + ctx.iteration) * n;
            std::copy_n(source, n, ctx.data<std::int32_t>(ids));
          }});
}

void MoeLayer::record_ids(Builder& b, const ops::Rows& tokens, Buffer ids) const {
  const Buffer to = m_->recorded_ids;
  const std::int64_t n = b.info(ids).elements(), k = m_->config->moe.top_k;
  const std::int64_t first = moe_idx_ * m_->num_microbatches + m_->first_microbatch;
  b.emit({.name = "record",
          .kind = "record_ids",
          .accesses = {ops::reads(ids), ops::reads(tokens.counts), ops::updates(to)},
          .run = [=](const RunContext& ctx) {
            std::int32_t* target = ctx.data<std::int32_t>(to) + (first + ctx.iteration) * n;
            const std::int64_t used = tokens.at(ctx).get() * k;
            std::copy_n(ctx.data<std::int32_t>(ids), used, target);
            std::fill_n(target + used, n - used, -1);
          }});
}

void MoeLayer::choose_experts(Builder& b, const ops::Batch& batch, Buffer x, Pass pass) {
  const MoeConfig& c = m_->config->moe;
  const std::int64_t t = batch.max_tokens, e = c.num_experts, k = c.top_k;
  const ops::Rows rows = batch.tokens();
  ops::Routes r;
  r.tokens = rows;
  r.num_experts = e;
  r.top_k = k;
  r.logits = b.transient("logits", DType::f32, t, e);
  ops::linear(b, "logits", in_fp32(b, rows, x), router_->matrix(), r.logits, rows);
  r.scores = m_->options.training ? b.transient("scores", DType::f32, t, e) : Buffer{};
  r.weights = b.transient("weights", DType::f32, t, k);
  r.counts = b.transient("counts", DType::i64, e, 1, Role::statistic);
  if (pass == Pass::again) {
    r.ids = routes_.ids;  // near ties could flip: the choice is made once
    ops::route_again(b, "weights", c.router, r);
  } else {
    r.ids = b.transient("ids", DType::i32, t, k);
    if (m_->options.replay_routes) {
      replay_ids(b, r.ids);
      ops::route_again(b, "weights", c.router, r);
    } else {
      ops::route(b, "route", c.router, correction_bias_ != nullptr ? correction_bias_->weight : Buffer{}, r);
    }
    if (m_->recorded_ids.valid()) record_ids(b, rows, r.ids);
    const std::string layer = "router.layer" + std::to_string(block_);
    m_->observe(b, layer + ".logits", r.logits, rows);
    m_->observe(b, layer + ".topk_idx", r.ids, rows);
    m_->observe(b, layer + ".topk_weight", r.weights, rows);
  }
  r.offsets = b.transient("offsets", DType::i64, e + 1, 1, Role::statistic);
  r.source_row = b.transient("source_row", DType::i32, t * k, 1);
  r.position = b.transient("position", DType::i32, t, k);
  r.row_weights = b.transient("row_weights", DType::f32, t * k, 1);
  ops::route_layout(b, "layout", r);
  routes_ = r;
}

void MoeLayer::forward(Builder& b, const ops::Batch& batch, Buffer x, Buffer y, Pass pass) {
  const MoeConfig& c = m_->config->moe;
  const ops::Rows tokens = batch.tokens();
  x_ = x;
  {
    const auto scope = b.scope("router");
    choose_experts(b, batch, x, pass);
    if (pass == Pass::first && m_->route_totals.valid()) {
      ops::count_routes(b, "count", routes_, m_->route_totals, moe_idx_, false);
    }
  }
  const auto scope = b.scope("experts");
  const ops::Rows rows = routes_.rows();
  const ops::Groups groups{c.num_experts, routes_.offsets};
  const Buffer sorted_x = b.transient("sorted_x", m_->dtype, rows.max_rows(), m_->config->hidden_size);
  ops::gather_rows(b, "dispatch", x, routes_.source_row, sorted_x, rows);
  hidden_ = b.transient("hidden", m_->dtype, rows.max_rows(), 2 * c.width);
  ops::linear(b, "gate_up", sorted_x, gate_up_->matrix(), hidden_, rows, {}, false, groups);
  const Buffer act = b.transient("act", m_->dtype, rows.max_rows(), c.width);
  ops::swiglu(b, "swiglu", hidden_, routes_.row_weights, act, rows);
  const Buffer out = b.transient("out", m_->dtype, rows.max_rows(), m_->config->hidden_size);
  ops::linear(b, "down", act, down_->matrix(), out, rows, {}, false, groups);
  ops::combine_rows(b, "combine", out, routes_, y, false);
  if (shared_) shared_->forward(b, tokens, x, y, true);
}

void MoeLayer::backward(Builder& b, const ops::Batch& batch, Buffer dy, Buffer dx) {
  const MoeConfig& c = m_->config->moe;
  const std::int64_t d = m_->config->hidden_size;
  const ops::Rows rows = routes_.rows();
  const ops::Groups groups{c.num_experts, routes_.offsets};
  const Buffer drow_weights = b.transient("router.drow_weights", DType::f32, rows.max_rows(), 1);
  {
    const auto scope = b.scope("experts");
    const Buffer dout = b.transient("dout", m_->dtype, rows.max_rows(), d);
    ops::gather_rows(b, "dispatch_dy", dy, routes_.source_row, dout, rows);
    const Buffer dact = b.transient("dact", m_->dtype, rows.max_rows(), c.width);
    ops::linear_grad_input(b, "down.grad_input", dout, down_->matrix(), dact, rows, false, groups);
    const Buffer act = b.transient("act_again", m_->dtype, rows.max_rows(), c.width);
    ops::swiglu_backward(b, "swiglu.backward", hidden_, routes_.row_weights, dact, hidden_, drow_weights, act,
                         rows);
    ops::linear_grad_weight(b, "down.grad_weight", dout, act, down_->gradient, rows, groups);
    const Buffer sorted_x = b.transient("sorted_x_again", m_->dtype, rows.max_rows(), d);
    ops::gather_rows(b, "dispatch_x", x_, routes_.source_row, sorted_x, rows);
    ops::linear_grad_weight(b, "gate_up.grad_weight", hidden_, sorted_x, gate_up_->gradient, rows, groups);
    const Buffer dsorted = b.transient("dsorted_x", m_->dtype, rows.max_rows(), d);
    ops::linear_grad_input(b, "gate_up.grad_input", hidden_, gate_up_->matrix(), dsorted, rows, false,
                           groups);
    ops::combine_rows(b, "combine_dx", dsorted, routes_, dx, false);
  }
  if (shared_) shared_->backward(b, batch.tokens(), dy, dx, true);
  const auto scope = b.scope("router");
  router_backward(b, batch, drow_weights, dx);
}

// dx += gradient through the router's logits: of the route weights, and of the auxiliary losses.
void MoeLayer::router_backward(Builder& b, const ops::Batch& batch, Buffer drow_weights, Buffer dx) {
  const MoeConfig& c = m_->config->moe;
  const std::int64_t t = batch.max_tokens;
  const ops::Rows tokens = batch.tokens();
  const Buffer dweights = b.transient("dweights", DType::f32, t, c.top_k);
  ops::unsort_route_values(b, "unsort", drow_weights, routes_, dweights);
  const Buffer dlogits = b.transient("dlogits", DType::f32, t, c.num_experts);
  ops::route_backward(b, "backward", c.router, routes_, dweights, dlogits);
  for (std::size_t i = 0; i < m_->options.aux_losses.size(); ++i) {
    ops::AuxLoss aux = m_->options.aux_losses[i];
    const std::int64_t depth = std::max<std::int64_t>(0, block_ - m_->config->num_layers + 1);
    aux.scale_index += depth * ops::kNumScales;  // MTP modules see fewer tokens and documents
    if (aux.kind == kernels::AuxLossKind::joined) {
      if (block_ >= m_->config->num_layers) continue;  // the loss joins the main layers
      aux.joined_counts = m_->joined_counts;
      aux.joined_layers = m_->config->num_moe_layers();
    }
    ops::aux_loss(b, "aux_loss", c.router, aux, routes_, batch, m_->loss_sums,
                  m_->aux_loss_index + static_cast<std::int64_t>(i), dlogits);
  }
  ops::linear_grad_weight(b, "grad_weight", dlogits, in_fp32(b, tokens, x_), router_->gradient, tokens);
  if (m_->dtype == DType::f32) {
    ops::linear_grad_input(b, "grad_input", dlogits, router_->matrix(), dx, tokens, true);
    return;
  }
  const Buffer dx_fp32 = b.transient("dx_fp32", DType::f32, t, m_->config->hidden_size);
  ops::linear_grad_input(b, "grad_input", dlogits, router_->matrix(), dx_fp32, tokens);
  const Buffer dx_router = b.transient("dx_router", m_->dtype, t, m_->config->hidden_size);
  ops::add(b, "dx_cast", dx_fp32, {}, dx_router, tokens);
  ops::add(b, "dx_add", dx, dx_router, dx, tokens);
}

}  // namespace planalto
