// SPDX-License-Identifier: Apache-2.0
// double_losses.cpp: the part of double_model.h that looks at a pass as a whole: auxiliary losses and the sum of everything.
#include <cmath>
#include <numeric>

#include "gradient/double_model.h"

namespace planalto::double_model {

namespace {

using kernels::AuxLossKind;

// How many of the routes in rows [begin, end) went to each expert.
std::vector<double> count(const Routing& r, std::int64_t begin, std::int64_t end) {
  const std::int64_t top_k = static_cast<std::int64_t>(r.ids.size()) / r.scores.rows;
  std::vector<double> counts(static_cast<std::size_t>(r.scores.cols), 0.0);
  for (std::int64_t i = begin * top_k; i < end * top_k; ++i) counts[r.ids[i]] += 1.0;
  return counts;
}

// Mean over rows [begin, end) of the scores, each row divided by its sum.
std::vector<double> mean_share(const Routing& r, std::int64_t begin, std::int64_t end) {
  std::vector<double> share(static_cast<std::size_t>(r.scores.cols), 0.0);
  for (std::int64_t t = begin; t < end; ++t) {
    const double* s = r.scores.row(t);
    const double sum = std::accumulate(s, s + r.scores.cols, 0.0);
    for (std::size_t e = 0; e < share.size(); ++e) share[e] += s[e] / sum / static_cast<double>(end - begin);
  }
  return share;
}

// E sum_e (routes to e / tokens) (mean share of e)
double balance(const std::vector<double>& counts, double tokens, const std::vector<double>& share) {
  const auto experts = static_cast<double>(counts.size());
  return experts * std::inner_product(counts.begin(), counts.end(), share.begin(), 0.0) / tokens;
}

double sequence_loss(const Routing& r, double top_k) {
  double sum = 0.0;
  int documents = 0;
  for (std::size_t d = 0; d + 1 < r.offsets.size(); ++d) {
    const std::int64_t begin = r.offsets[d], end = r.offsets[d + 1];
    if (begin == end) continue;
    sum += balance(count(r, begin, end), static_cast<double>(end - begin), mean_share(r, begin, end)) / top_k;
    ++documents;
  }
  return sum / documents;
}

double z_loss(const Routing& r) {
  double sum = 0.0;
  for (std::int64_t t = 0; t < r.logits.rows; ++t) {
    double exps = 0.0;
    for (std::int64_t e = 0; e < r.logits.cols; ++e) exps += std::exp(r.logits.row(t)[e]);
    sum += std::pow(std::log(exps), 2) / static_cast<double>(r.logits.rows);
  }
  return sum;
}

// Scores and routes of all main layers, one below the other, as if they were one router's.
double joined_loss(const Model& m) {
  std::vector<double> counts(static_cast<std::size_t>(m.config.moe.num_experts), 0.0), share = counts;
  double rows = 0.0;
  for (const auto& [block, r] : m.routing) {
    if (block >= m.config.num_layers) continue;
    const auto n = static_cast<double>(r.scores.rows);
    const std::vector<double> layer_counts = count(r, 0, r.scores.rows),
                              layer_share = mean_share(r, 0, r.scores.rows);
    for (std::size_t e = 0; e < counts.size(); ++e) {
      counts[e] += layer_counts[e];
      share[e] += layer_share[e] * n;
    }
    rows += n;
  }
  for (double& s : share) s /= rows;
  return balance(counts, rows, share);
}

double layer_loss(const Routing& r, AuxLossKind kind, double top_k) {
  if (kind == AuxLossKind::z) return z_loss(r);
  if (kind == AuxLossKind::sequence) return sequence_loss(r, top_k);
  const std::int64_t n = r.scores.rows;
  return balance(count(r, 0, n), static_cast<double>(n), mean_share(r, 0, n)) / top_k;
}

}  // namespace

double aux_loss(const Model& m, const ops::AuxLoss& aux) {
  if (aux.kind == AuxLossKind::joined)
    return aux.coefficient * m.aux_scale.at(aux.scale_index) * joined_loss(m);
  double loss = 0.0;
  for (const auto& [block, r] : m.routing) {
    const std::int64_t depth = block < m.config.num_layers ? 0 : block - m.config.num_layers + 1;
    loss += aux.coefficient * m.aux_scale.at(depth * ops::kNumScales + aux.scale_index) *
            layer_loss(r, aux.kind, static_cast<double>(m.config.moe.top_k));
  }
  return loss;
}

std::vector<double> losses(Model& m, const Batch& batch) {
  Matrix h = embedding(m, batch);
  for (std::int64_t i = 0; i < m.config.num_layers; ++i) h = block(m, batch, std::move(h), i);
  h = norm(m, h, "norm", m.config.norm_eps);
  std::vector<double> all = {cross_entropy(m, batch, h)};
  Batch at_depth = batch;
  for (std::int64_t d = 0; d < m.config.num_mtp; ++d) {
    h = mtp(m, at_depth, h, d);
    at_depth = shifted(at_depth);
    all.push_back(cross_entropy(m, at_depth, h));
  }
  for (const ops::AuxLoss& aux : m.aux) all.push_back(aux_loss(m, aux));
  return all;
}

}  // namespace planalto::double_model
