// SPDX-License-Identifier: Apache-2.0
// router.h: scores, group-limited selection and weights of the K chosen experts, and the gradient at the logits.
// Shapes      logits, scores, dlogits [T, E] fp32; bias [E] fp32 or null; ids [T, K] int32 ascending inside a token; weights,
//             dweights [T, K] fp32; counts [E] int64 = routes of each expert
// Invariants  ids in [0, E), distinct inside a token; ties go to the lower id; the bias enters the selection alone
// Numerics    all fp32; masked groups are -inf; counts are integers; softmax families: softmax over all E before the choice
// Errors      none here: a non-finite logit leaves ids in range and is found by the non-finite check of the step
// Source      arXiv 2412.19437 section 2.1.2, 2405.04434; transformers' modeling files for the softmax families
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/isa.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

enum class RouterScore { sigmoid, softmax };
enum class GroupScore { top2_sum, best };
struct RouterOptions {
  std::int64_t num_experts = 0, top_k = 0;
  std::int64_t num_groups = 1, top_groups = 1;  // groups of consecutive experts; top_groups kept
  RouterScore score = RouterScore::softmax;
  GroupScore group_score = GroupScore::top2_sum;
  bool normalize = true;    // w /= sum w (+ 1e-20 for sigmoid)
  double scaling = 1.0;     // multiplies the weights, after any normalisation
};
struct RouterForward {
  RouterOptions options;
  const float* logits = nullptr;
  const float* bias = nullptr;
  float* scores = nullptr;  // sigmoid(l) or softmax(l), saved for backward; null: not wanted
  std::int32_t* ids = nullptr;
  float* weights = nullptr;
  std::int64_t* counts = nullptr;
  RowCount tokens;
};
// Weights again for ids that are given (a recompute, a replay): the selection is not repeated.
struct RouterWeights {
  RouterOptions options;
  const float* logits = nullptr;
  const std::int32_t* ids = nullptr;
  float* scores = nullptr;   // null: not wanted
  float* weights = nullptr;
  std::int64_t* counts = nullptr;  // null: not wanted
  RowCount tokens;
};
struct RouterBackward {
  RouterOptions options;
  const float* scores = nullptr;
  const std::int32_t* ids = nullptr;
  const float* dweights = nullptr;
  float* dlogits = nullptr;  // overwritten
  RowCount tokens;
};

// Auxiliary losses of one layer: the value is added to *loss (double), the gradient to dlogits (when not null).
// sequence: METHODS 1 sequence-wise, documents are the sequences, averaged over documents. microbatch: coeff * E/(K T^2) * sum_e
// n_e sum_t p_te. p is scores / sum(scores) of a token (softmax scores sum to 1). joined: E * sum_e F_e P_e over all layers
// (transformers' load_balancing_loss_func): give joined_counts [E] and joined_rows summed over layers. z: mean logsumexp^2.
enum class AuxLossKind { sequence, microbatch, joined, z };
struct RouterAuxLoss {
  AuxLossKind kind = AuxLossKind::microbatch;
  RouterOptions options;
  double coefficient = 0.0;
  const double* scale = nullptr;      // run-time factor (1 / microbatches of the step); null: 1
  const float* logits = nullptr;
  const float* scores = nullptr;
  const std::int32_t* ids = nullptr;
  const std::int64_t* counts = nullptr;         // [E] of this layer
  const std::int64_t* joined_counts = nullptr;  // kind joined: [E], all layers
  std::int64_t joined_layers = 1;               // kind joined: number of layers in joined_counts
  const std::int32_t* doc_offsets = nullptr;    // kind sequence
  RowCount num_docs;
  double* loss = nullptr;             // added to; null: not wanted
  float* dlogits = nullptr;           // added to; null: not wanted
  RowCount tokens;
  Workspace workspace;
};
std::int64_t router_aux_loss_workspace_bytes(const RouterOptions& o, std::int64_t max_tokens);
// bias[e] += rate * sign(mean(counts) - counts[e])
struct RouterBiasUpdate {
  float* bias = nullptr;
  const std::int64_t* counts = nullptr;
  std::int64_t num_experts = 0;
  float rate = 0.0F;
};
void router_forward(const ExecContext& ctx, const RouterForward& a);
void router_weights(const ExecContext& ctx, const RouterWeights& a);
void router_backward(const ExecContext& ctx, const RouterBackward& a);
void router_aux_loss(const ExecContext& ctx, const RouterAuxLoss& a);
void router_bias_update(const RouterBiasUpdate& a);  // not per ISA: E additions

}  // namespace planalto::kernels
