// SPDX-License-Identifier: Apache-2.0
#include "kernels/router.h"

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/router_row.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

namespace {

// A token's row, padded so that vector loops need no tail.
struct Row {
  alignas(64) float logits[kMaxExperts];
  alignas(64) float scores[kMaxExperts];
  alignas(64) float biased[kMaxExperts];
  alignas(64) std::int32_t keys[kMaxExperts];
};

constexpr std::int32_t kLowestKey = INT32_MIN;

// An integer that ascends with the float: both zeros equal, NaN below -infinity.
PLANALTO_INLINE std::int32_t ordered_key(float x) {
  const auto bits = static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, x + 0.0F));
  const std::int32_t key = bits ^ ((bits >> 31) & 0x7fffffff);
  return x == x ? key : kLowestKey;
}

// The best `limit` candidates so far, keys descending. Candidates come with ascending ids, so an equal key
// never displaces.
struct Best {
  std::int32_t keys[kMaxExperts], ids[kMaxExperts];
  std::int64_t size = 0, limit = 0;

  [[gnu::always_inline]] void offer(std::int32_t key, std::int32_t id) {
    if (size == limit && key <= keys[limit - 1]) return;
    std::int64_t at = size < limit ? size++ : limit - 1;
    for (; at > 0 && keys[at - 1] < key; --at) {
      keys[at] = keys[at - 1];
      ids[at] = ids[at - 1];
    }
    keys[at] = key;
    ids[at] = id;
  }
};

PLANALTO_INLINE float group_value(const RouterOptions& o, const float* values, std::int64_t size) {
  float best = -kInfinity, second = -kInfinity;
  for (std::int64_t i = 0; i < size; ++i) {
    const float v = values[i];
    const float lesser = v > best ? best : v;
    best = v > best ? v : best;
    second = lesser > second ? lesser : second;
  }
  return o.group_score == GroupScore::best ? best : best + second;
}

// What experts and groups compete with. Softmax without a bias: the logits, whose small differences fp32
// scores lose.
struct Contest {
  const float* experts;
  const float* groups;
};
PLANALTO_INLINE Contest contest(const RouterForward& a, Row& row) {
  const RouterOptions& o = a.options;
  if (a.bias != nullptr) {
    for (std::int64_t e = 0; e < o.num_experts; ++e) row.biased[e] = row.scores[e] + a.bias[e];
    return {row.biased, row.biased};
  }
  if (o.score == RouterScore::sigmoid) return {row.scores, row.scores};
  return {row.logits, o.group_score == GroupScore::best ? row.logits : row.scores};
}

PLANALTO_INLINE void select(const RouterForward& a, Row& row, Best& best, std::int32_t* ids) {
  const RouterOptions& o = a.options;
  const std::int64_t size = o.num_experts / o.num_groups;
  const Contest c = contest(a, row);
  bool kept[kMaxExperts];
  for (std::int64_t g = 0; g < o.num_groups; ++g) kept[g] = o.top_groups == o.num_groups;
  if (o.top_groups < o.num_groups) {
    best.size = 0;
    best.limit = o.top_groups;
    for (std::int64_t g = 0; g < o.num_groups; ++g) {
      best.offer(ordered_key(group_value(o, c.groups + g * size, size)), static_cast<std::int32_t>(g));
    }
    for (std::int64_t i = 0; i < o.top_groups; ++i) kept[best.ids[i]] = true;
  }
  for (std::int64_t e = 0; e < o.num_experts; ++e) row.keys[e] = ordered_key(c.experts[e]);
  best.size = 0;
  best.limit = o.top_k;
  for (std::int64_t g = 0; g < o.num_groups; ++g) {
    if (!kept[g]) continue;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e)
      best.offer(row.keys[e], static_cast<std::int32_t>(e));
  }
  for (std::int64_t k = 0; k < o.top_k; ++k) {
    std::int64_t at = k;
    for (; at > 0 && ids[at - 1] > best.ids[k]; --at) ids[at] = ids[at - 1];
    ids[at] = best.ids[k];
  }
}

PLANALTO_INLINE void score_row(const RouterOptions& o, const float* logits, Row& row) {
  load_padded(logits, row.logits, o.num_experts, -kInfinity);
  if (o.score == RouterScore::sigmoid) {
    sigmoid_row(row.logits, row.scores, o.num_experts);
  } else {
    softmax_row(row.logits, row.scores, o.num_experts);
  }
}

// The divisor of the weights: sum of the chosen scores in slot order.
PLANALTO_INLINE float chosen_sum(const RouterOptions& o, const float* scores, const std::int32_t* ids) {
  float sum = 0.0F;
  for (std::int64_t k = 0; k < o.top_k; ++k) sum += scores[ids[k]];
  return o.score == RouterScore::sigmoid ? sum + 1e-20F : sum;
}

