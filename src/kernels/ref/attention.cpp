// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace planalto::kernels::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double get(const ConstHeadsView& view, DType dtype, std::int64_t row, std::int64_t head, std::int64_t i) {
  const std::int64_t at = row * view.row_stride + head * view.head_stride + i;
  if (dtype == DType::f64) return static_cast<const double*>(view.data)[at];
  if (dtype == DType::f32) return static_cast<double>(static_cast<const float*>(view.data)[at]);
  return static_cast<double>(to_float(static_cast<const bf16*>(view.data)[at]));
}

void put(const HeadsView& view, DType dtype, std::int64_t row, std::int64_t head, std::int64_t i,
         double value) {
  const std::int64_t at = row * view.row_stride + head * view.head_stride + i;
  if (dtype == DType::f64) static_cast<double*>(view.data)[at] = value;
  if (dtype == DType::f32) static_cast<float*>(view.data)[at] = static_cast<float>(value);
  if (dtype == DType::bf16) static_cast<bf16*>(view.data)[at] = to_bf16(static_cast<float>(value));
}

// What one query row of one head sees: keys begin .. end-1 of its document and their probabilities.
struct Row {
  std::int64_t begin = 0, end = 0;
  std::vector<double> probability;
  double lse = -kInfinity;
};

template <class Args>
Row softmax_row(const Args& a, std::int64_t document, std::int64_t query, std::int64_t head) {
  const AttentionShape& s = a.shape;
  const std::int64_t q_begin = a.documents.q_offsets[document], kv_begin = a.documents.kv_offsets[document];
  const std::int64_t q_rows = a.documents.q_offsets[document + 1] - q_begin;
  const std::int64_t kv_rows = a.documents.kv_offsets[document + 1] - kv_begin;
  Row row;
  row.end = std::max<std::int64_t>(0, query + 1 + kv_rows - q_rows);
  row.begin = s.window > 0 ? std::max<std::int64_t>(0, row.end - s.window) : 0;
  const double sink = a.sinks != nullptr ? static_cast<double>(a.sinks[head]) : -kInfinity;
  double highest = sink;
  for (std::int64_t j = row.begin; j < row.end; ++j) {
    double score = 0.0;
    for (std::int64_t i = 0; i < s.qk_dim; ++i) {
      score += get(a.q, s.dtype, q_begin + query, head, i) *
               get(a.k, s.dtype, kv_begin + j, head / (s.num_heads / s.num_kv_heads), i);
    }
    row.probability.push_back(score * s.scale);
    highest = std::max(highest, row.probability.back());
  }
  if (highest == -kInfinity) return row;
  double sum = std::exp(sink - highest);
  for (double& p : row.probability) sum += (p = std::exp(p - highest));
  for (double& p : row.probability) p /= sum;
  row.lse = highest + std::log(sum);
  return row;
}

// body(document, query within it, head) for every row of every document.
template <class Args, class Body>
void for_each_row(const Args& a, const Body& body) {
  for (std::int64_t d = 0; d < a.documents.num.get(); ++d) {
    const std::int64_t rows = a.documents.q_offsets[d + 1] - a.documents.q_offsets[d];
    for (std::int64_t query = 0; query < rows; ++query) {
      for (std::int64_t head = 0; head < a.shape.num_heads; ++head) body(d, query, head);
    }
  }
}

}  // namespace

void attention_forward(const AttentionForward& a) {
  const AttentionShape& s = a.shape;
  for_each_row(a, [&](std::int64_t d, std::int64_t query, std::int64_t head) {
    const Row row = softmax_row(a, d, query, head);
    const std::int64_t kv_head = head / (s.num_heads / s.num_kv_heads), at = a.documents.q_offsets[d] + query;
    for (std::int64_t i = 0; i < s.v_dim; ++i) {
      double sum = 0.0;
      for (std::int64_t j = row.begin; j < row.end; ++j) {
        sum += row.probability[static_cast<std::size_t>(j - row.begin)] *
               get(a.v, s.dtype, a.documents.kv_offsets[d] + j, kv_head, i);
      }
      put(a.out, s.dtype, at, head, i, sum);
    }
    if (a.lse != nullptr) a.lse[at * s.num_heads + head] = static_cast<float>(row.lse);
  });
}

