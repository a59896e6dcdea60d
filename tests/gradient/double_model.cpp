// SPDX-License-Identifier: Apache-2.0
#include "gradient/double_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace planalto::double_model {

namespace {

std::string prefix_of(std::int64_t block) {
  return "layers." + std::to_string(block) + ".";
}

double silu(double x) {
  return x / (1.0 + std::exp(-x));
}

double dot(const double* a, const double* b, std::int64_t n) {
  return std::inner_product(a, a + n, b, 0.0);
}

double log_sum_exp(const double* x, std::int64_t n) {
  const double highest = *std::max_element(x, x + n);
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - highest);
  return highest + std::log(sum);
}

void add_to(Matrix& x, const Matrix& y) {
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += y.values[i];
}

Matrix columns(const Matrix& x, std::int64_t first, std::int64_t n) {
  Matrix y(x.rows, n);
  for (std::int64_t t = 0; t < x.rows; ++t) std::copy_n(x.row(t) + first, n, y.row(t));
  return y;
}

// Rotates the rotary_dim elements from `first` on of every run of head_dim elements.
void rotate(const RopeConfig& rope, const Batch& batch, Matrix& x, std::int64_t head_dim,
            std::int64_t first) {
  const std::int64_t half = rope.rotary_dim / 2;
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = batch.positions[t] * rope.inv_freq[i];
      const double c = std::cos(angle) * rope.cos_sin_scale, s = std::sin(angle) * rope.cos_sin_scale;
      const bool halves = rope.style == kernels::RopeStyle::halves;
      const std::int64_t a = first + (halves ? i : 2 * i), b = first + (halves ? i + half : 2 * i + 1);
      for (double* head = x.row(t); head < x.row(t) + x.cols; head += head_dim) {
        const double u = head[a], v = head[b];
        head[a] = u * c - v * s;
        head[b] = v * c + u * s;
      }
    }
  }
}

// Causal attention inside each document; query head h reads key and value head h / (H / Hkv).
Matrix attend(const AttentionConfig& a, const Batch& batch, const Matrix& q, const Matrix& k,
              const Matrix& v) {
  Matrix out(q.rows, a.num_heads * a.v_dim);
  for (std::size_t d = 0; d + 1 < batch.offsets.size(); ++d) {
    for (std::int64_t t = batch.offsets[d]; t < batch.offsets[d + 1]; ++t) {
      std::int64_t begin = batch.offsets[d];
      if (a.window > 0) begin = std::max(begin, t - a.window + 1);
      for (std::int64_t h = 0; h < a.num_heads; ++h) {
        const std::int64_t kv_head = h / (a.num_heads / a.num_kv_heads);
        std::vector<double> scores;
        for (std::int64_t j = begin; j <= t; ++j) {
          scores.push_back(a.softmax_scale *
                           dot(q.row(t) + h * a.qk_dim, k.row(j) + kv_head * a.qk_dim, a.qk_dim));
        }
        const double lse = log_sum_exp(scores.data(), t + 1 - begin);
        for (std::int64_t j = begin; j <= t; ++j) {
          const double p = std::exp(scores[j - begin] - lse);
          const double* value = v.row(j) + kv_head * a.v_dim;
          for (std::int64_t i = 0; i < a.v_dim; ++i) out.row(t)[h * a.v_dim + i] += p * value[i];
        }
      }
    }
  }
  return out;
}

// Positions of the n largest of those that `allowed` lets in, ascending.
std::vector<std::int32_t> largest(const std::vector<double>& values, const std::vector<bool>& allowed,
                                  std::int64_t n) {
  std::vector<std::int32_t> chosen;
  for (; n > 0; --n) {
    std::int32_t best = -1;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(values.size()); ++i) {
      if (!allowed[i] || std::find(chosen.begin(), chosen.end(), i) != chosen.end()) continue;
      if (best < 0 || values[i] > values[best]) best = i;
    }
    chosen.push_back(best);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// The experts of one token: scores and correction bias, inside the best groups.
std::vector<std::int32_t> choose(const kernels::RouterOptions& o, std::vector<double> values) {
  const std::int64_t size = o.num_experts / o.num_groups;
  std::vector<double> groups;
  for (std::int64_t g = 0; g < o.num_groups; ++g) {
    std::vector<double> members(values.begin() + g * size, values.begin() + (g + 1) * size);
    std::sort(members.begin(), members.end(), std::greater<>());
    const bool two = o.group_score == kernels::GroupScore::top2_sum && size > 1;
    groups.push_back(two ? members[0] + members[1] : members[0]);
  }
  const std::vector<std::int32_t> kept =
      largest(groups, std::vector<bool>(groups.size(), true), o.top_groups);
  std::vector<bool> allowed(values.size(), false);
  for (const std::int32_t g : kept) std::fill_n(allowed.begin() + g * size, size, true);
  return largest(values, allowed, o.top_k);
}

std::vector<std::int32_t> choose_all(const Model& m, const Matrix& scores, const std::string& router) {
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < scores.rows; ++t) {
    std::vector<double> values(scores.row(t), scores.row(t) + scores.cols);
    if (m.config.moe.correction_bias) {
      const std::vector<double>& bias = m.weight(router + ".correction_bias");
      for (std::size_t e = 0; e < values.size(); ++e) values[e] += bias[e];
    }
    const std::vector<std::int32_t> chosen = choose(m.config.moe.router, values);
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  return ids;
}

Matrix router_scores(const kernels::RouterOptions& o, const Matrix& logits) {
  Matrix scores = logits;
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    const double lse = log_sum_exp(logits.row(t), logits.cols);
    for (std::int64_t e = 0; e < logits.cols; ++e) {
      const double l = logits.row(t)[e];
      scores.row(t)[e] =
          o.score == kernels::RouterScore::sigmoid ? 1.0 / (1.0 + std::exp(-l)) : std::exp(l - lse);
    }
  }
  return scores;
}