PLANALTO_INLINE void weight_row(const RouterOptions& o, const float* scores, const std::int32_t* ids,
                                float* weights) {
  const auto scaling = static_cast<float>(o.scaling);
  const float sum = o.normalize ? chosen_sum(o, scores, ids) : 1.0F;
  for (std::int64_t k = 0; k < o.top_k; ++k) weights[k] = scores[ids[k]] / sum * scaling;
}

// Integers: the order in which the workers add does not matter.
struct Counter {
  std::int64_t count[kMaxExperts] = {};

  [[gnu::always_inline]] void add(const std::int32_t* ids, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) ++count[ids[i]];
  }
  [[gnu::always_inline]] void flush(std::int64_t* total, std::int64_t n) const {
    if (total == nullptr) return;
    for (std::int64_t e = 0; e < n; ++e) {
      if (count[e] != 0) __atomic_fetch_add(total + e, count[e], __ATOMIC_RELAXED);
    }
  }
};

PLANALTO_INLINE void clear_counts(std::int64_t* counts, std::int64_t n) {
  for (std::int64_t e = 0; counts != nullptr && e < n; ++e) counts[e] = 0;
}

}  // namespace

void router_forward(const ExecContext& ctx, const RouterForward& a) {
  const std::int64_t num_experts = a.options.num_experts, top_k = a.options.top_k;
  clear_counts(a.counts, num_experts);
  parallel_ranges(ctx, a.tokens.get(), 16, [&](std::int64_t begin, std::int64_t end, int) {
    Row row;
    Best best;
    Counter counter;
    for (std::int64_t t = begin; t < end; ++t) {
      std::int32_t* ids = a.ids + t * top_k;
      score_row(a.options, a.logits + t * num_experts, row);
      select(a, row, best, ids);
      weight_row(a.options, row.scores, ids, a.weights + t * top_k);
      counter.add(ids, top_k);
      if (a.scores != nullptr) {
        __builtin_memcpy(a.scores + t * num_experts, row.scores,
                         static_cast<std::size_t>(num_experts) * sizeof(float));
      }
    }
    counter.flush(a.counts, num_experts);
  });
}

void router_weights(const ExecContext& ctx, const RouterWeights& a) {
  const std::int64_t num_experts = a.options.num_experts, top_k = a.options.top_k;
  clear_counts(a.counts, num_experts);
  parallel_ranges(ctx, a.tokens.get(), 16, [&](std::int64_t begin, std::int64_t end, int) {
    Row row;
    Counter counter;
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int32_t* ids = a.ids + t * top_k;
      score_row(a.options, a.logits + t * num_experts, row);
      weight_row(a.options, row.scores, ids, a.weights + t * top_k);
      counter.add(ids, top_k);
      if (a.scores != nullptr) {
        __builtin_memcpy(a.scores + t * num_experts, row.scores,
                         static_cast<std::size_t>(num_experts) * sizeof(float));
      }
    }
    counter.flush(a.counts, num_experts);
  });
}

void router_backward(const ExecContext& ctx, const RouterBackward& a) {
  const RouterOptions& o = a.options;
  const auto scaling = static_cast<float>(o.scaling);
  parallel_ranges(ctx, a.tokens.get(), 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* scores = a.scores + t * o.num_experts;
      const std::int32_t* ids = a.ids + t * o.top_k;
      const float* dweights = a.dweights + t * o.top_k;
      float* dlogits = a.dlogits + t * o.num_experts;
      const float sum = o.normalize ? chosen_sum(o, scores, ids) : 1.0F;
      // mean: what the normalisation or the softmax takes back from every dweight
      float mean = 0.0F;
      if (o.normalize || o.score == RouterScore::softmax) {
        for (std::int64_t k = 0; k < o.top_k; ++k) mean += dweights[k] * (scores[ids[k]] / sum);
      }
      const bool full_jacobian = o.score == RouterScore::softmax && !o.normalize;
      const float spread = full_jacobian ? -mean * scaling : 0.0F;
      for (std::int64_t e = 0; e < o.num_experts; ++e) dlogits[e] = full_jacobian ? scores[e] * spread : 0.0F;
      for (std::int64_t k = 0; k < o.top_k; ++k) {
        const float s = scores[ids[k]];
        const float slope = o.score == RouterScore::sigmoid ? s * (1.0F - s) : s;
        dlogits[ids[k]] = (dweights[k] - mean) * scaling * (slope / sum);
      }
    }
  });
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
