// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace planalto::kernels::reference {

namespace {

// The n best of `values`, ties to the lower index, in ascending order of index.
std::vector<std::int32_t> best_of(const std::vector<double>& values, std::int64_t n) {
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return values[a] > values[b]; });
  order.resize(static_cast<std::size_t>(n));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<double> widen(const float* from, std::int64_t n) {
  return {from, from + n};
}

// dL/dlogits of one token from dL/dscores.
std::vector<double> through_scores(const RouterOptions& o, const std::vector<double>& scores,
                                   const std::vector<double>& dscores) {
  std::vector<double> dlogits(scores.size());
  if (o.score == RouterScore::sigmoid) {
    for (std::size_t e = 0; e < scores.size(); ++e) dlogits[e] = dscores[e] * scores[e] * (1.0 - scores[e]);
    return dlogits;
  }
  const double mean = std::inner_product(scores.begin(), scores.end(), dscores.begin(), 0.0);
  for (std::size_t e = 0; e < scores.size(); ++e) dlogits[e] = scores[e] * (dscores[e] - mean);
  return dlogits;
}

// p = s / sum(s), and dL/ds from dL/dp.
std::vector<double> shares(const std::vector<double>& scores) {
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  std::vector<double> p = scores;
  for (double& v : p) v /= sum;
  return p;
}
std::vector<double> through_shares(const std::vector<double>& scores, const std::vector<double>& dp) {
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  const double mean = std::inner_product(scores.begin(), scores.end(), dp.begin(), 0.0) / sum;
  std::vector<double> dscores(scores.size());
  for (std::size_t e = 0; e < scores.size(); ++e) dscores[e] = (dp[e] - mean) / sum;
  return dscores;
}

double logsumexp(const double* logits, std::int64_t n) {
  const double max = *std::max_element(logits, logits + n);
  double sum = 0.0;
  for (std::int64_t e = 0; e < n; ++e) sum += std::exp(logits[e] - max);
  return max + std::log(sum);
}

double factor_of(const RouterAuxLoss& a) {
  return a.coefficient * (a.scale != nullptr ? *a.scale : 1.0);
}

// The loss is the sum over tokens and experts of factors[t, e] * p[t, e].
std::vector<double> share_factors(const RouterAuxLoss& a) {
  const std::int64_t num_tokens = a.tokens.get(), num_experts = a.options.num_experts,
                     top_k = a.options.top_k;
  std::vector<double> factors(static_cast<std::size_t>(num_tokens * num_experts), 0.0);
  if (a.kind == AuxLossKind::sequence) {
    std::int64_t documents = 0;
    for (std::int64_t d = 0; d < a.num_docs.get(); ++d) documents += a.doc_offsets[d + 1] > a.doc_offsets[d];
    for (std::int64_t d = 0; d < a.num_docs.get(); ++d) {
      const std::int64_t begin = a.doc_offsets[d], end = a.doc_offsets[d + 1];
      const auto length = static_cast<double>(end - begin);
      std::vector<double> f(static_cast<std::size_t>(num_experts), 0.0);
      for (std::int64_t i = begin * top_k; i < end * top_k; ++i) {
        f[a.ids[i]] += static_cast<double>(num_experts) / (static_cast<double>(top_k) * length);
      }
      for (std::int64_t t = begin; t < end; ++t) {
        for (std::int64_t e = 0; e < num_experts; ++e) {
          factors[t * num_experts + e] = factor_of(a) * f[e] / length / static_cast<double>(documents);
        }
      }
    }
    return factors;
  }
  const std::int64_t* counts = a.kind == AuxLossKind::joined ? a.joined_counts : a.counts;
  const auto routes = static_cast<double>(std::accumulate(counts, counts + num_experts, std::int64_t{0}));
  const double rows = routes / static_cast<double>(top_k);
  const double divisor =
      a.kind == AuxLossKind::joined ? rows * rows : static_cast<double>(top_k) * rows * rows;
  for (std::int64_t t = 0; t < num_tokens; ++t) {
    for (std::int64_t e = 0; e < num_experts; ++e) {
      factors[t * num_experts + e] =
          factor_of(a) * static_cast<double>(num_experts) * static_cast<double>(counts[e]) / divisor;
    }
  }
  return factors;
}

}  // namespace

std::vector<double> router_scores(const RouterOptions& o, const double* logits) {
  std::vector<double> scores(logits, logits + o.num_experts);
  if (o.score == RouterScore::sigmoid) {
    for (double& s : scores) s = 1.0 / (1.0 + std::exp(-s));
    return scores;
  }
  const double lse = logsumexp(logits, o.num_experts);
  for (double& s : scores) s = std::exp(s - lse);
  return scores;
}

std::vector<std::int32_t> router_choice(const RouterOptions& o, const double* logits, const float* bias) {
  std::vector<double> values = router_scores(o, logits);
  for (std::int64_t e = 0; bias != nullptr && e < o.num_experts; ++e)
    values[e] += static_cast<double>(bias[e]);
  if (o.top_groups < o.num_groups) {
    const std::int64_t size = o.num_experts / o.num_groups;
    std::vector<double> groups;
    for (std::int64_t g = 0; g < o.num_groups; ++g) {
      std::vector<double> members(values.begin() + g * size, values.begin() + (g + 1) * size);
      std::sort(members.rbegin(), members.rend());
      groups.push_back(o.group_score == GroupScore::best ? members[0] : members[0] + members[1]);
    }
    const std::vector<std::int32_t> kept = best_of(groups, o.top_groups);
    for (std::int64_t e = 0; e < o.num_experts; ++e) {
      if (std::find(kept.begin(), kept.end(), e / size) == kept.end())
        values[e] = -std::numeric_limits<double>::infinity();
    }
  }
  return best_of(values, o.top_k);
}