void attention_backward(const AttentionBackward& a) {
  const AttentionShape& s = a.shape;
  const std::int64_t kv_heads = s.num_kv_heads, num = a.documents.num.get();
  const std::int64_t key_rows = num > 0 ? a.documents.kv_offsets[num] : 0;
  std::vector<double> dk(static_cast<std::size_t>(key_rows * kv_heads * s.qk_dim));
  std::vector<double> dv(static_cast<std::size_t>(key_rows * kv_heads * s.v_dim));
  std::vector<double> dsinks(static_cast<std::size_t>(s.num_heads));
  for_each_row(a, [&](std::int64_t d, std::int64_t query, std::int64_t head) {
    const Row row = softmax_row(a, d, query, head);
    const std::int64_t kv_head = head / (s.num_heads / kv_heads), at = a.documents.q_offsets[d] + query;
    // dP_j = dout . v_j; delta = sum of P_j dP_j; dS_j = P_j (dP_j - delta)
    std::vector<double> dp;
    double delta = 0.0;
    for (std::int64_t j = row.begin; j < row.end; ++j) {
      const std::int64_t key = a.documents.kv_offsets[d] + j;
      const double p = row.probability[static_cast<std::size_t>(j - row.begin)];
      double sum = 0.0;
      for (std::int64_t i = 0; i < s.v_dim; ++i) {
        const double g = get(a.dout, s.dtype, at, head, i);
        sum += g * get(a.v, s.dtype, key, kv_head, i);
        dv[static_cast<std::size_t>((key * kv_heads + kv_head) * s.v_dim + i)] += p * g;
      }
      dp.push_back(sum);
      delta += p * sum;
    }
    if (a.sinks != nullptr) {
      dsinks[static_cast<std::size_t>(head)] -=
          std::exp(static_cast<double>(a.sinks[head]) - row.lse) * delta;
    }
    for (std::int64_t i = 0; i < s.qk_dim; ++i) {
      double dq = 0.0;
      for (std::int64_t j = row.begin; j < row.end; ++j) {
        const std::int64_t key = a.documents.kv_offsets[d] + j;
        const std::size_t n = static_cast<std::size_t>(j - row.begin);
        const double ds = row.probability[n] * (dp[n] - delta) * s.scale;
        dq += ds * get(a.k, s.dtype, key, kv_head, i);
        dk[static_cast<std::size_t>((key * kv_heads + kv_head) * s.qk_dim + i)] +=
            ds * get(a.q, s.dtype, at, head, i);
      }
      put(a.dq, s.dtype, at, head, i, dq);
    }
  });
  for (std::int64_t row = num > 0 ? a.documents.kv_offsets[0] : 0; row < key_rows; ++row) {
    for (std::int64_t h = 0; h < kv_heads; ++h) {
      const std::size_t at = static_cast<std::size_t>(row * kv_heads + h);
      for (std::int64_t i = 0; i < s.qk_dim; ++i) {
        put(a.dk, s.dtype, row, h, i,
            dk[at * static_cast<std::size_t>(s.qk_dim) + static_cast<std::size_t>(i)]);
      }
      for (std::int64_t i = 0; i < s.v_dim; ++i) {
        put(a.dv, s.dtype, row, h, i,
            dv[at * static_cast<std::size_t>(s.v_dim) + static_cast<std::size_t>(i)]);
      }
    }
  }
  for (std::int64_t h = 0; a.dsinks != nullptr && h < s.num_heads; ++h) {
    a.dsinks[h] += static_cast<float>(dsinks[static_cast<std::size_t>(h)]);
  }
}

}  // namespace planalto::kernels::reference
