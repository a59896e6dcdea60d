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
  alignas(64) float contest[kMaxExperts];
  alignas(64) float groups[kMaxExperts];
};

// Competitors are numbers or -infinity; NaN marks who is out: padding, masked groups, and those already chosen.
constexpr float kOut = __builtin_nanf("");

PLANALTO_INLINE float competing(float value) {
  return value == value ? value : -kInfinity;
}

// Takes the n best out of `values` [size], which is padded with kOut and has at least n competitors; of equal values
// the lower indices. taken: a bit for each index, 0 before. The maximum of each 16 values is kept beside them.
PLANALTO_INLINE void take_best(float* values, std::int64_t size, std::int64_t n, std::uint64_t* taken) {
  alignas(64) float tops[kMaxExperts / kSumLanes];
  const std::int64_t blocks = padded(size) / kSumLanes;
  for (std::int64_t b = 0; b < padded(blocks); ++b) {
    tops[b] = b < blocks ? row_max(values + b * kSumLanes, kSumLanes) : -kInfinity;
  }
  for (std::int64_t k = 0; k < n; ++k) {
    const float best = row_max(tops, padded(blocks));
    // -infinity is also the maximum of a block that has nobody left
    const std::int64_t first = best > -kInfinity ? first_equal(tops, best) * kSumLanes : 0;
    const std::int64_t i = first + first_equal(values + first, best);
    values[i] = kOut;
    taken[i / 64] |= std::uint64_t{1} << (i % 64);
    const std::int64_t block = i / kSumLanes;
    tops[block] = row_max(values + block * kSumLanes, kSumLanes);
  }
}

PLANALTO_INLINE float group_value(const RouterOptions& o, const float* values, std::int64_t size) {
  float best = -kInfinity, second = -kInfinity;
  std::int64_t i = 0;
  if (size >= simd::kLanes) {
    simd::Floats bests = simd::set1(-kInfinity), seconds = bests;
    for (; i + simd::kLanes <= size; i += simd::kLanes) {
      const simd::Floats v = simd::max(simd::load(values + i), simd::set1(-kInfinity));  // NaN: -infinity
      seconds = simd::max(seconds, simd::min(v, bests));
      bests = simd::max(bests, v);
    }
    // The second is the best of the lanes once the winner's lane has stepped back to its own second.
    alignas(64) float lanes[simd::kLanes], behind[simd::kLanes];
    simd::store(lanes, bests);
    simd::store(behind, seconds);
    best = simd::max_lane(bests);
    const std::int64_t winner = first_equal(lanes, best);
    lanes[winner] = behind[winner];
    second = simd::max_lane(simd::load(lanes));
  }
  for (; i < size; ++i) {
    const float v = competing(values[i]);
    const float lesser = v < best ? v : best;
    best = v > best ? v : best;
    second = lesser > second ? lesser : second;
  }
  return o.group_score == GroupScore::best ? best : best + second;
}

// What experts and groups compete with. Softmax without a bias: the logits, whose small differences fp32 scores lose.
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

// Masks the experts of all groups but the best ones.
PLANALTO_INLINE void mask_groups(const RouterOptions& o, const float* values, Row& row) {
  const std::int64_t size = o.num_experts / o.num_groups;
  for (std::int64_t g = 0; g < padded(o.num_groups); ++g) {
    row.groups[g] = g < o.num_groups ? group_value(o, values + g * size, size) : kOut;
  }
  std::uint64_t kept[kMaxExperts / 64] = {};
  take_best(row.groups, o.num_groups, o.top_groups, kept);
  for (std::int64_t g = 0; g < o.num_groups; ++g) {
    if ((kept[g / 64] >> (g % 64) & 1U) != 0) continue;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) row.contest[e] = kOut;
  }
}

PLANALTO_INLINE void select(const RouterForward& a, Row& row, std::int32_t* ids) {
  const RouterOptions& o = a.options;
  const Contest c = contest(a, row);
  for (std::int64_t e = 0; e < o.num_experts; ++e) row.contest[e] = competing(c.experts[e]);
  for (std::int64_t e = o.num_experts; e < padded(o.num_experts); ++e) row.contest[e] = kOut;
  if (o.top_groups < o.num_groups) mask_groups(o, c.groups, row);
  std::uint64_t chosen[kMaxExperts / 64] = {};
  take_best(row.contest, o.num_experts, o.top_k, chosen);
  for (std::int64_t word = 0; word * 64 < o.num_experts; ++word) {
    for (std::uint64_t bits = chosen[word]; bits != 0; bits &= bits - 1) {
      *ids++ = static_cast<std::int32_t>(word * 64 + __builtin_ctzll(bits));
    }
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

// What a recompute or the backward pass reads of a token: its scores, where they are wanted.
PLANALTO_INLINE void keep_scores(float* scores, const Row& row, std::int64_t token,
                                 std::int64_t num_experts) {
  if (scores == nullptr) return;
  __builtin_memcpy(scores + token * num_experts, row.scores,
                   static_cast<std::size_t>(num_experts) * sizeof(float));
}

}  // namespace

void router_forward(const ExecContext& ctx, const RouterForward& a) {
  const std::int64_t num_experts = a.options.num_experts, top_k = a.options.top_k;
  clear_counts(a.counts, num_experts);
  parallel_ranges(ctx, a.tokens.get(), 16, [&](std::int64_t begin, std::int64_t end, int) {
    Row row;
    Counter counter;
    for (std::int64_t t = begin; t < end; ++t) {
      std::int32_t* ids = a.ids + t * top_k;
      score_row(a.options, a.logits + t * num_experts, row);
      select(a, row, ids);
      weight_row(a.options, row.scores, ids, a.weights + t * top_k);
      counter.add(ids, top_k);
      keep_scores(a.scores, row, t, num_experts);
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
      keep_scores(a.scores, row, t, num_experts);
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