// One expert's output for one token, times its weight, added to y.
void add_expert(const Model& m, const std::string& prefix, std::int64_t expert, double weight,
                const double* x, double* y) {
  const std::int64_t width = m.config.moe.width, d = m.config.hidden_size;
  const double* gate = m.weight(prefix + "experts.gate_up").data() + expert * 2 * width * d;
  const double* up = gate + width * d;
  const double* down = m.weight(prefix + "experts.down").data() + expert * d * width;
  std::vector<double> act;
  for (std::int64_t i = 0; i < width; ++i)
    act.push_back(silu(dot(gate + i * d, x, d)) * dot(up + i * d, x, d));
  for (std::int64_t i = 0; i < d; ++i) y[i] += weight * dot(down + i * width, act.data(), width);
}

}  // namespace

Matrix embedding(const Model& m, const Batch& batch) {
  const std::int64_t d = m.config.hidden_size;
  Matrix x(batch.num_tokens(), d);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    std::copy_n(m.weight("embed_tokens").data() + batch.ids[t] * d, d, x.row(t));
  }
  return x;
}

Matrix linear(const Model& m, const Matrix& x, const std::string& name) {
  const std::vector<double>& w = m.weight(name);
  Matrix y(x.rows, static_cast<std::int64_t>(w.size()) / x.cols);
  const double* bias = m.has(name + ".bias") ? m.weight(name + ".bias").data() : nullptr;
  for (std::int64_t t = 0; t < y.rows; ++t) {
    for (std::int64_t o = 0; o < y.cols; ++o) {
      y.row(t)[o] = dot(x.row(t), w.data() + o * x.cols, x.cols) + (bias != nullptr ? bias[o] : 0.0);
    }
  }
  return y;
}

Matrix norm(const Model& m, const Matrix& x, const std::string& name, double eps) {
  const std::vector<double>& w = m.weight(name);
  const auto n = static_cast<std::int64_t>(w.size());
  Matrix y = x;
  for (std::int64_t first = 0; first < x.rows * x.cols; first += n) {
    const double* run = x.values.data() + first;
    const double root = std::sqrt(dot(run, run, n) / static_cast<double>(n) + eps);
    for (std::int64_t i = 0; i < n; ++i) y.values[first + i] = run[i] / root * w[i];
  }
  return y;
}

Matrix mlp(const Model& m, const Matrix& x, const std::string& prefix) {
  const Matrix gate_up = linear(m, x, prefix + ".gate_up");
  Matrix act(x.rows, gate_up.cols / 2);
  for (std::int64_t t = 0; t < act.rows; ++t) {
    const double *gate = gate_up.row(t), *up = gate + act.cols;
    for (std::int64_t i = 0; i < act.cols; ++i) act.row(t)[i] = silu(gate[i]) * up[i];
  }
  return linear(m, act, prefix + ".down");
}

Matrix gqa(const Model& m, const Batch& batch, const Matrix& x, std::int64_t block) {
  const AttentionConfig& a = m.config.attention;
  const std::string prefix = prefix_of(block) + "self_attn.";
  Matrix q = linear(m, x, prefix + "q_proj"), k = linear(m, x, prefix + "k_proj");
  if (a.qk_norm) {
    q = norm(m, q, prefix + "q_norm", m.config.norm_eps);
    k = norm(m, k, prefix + "k_norm", m.config.norm_eps);
  }
  rotate(a.rope, batch, q, a.qk_dim, 0);
  rotate(a.rope, batch, k, a.qk_dim, 0);
  return linear(m, attend(a, batch, q, k, linear(m, x, prefix + "v_proj")), prefix + "o_proj");
}

