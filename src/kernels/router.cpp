// SPDX-License-Identifier: Apache-2.0
#include "kernels/router.h"

#include "base/error.h"
#include "kernels/cpu/router_blocks.h"
#include "kernels/expert_ids.h"
#include "kernels/table.h"

namespace planalto::kernels {

namespace {

void check_options(const RouterOptions& o) {
  PLANALTO_CHECK(o.num_experts >= 1 && o.num_experts <= kMaxExperts, "num_experts {}; legal: 1 to {}",
                 o.num_experts, kMaxExperts);
  PLANALTO_CHECK(o.top_k >= 1 && o.top_k <= kMaxTopK && o.top_k <= o.num_experts,
                 "top_k {} with num_experts {}; legal: 1 to the lesser of num_experts and {}", o.top_k,
                 o.num_experts, kMaxTopK);
  PLANALTO_CHECK(o.num_groups >= 1 && o.num_experts % o.num_groups == 0,
                 "num_groups {} does not divide num_experts {}", o.num_groups, o.num_experts);
  PLANALTO_CHECK(o.top_groups >= 1 && o.top_groups <= o.num_groups, "top_groups {} with num_groups {}",
                 o.top_groups, o.num_groups);
  const std::int64_t group_size = o.num_experts / o.num_groups;
  PLANALTO_CHECK(o.top_groups * group_size >= o.top_k,
                 "top_groups {} of {} experts each hold fewer than top_k {}", o.top_groups, group_size,
                 o.top_k);
  PLANALTO_CHECK(o.group_score == GroupScore::best || o.top_groups == o.num_groups || group_size >= 2,
                 "a group score of two experts with num_groups {} and num_experts {}", o.num_groups,
                 o.num_experts);
}

void check_tokens(const RowCount& tokens) {
  PLANALTO_CHECK(tokens.get() >= 0 && tokens.get() <= tokens.capacity * tokens.multiplier,
                 "{} tokens of at most {}", tokens.get(), tokens.capacity * tokens.multiplier);
}

void check_joined(const RouterAuxLoss& a) {
  if (a.kind != AuxLossKind::joined) return;
  PLANALTO_CHECK(a.joined_counts != nullptr, "the joined loss needs joined_counts");
  std::int64_t routes = 0;
  for (std::int64_t e = 0; e < a.options.num_experts; ++e) routes += a.joined_counts[e];
  PLANALTO_CHECK(a.joined_layers >= 1 && routes % (a.joined_layers * a.options.top_k) == 0,
                 "{} joined routes are not those of {} layers of one number of tokens, top_k {}", routes,
                 a.joined_layers, a.options.top_k);
}

void check_documents(const RouterAuxLoss& a) {
  PLANALTO_CHECK(a.ids != nullptr && a.doc_offsets != nullptr, "the sequence loss needs ids and doc_offsets");
  const std::int64_t num_docs = a.num_docs.get();
  std::int64_t last = 0;
  for (std::int64_t d = 0; d <= num_docs; ++d) {
    PLANALTO_CHECK(a.doc_offsets[d] >= last && a.doc_offsets[d] <= a.tokens.get(),
                   "doc_offsets[{}] is {}; legal: {} to {}", d, a.doc_offsets[d], last, a.tokens.get());
    last = a.doc_offsets[d];
  }
}

}  // namespace

void router_forward(const ExecContext& ctx, const RouterForward& a) {
  check_options(a.options);
  check_tokens(a.tokens);
  PLANALTO_CHECK(a.logits != nullptr && a.ids != nullptr && a.weights != nullptr,
                 "logits, ids and weights are needed");
  ctx.kernels->router_forward(ctx, a);
}

void router_weights(const ExecContext& ctx, const RouterWeights& a) {
  check_options(a.options);
  check_tokens(a.tokens);
  PLANALTO_CHECK(a.logits != nullptr && a.ids != nullptr && a.weights != nullptr,
                 "logits, ids and weights are needed");
  check_expert_ids(ctx, "router_weights", a.ids, a.tokens.get(), a.options.top_k, a.options.num_experts,
                   IdOrder::ascending);
  ctx.kernels->router_weights(ctx, a);
}

void router_backward(const ExecContext& ctx, const RouterBackward& a) {
  check_options(a.options);
  check_tokens(a.tokens);
  PLANALTO_CHECK(a.scores != nullptr && a.ids != nullptr && a.dweights != nullptr && a.dlogits != nullptr,
                 "scores, ids, dweights and dlogits are needed");
  check_expert_ids(ctx, "router_backward", a.ids, a.tokens.get(), a.options.top_k, a.options.num_experts,
                   IdOrder::ascending);
  ctx.kernels->router_backward(ctx, a);
}

std::int64_t router_aux_loss_workspace_bytes(const RouterOptions& o, std::int64_t max_tokens) {
  const std::int64_t blocks = num_aux_blocks(max_tokens);
  const auto per_block = static_cast<std::int64_t>(
      sizeof(double) + sizeof(std::int32_t) * static_cast<std::size_t>(o.num_experts));
  return blocks * per_block;
}

void router_aux_loss(const ExecContext& ctx, const RouterAuxLoss& a) {
  check_options(a.options);
  check_tokens(a.tokens);
  PLANALTO_CHECK(a.kind == AuxLossKind::z ? a.logits != nullptr : a.scores != nullptr,
                 "the z loss needs logits, every other kind needs scores");
  PLANALTO_CHECK(a.kind != AuxLossKind::microbatch || a.counts != nullptr,
                 "the micro-batch loss needs counts");
  check_joined(a);
  const std::int64_t bytes = router_aux_loss_workspace_bytes(a.options, a.tokens.get());
  PLANALTO_CHECK(a.workspace.bytes >= bytes && (a.workspace.data != nullptr || bytes == 0),
                 "workspace of {} bytes, {} needed", a.workspace.bytes, bytes);
  if (a.kind == AuxLossKind::sequence) {
    check_documents(a);
    check_expert_ids(ctx, "router_aux_loss", a.ids, a.tokens.get(), a.options.top_k, a.options.num_experts,
                     IdOrder::any);
  }
  ctx.kernels->router_aux_loss(ctx, a);
}

void router_bias_update(const RouterBiasUpdate& a) {
  std::int64_t sum = 0;
  for (std::int64_t e = 0; e < a.num_experts; ++e) sum += a.counts[e];
  for (std::int64_t e = 0; e < a.num_experts; ++e) {
    const std::int64_t load =
        a.counts[e] * a.num_experts;  // compared with the sum: the mean need not be an integer
    if (load < sum) a.bias[e] += a.rate;
    if (load > sum) a.bias[e] -= a.rate;
  }
}

}  // namespace planalto::kernels
