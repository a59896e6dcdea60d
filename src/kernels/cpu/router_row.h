// SPDX-License-Identifier: Apache-2.0
// router_row.h: one token's arithmetic over its E experts, shared by the router bodies: sums, sigmoid, softmax.
// Shapes      rows of kMaxExperts floats, worked on up to padded(E), the next multiple of 16
// Numerics    sums over 16 interleaved lanes whatever the vector width, so that bits are the same on every ISA
// Threads     internal linkage: each ISA object has copies of its own
#pragma once

#include <cstdint>

#include "kernels/cpu/simd.h"

namespace planalto::kernels::PLANALTO_ISA_NS {
namespace {  // NOLINT: internal linkage is the purpose, see above

constexpr float kInfinity = __builtin_inff();
constexpr std::int64_t kSumLanes = 16;

PLANALTO_INLINE std::int64_t padded(std::int64_t n) {
  return (n + kSumLanes - 1) / kSumLanes * kSumLanes;
}

// Sixteen lanes, as one vector or two, folded as one tree.
constexpr std::int64_t kParts = kSumLanes / simd::kLanes;
struct SumLanes {
  simd::Floats part[kParts];
};
PLANALTO_INLINE float fold(const SumLanes& s) {
  alignas(64) float lanes[kSumLanes];
  for (std::int64_t i = 0; i < kParts; ++i) simd::store(lanes + i * simd::kLanes, s.part[i]);
  for (std::int64_t width = kSumLanes / 2; width > 0; width /= 2) {
    for (std::int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}
// n is a multiple of 16 in what follows.
PLANALTO_INLINE float lane_sum(const float* x, std::int64_t n) {
  SumLanes s;
  for (std::int64_t i = 0; i < kParts; ++i) s.part[i] = simd::zero();
  for (std::int64_t e = 0; e < n; e += kSumLanes) {
    for (std::int64_t i = 0; i < kParts; ++i) s.part[i] += simd::load(x + e + i * simd::kLanes);
  }
  return fold(s);
}
PLANALTO_INLINE float lane_dot(const float* x, const float* y, std::int64_t n) {
  SumLanes s;
  for (std::int64_t i = 0; i < kParts; ++i) s.part[i] = simd::zero();
  for (std::int64_t e = 0; e < n; e += kSumLanes) {
    for (std::int64_t i = 0; i < kParts; ++i) {
      const std::int64_t at = e + i * simd::kLanes;
      s.part[i] = simd::fma(simd::load(x + at), simd::load(y + at), s.part[i]);
    }
  }
  return fold(s);
}
// The largest number; NaN is passed over, -infinity when nothing is left.
PLANALTO_INLINE float row_max(const float* x, std::int64_t n) {
  simd::Floats best = simd::set1(-kInfinity);
  for (std::int64_t e = 0; e < n; e += simd::kLanes) best = simd::max(simd::load(x + e), best);
  return simd::max_lane(best);
}

// The first element equal to `value`; there is one. NaN equals nothing.
PLANALTO_INLINE std::int64_t first_equal(const float* x, float value) {
  const simd::Floats wanted = simd::set1(value);
  for (std::int64_t e = 0;; e += simd::kLanes) {
#ifdef __AVX512F__
    const std::uint32_t equal = _mm512_cmp_ps_mask(simd::load(x + e), wanted, _CMP_EQ_OQ);
#else
    const auto equal =
        static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(simd::load(x + e), wanted, _CMP_EQ_OQ)));
#endif
    if (equal != 0) return e + __builtin_ctz(equal);
  }
}

// Copies n values and fills up to padded(n).
PLANALTO_INLINE void load_padded(const float* from, float* to, std::int64_t n, float fill) {
  __builtin_memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
  for (std::int64_t e = n; e < padded(n); ++e) to[e] = fill;
}

// Logits are padded with -infinity: the padding's score is 0.
PLANALTO_INLINE void sigmoid_row(const float* logits, float* scores, std::int64_t n) {
  for (std::int64_t e = 0; e < padded(n); e += simd::kLanes) {
    simd::store(scores + e, simd::sigmoid(simd::load(logits + e)));
  }
}
struct SoftmaxRow {
  float max, sum;
};
PLANALTO_INLINE SoftmaxRow softmax_row(const float* logits, float* scores, std::int64_t n) {
  const float max = row_max(logits, padded(n));
  for (std::int64_t e = 0; e < padded(n); e += simd::kLanes) {
    simd::store(scores + e, simd::exp(simd::load(logits + e) - simd::set1(max)));
  }
  const float sum = lane_sum(scores, padded(n));
  for (std::int64_t e = 0; e < padded(n); e += simd::kLanes) {
    simd::store(scores + e, simd::load(scores + e) / simd::set1(sum));
  }
  return {max, sum};
}

}  // namespace
}  // namespace planalto::kernels::PLANALTO_ISA_NS