std::vector<double> router_token_weights(const RouterOptions& o, const std::vector<double>& scores,
                                         const std::int32_t* ids) {
  std::vector<double> weights;
  for (std::int64_t k = 0; k < o.top_k; ++k) weights.push_back(scores[ids[k]]);
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (o.score == RouterScore::sigmoid) sum += 1e-20;
  for (double& w : weights) w = (o.normalize ? w / sum : w) * o.scaling;
  return weights;
}

double router_aux_loss_value(const RouterAuxLoss& a, const std::vector<double>& logits) {
  const std::int64_t num_tokens = a.tokens.get(), num_experts = a.options.num_experts;
  double loss = 0.0;
  if (a.kind == AuxLossKind::z) {
    for (std::int64_t t = 0; t < num_tokens; ++t) {
      const double lse = logsumexp(&logits[t * num_experts], num_experts);
      loss += factor_of(a) * lse * lse / static_cast<double>(num_tokens);
    }
    return loss;
  }
  const std::vector<double> factors = share_factors(a);
  for (std::int64_t t = 0; t < num_tokens; ++t) {
    const std::vector<double> p = shares(router_scores(a.options, &logits[t * num_experts]));
    for (std::int64_t e = 0; e < num_experts; ++e) loss += factors[t * num_experts + e] * p[e];
  }
  return loss;
}

void router_forward(const RouterForward& a) {
  const std::int64_t num_experts = a.options.num_experts, top_k = a.options.top_k;
  for (std::int64_t t = 0; t < a.tokens.get(); ++t) {
    const std::vector<double> logits = widen(a.logits + t * num_experts, num_experts);
    const std::vector<std::int32_t> ids = router_choice(a.options, logits.data(), a.bias);
    std::copy(ids.begin(), ids.end(), a.ids + t * top_k);
  }
  router_weights({.options = a.options,
                  .logits = a.logits,
                  .ids = a.ids,
                  .scores = a.scores,
                  .weights = a.weights,
                  .counts = a.counts,
                  .tokens = a.tokens});
}

void router_weights(const RouterWeights& a) {
  const std::int64_t num_experts = a.options.num_experts, top_k = a.options.top_k;
  if (a.counts != nullptr) std::fill(a.counts, a.counts + num_experts, 0);
  for (std::int64_t t = 0; t < a.tokens.get(); ++t) {
    const std::vector<double> scores =
        router_scores(a.options, widen(a.logits + t * num_experts, num_experts).data());
    const std::vector<double> weights = router_token_weights(a.options, scores, a.ids + t * top_k);
    for (std::int64_t k = 0; k < top_k; ++k) {
      a.weights[t * top_k + k] = static_cast<float>(weights[k]);
      if (a.counts != nullptr) ++a.counts[a.ids[t * top_k + k]];
    }
    for (std::int64_t e = 0; a.scores != nullptr && e < num_experts; ++e) {
      a.scores[t * num_experts + e] = static_cast<float>(scores[e]);
    }
  }
}

void router_backward(const RouterBackward& a) {
  const RouterOptions& o = a.options;
  for (std::int64_t t = 0; t < a.tokens.get(); ++t) {
    const std::vector<double> scores = widen(a.scores + t * o.num_experts, o.num_experts);
    const std::int32_t* ids = a.ids + t * o.top_k;
    const float* dweights = a.dweights + t * o.top_k;
    double sum = o.score == RouterScore::sigmoid ? 1e-20 : 0.0, mean = 0.0;
    for (std::int64_t k = 0; k < o.top_k; ++k) sum += scores[ids[k]];
    for (std::int64_t k = 0; k < o.top_k; ++k) mean += dweights[k] * scores[ids[k]] / sum;
    std::vector<double> dscores(scores.size(), 0.0);
    for (std::int64_t k = 0; k < o.top_k; ++k) {
      dscores[ids[k]] = o.scaling * (o.normalize ? (dweights[k] - mean) / sum : dweights[k]);
    }
    const std::vector<double> dlogits = through_scores(o, scores, dscores);
    for (std::int64_t e = 0; e < o.num_experts; ++e)
      a.dlogits[t * o.num_experts + e] = static_cast<float>(dlogits[e]);
  }
}

void router_aux_loss(const RouterAuxLoss& a) {
  const std::int64_t num_tokens = a.tokens.get(), num_experts = a.options.num_experts;
  if (num_tokens == 0) return;
  const std::vector<double> logits = widen(a.logits, num_tokens * num_experts);
  if (a.loss != nullptr) *a.loss += router_aux_loss_value(a, logits);
  if (a.dlogits == nullptr) return;
  const std::vector<double> factors = a.kind == AuxLossKind::z ? std::vector<double>{} : share_factors(a);
  for (std::int64_t t = 0; t < num_tokens; ++t) {
    std::vector<double> dlogits(static_cast<std::size_t>(num_experts));
    if (a.kind == AuxLossKind::z) {
      const double lse = logsumexp(&logits[t * num_experts], num_experts);
      for (std::int64_t e = 0; e < num_experts; ++e) {
        dlogits[e] = 2.0 * factor_of(a) / static_cast<double>(num_tokens) * lse *
                     std::exp(logits[t * num_experts + e] - lse);
      }
    } else {
      const std::vector<double> scores = router_scores(a.options, &logits[t * num_experts]);
      const std::vector<double> dp(factors.begin() + t * num_experts,
                                   factors.begin() + (t + 1) * num_experts);
      dlogits = through_scores(a.options, scores, through_shares(scores, dp));
    }
    for (std::int64_t e = 0; e < num_experts; ++e)
      a.dlogits[t * num_experts + e] += static_cast<float>(dlogits[e]);
  }
}

}  // namespace planalto::kernels::reference
