// SPDX-License-Identifier: Apache-2.0
// router.h: scores, group-limited selection and weights of the K chosen experts, and the gradient at the logits.
// Shapes      logits, scores, dlogits [T, E] fp32; bias [E] fp32 or null; ids [T, K] int32 ascending inside a
//             token; weights, dweights [T, K] fp32; counts [E] int64 = routes of each expert; E <= 1024, K <= 64
// Invariants  ids in [0, E), distinct inside a token; ties go to the lower id; the bias enters the selection alone
// Numerics    all fp32, sums over E in 16 interleaved partial sums, masked groups are -inf; the same operations on
//             every ISA: scores, ids, weights and gradients have the same bits whatever the ISA and the threads
// Errors      data when given ids are out of range or do not ascend. A non-finite logit raises nothing: NaN ranks
//             as -infinity, ids stay in range, and the step's non-finite check finds the score
// Source      arXiv 2412.19437 section 2.1.2, 2405.04434; transformers' modeling files for the softmax families
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/isa.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

constexpr std::int64_t kMaxExperts = 1024, kMaxTopK = 64;

enum class RouterScore { sigmoid, softmax };
enum class GroupScore { top2_sum, best };
struct RouterOptions {
  std::int64_t num_experts = 0, top_k = 0;
  std::int64_t num_groups = 1, top_groups = 1;  // groups of consecutive experts; top_groups kept
  RouterScore score = RouterScore::softmax;
  GroupScore group_score = GroupScore::top2_sum;
  bool normalize = true;  // w /= sum w (+ 1e-20 for sigmoid)
  double scaling = 1.0;   // multiplies the weights, after any normalisation
};
// Selection score: sigmoid(l) + bias, or softmax(l) + bias; softmax without a bias selects on the logits themselves,
// whose small differences the fp32 scores lose.
struct RouterForward {
  RouterOptions options{};
  const float* logits = nullptr;
  const float* bias = nullptr;
  float* scores = nullptr;  // sigmoid(l) or softmax(l), saved for backward; null: not wanted
  std::int32_t* ids = nullptr;
  float* weights = nullptr;
  std::int64_t* counts = nullptr;  // overwritten; null: not wanted
  RowCount tokens{};
};
// Weights again for ids that are given (a recompute, a replay): the selection is not repeated.
struct RouterWeights {
  RouterOptions options{};
  const float* logits = nullptr;
  const std::int32_t* ids = nullptr;
  float* scores = nullptr;  // null: not wanted
  float* weights = nullptr;
  std::int64_t* counts = nullptr;  // overwritten; null: not wanted
  RowCount tokens{};
};
// Normalised softmax weights are a softmax over the chosen logits: the others get exactly 0.
struct RouterBackward {
  RouterOptions options{};
  const float* scores = nullptr;
  const std::int32_t* ids = nullptr;
  const float* dweights = nullptr;
  float* dlogits = nullptr;  // overwritten
  RowCount tokens{};
};

// Auxiliary losses of one layer, times coefficient and *scale: the value is added to *loss, the gradient to dlogits.
// p = scores of a token divided by their sum; N = counts (no gradient); n = sum(N) / K, the tokens behind the counts:
//   sequence    mean over the documents that are not empty of E/(K s^2) sum_e c_e sum_t p_te: s tokens of the
//               document, c_e its routes to e, counted here
//   microbatch  E/(K n^2) sum_e N_e sum_t p_te; counts reduced over ranks bring their n with them
//   joined      this layer's share of transformers' load_balancing_loss_func: E/n^2 sum_e N_e sum_t p_te with the
//               counts of all layers; the shares of the layers add up to the whole; not divided by K
//   z           mean over tokens of logsumexp(l)^2
enum class AuxLossKind { sequence, microbatch, joined, z };
struct RouterAuxLoss {
  AuxLossKind kind = AuxLossKind::microbatch;
  RouterOptions options{};
  double coefficient = 0.0;
  const double* scale = nullptr;                // run-time factor (1 / microbatches of the step); null: 1
  const float* logits = nullptr;                // kind z
  const float* scores = nullptr;                // every other kind
  const std::int32_t* ids = nullptr;            // kind sequence
  const std::int64_t* counts = nullptr;         // kind microbatch: [E] of this layer
  const std::int64_t* joined_counts = nullptr;  // kind joined: [E], summed over all layers
  std::int64_t joined_layers = 1;               // kind joined: number of layers in joined_counts
  const std::int32_t* doc_offsets = nullptr;    // kind sequence: [num_docs + 1] ascending, inside 0 .. T
  RowCount num_docs{};
  double* loss = nullptr;    // added to; null: not wanted
  float* dlogits = nullptr;  // added to; null: not wanted
  RowCount tokens{};
  Workspace workspace{};
};
std::int64_t router_aux_loss_workspace_bytes(const RouterOptions& o, std::int64_t max_tokens);
// bias[e] += rate * sign(mean(counts) - counts[e]), the comparison in integers
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