Matrix mla(const Model& m, const Batch& batch, const Matrix& x, std::int64_t block) {
  const AttentionConfig& a = m.config.attention;
  const std::string prefix = prefix_of(block) + "self_attn.";
  Matrix q =
      a.q_lora_rank == 0
          ? linear(m, x, prefix + "q_proj")
          : linear(m, norm(m, linear(m, x, prefix + "q_a_proj"), prefix + "q_a_layernorm", a.latent_norm_eps),
                   prefix + "q_b_proj");
  rotate(a.rope, batch, q, a.qk_dim, a.nope_dim);
  const Matrix joined = linear(m, x, prefix + "kv_a_proj");
  const Matrix latent =
      norm(m, columns(joined, 0, a.kv_lora_rank), prefix + "kv_a_layernorm", a.latent_norm_eps);
  Matrix rope_key = columns(joined, a.kv_lora_rank, a.rope_dim);
  rotate(a.rope, batch, rope_key, a.rope_dim, 0);
  const Matrix heads = linear(m, latent, prefix + "kv_b_proj");  // of each head [nope | value]
  Matrix k(x.rows, a.num_heads * a.qk_dim), v(x.rows, a.num_heads * a.v_dim);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t h = 0; h < a.num_heads; ++h) {
      const double* head = heads.row(t) + h * (a.nope_dim + a.v_dim);
      std::copy_n(head, a.nope_dim, k.row(t) + h * a.qk_dim);
      std::copy_n(rope_key.row(t), a.rope_dim, k.row(t) + h * a.qk_dim + a.nope_dim);
      std::copy_n(head + a.nope_dim, a.v_dim, v.row(t) + h * a.v_dim);
    }
  }
  return linear(m, attend(a, batch, q, k, v), prefix + "o_proj");
}

Matrix attention(const Model& m, const Batch& batch, const Matrix& x, std::int64_t block) {
  return m.config.attention.kind == AttentionKind::mla ? mla(m, batch, x, block) : gqa(m, batch, x, block);
}

Matrix moe(Model& m, const Batch& batch, const Matrix& x, std::int64_t block) {
  const kernels::RouterOptions& o = m.config.moe.router;
  const std::string prefix = prefix_of(block);
  Matrix logits = linear(m, x, prefix + "router"), scores = router_scores(o, logits);
  if (!m.choice.contains(block)) m.choice[block] = choose_all(m, scores, prefix + "router");
  const std::vector<std::int32_t>& ids = m.choice.at(block);
  Matrix y(x.rows, x.cols);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const std::int32_t* chosen = ids.data() + t * o.top_k;
    double sum = 0.0;
    for (std::int64_t k = 0; k < o.top_k; ++k) sum += scores.row(t)[chosen[k]];
    for (std::int64_t k = 0; k < o.top_k; ++k) {
      const double weight = o.scaling * scores.row(t)[chosen[k]] / (o.normalize ? sum : 1.0);
      add_expert(m, prefix, chosen[k], weight, x.row(t), y.row(t));
    }
  }
  if (m.config.moe.shared_width > 0) add_to(y, mlp(m, x, prefix + "shared"));
  m.routing.insert_or_assign(block, Routing{std::move(logits), std::move(scores), ids, batch.offsets});
  return y;
}

Matrix block(Model& m, const Batch& batch, Matrix x, std::int64_t index) {
  const std::string prefix = prefix_of(index);
  add_to(x, attention(m, batch, norm(m, x, prefix + "input_layernorm", m.config.norm_eps), index));
  const Matrix normed = norm(m, x, prefix + "post_attention_layernorm", m.config.norm_eps);
  add_to(x, m.config.is_moe(index) ? moe(m, batch, normed, index) : mlp(m, normed, prefix + "mlp"));
  return x;
}

Batch shifted(const Batch& batch) {
  Batch next;
  next.offsets.push_back(0);
  for (std::size_t d = 0; d + 1 < batch.offsets.size(); ++d) {
    for (std::int32_t r = batch.offsets[d] + 1; r < batch.offsets[d + 1]; ++r) {
      next.ids.push_back(batch.ids[r]);
      next.labels.push_back(batch.labels[r]);
      next.positions.push_back(batch.positions[r - 1]);
    }
    next.offsets.push_back(static_cast<std::int32_t>(next.ids.size()));
  }
  return next;
}

Matrix mtp(Model& m, const Batch& before, const Matrix& h, std::int64_t depth) {
  const std::int64_t index = m.config.num_layers + depth, d = m.config.hidden_size;
  const std::string prefix = prefix_of(index);
  const Batch batch = shifted(before);
  const Matrix embedded = norm(m, embedding(m, batch), prefix + "enorm", m.config.norm_eps);
  const Matrix hidden = norm(m, h, prefix + "hnorm", m.config.norm_eps);
  Matrix joined(batch.num_tokens(), 2 * d);
  std::int64_t row = 0;
  for (std::size_t i = 0; i + 1 < before.offsets.size(); ++i) {
    for (std::int64_t r = before.offsets[i]; r + 1 < before.offsets[i + 1]; ++r, ++row) {
      std::copy_n(embedded.row(row), d, joined.row(row));
      std::copy_n(hidden.row(r), d, joined.row(row) + d);
    }
  }
  return norm(m, block(m, batch, linear(m, joined, prefix + "eh_proj"), index), prefix + "final_norm",
              m.config.norm_eps);
}

double cross_entropy(const Model& m, const Batch& batch, const Matrix& h) {
  const Matrix logits = linear(m, h, m.config.tie_embeddings ? "embed_tokens" : "lm_head");
  double loss = 0.0;
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    if (batch.labels[t] < 0) continue;
    loss += log_sum_exp(logits.row(t), logits.cols) - logits.row(t)[batch.labels[t]];
  }
  return loss;
}

}  // namespace planalto::double_model
