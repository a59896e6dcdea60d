// SPDX-License-Identifier: Apache-2.0
#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/weight_blocks.h"
#include "kernels/square_blocks.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

namespace {

using simd::Floats;

struct Factors {
  Floats grad, beta1, one_minus_beta1, beta2, one_minus_beta2, keep, step, root, eps;
};

PLANALTO_INLINE Floats factor(double v) {
  return simd::set1(static_cast<float>(v));
}

PLANALTO_INLINE Factors factors_of(const AdamWUpdate& a) {
  const AdamWScalars& s = *a.scalars;
  return {.grad = simd::set1(a.grad_factor != nullptr ? *a.grad_factor : 1.0F),
          .beta1 = factor(s.beta1),
          .one_minus_beta1 = factor(1.0 - s.beta1),
          .beta2 = factor(s.beta2),
          .one_minus_beta2 = factor(1.0 - s.beta2),
          .keep = factor(1.0 - s.learning_rate * static_cast<double>(a.decay)),
          .step = factor(s.learning_rate / s.correction1),
          .root = factor(1.0 / std::sqrt(s.correction2)),
          .eps = factor(s.eps)};
}

// A subnormal moment times 0.9 rounds to itself for ever, and every later use of it is slow.
PLANALTO_INLINE Floats without_subnormals(Floats v) {
  return simd::where_less(simd::max(v, simd::zero() - v), simd::set1(0x1p-126F), simd::zero(), v);
}

// Elements between a prefetch and its use: the divider would else keep the loads of later lines waiting.
constexpr std::int64_t kAhead = 192;

// Elements [begin, end); the bf16 copy of the first goes to *weight. The elements that are updated next begin `stride` after begin.
template <bool kWeight>
void update(const AdamWUpdate& a, const Factors& k, std::int64_t begin, std::int64_t end, std::int64_t stride,
            bf16* weight) {
  const float* grad = a.grad + begin;
  float *master = a.master + begin, *first = a.m + begin, *second = a.v + begin;
  const std::int64_t n = end - begin;
  simd::sweep(n, [&](std::int64_t i, auto part) {
    const std::int64_t next = i + kAhead < n ? i + kAhead : i + kAhead - n + stride;
    for (const float* stream : {grad, static_cast<const float*>(master), static_cast<const float*>(first),
                                static_cast<const float*>(second)}) {
      _mm_prefetch(reinterpret_cast<const char*>(stream + next), _MM_HINT_T0);
    }
    const Floats g = simd::load(grad + i, part) * k.grad;
    const Floats m =
        without_subnormals(simd::fma(k.beta1, simd::load(first + i, part), k.one_minus_beta1 * g));
    const Floats v =
        without_subnormals(simd::fma(k.beta2, simd::load(second + i, part), k.one_minus_beta2 * g * g));
    const Floats direction = m / simd::fma(simd::sqrt(v), k.root, k.eps);
    const Floats p = simd::fnma(k.step, direction, simd::load(master + i, part) * k.keep);
    simd::store(first + i, m, part);
    simd::store(second + i, v, part);
    simd::store(master + i, p, part);
    if (kWeight) simd::store(weight + i, p, part);
  });
}

// NaN and infinity of any element survive: nothing is compared, and the square of a float is finite in
// double.
PLANALTO_INLINE double block_squares(const float* x, std::int64_t n) {
  constexpr std::int64_t kSums = 32;
  double sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (std::int64_t k = 0; k < kSums; ++k) {
      const double v = static_cast<double>(x[i + k]);
      sums[k] += v * v;
    }
  }
  for (std::int64_t k = 0; i + k < n; ++k) {
    const double v = static_cast<double>(x[i + k]);
    sums[k] += v * v;
  }
  for (std::int64_t width = kSums / 2; width > 0; width /= 2) {
    for (std::int64_t k = 0; k < width; ++k) sums[k] += sums[k + width];
  }
  return sums[0];
}

}  // namespace

void adamw_update(const ExecContext& ctx, const AdamWUpdate& a) {
  if (a.skip != nullptr && *a.skip != 0) return;
  const Factors k = factors_of(a);
  if (a.packed.num > 0) {
    const PackedCopies& c = a.packed;
    for_each_weight_block(ctx, c, [&](const WeightBlock& b, bf16* values) {
      for (std::int64_t r = 0; r < b.rows; ++r) {
        const std::int64_t first = (b.matrix * c.n + b.row + r) * c.k + b.col;
        update<true>(a, k, first, first + b.cols, c.k, values + r * kBlockCols);
      }
    });
    return;
  }
  parallel_ranges(ctx, a.n, 16384, [&](std::int64_t begin, std::int64_t end, int) {
    if (a.weight != nullptr) {
      update<true>(a, k, begin, end, end - begin, static_cast<bf16*>(a.weight) + begin);
    } else {
      update<false>(a, k, begin, end, end - begin, nullptr);
    }
  });
}

void sum_squares(const ExecContext& ctx, const SumSquares& a) {
  double* partials = static_cast<double*>(a.workspace.data);
  const std::int64_t blocks = num_square_blocks(a.n);
  parallel_ranges(ctx, blocks, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t at = b * kSquareBlock;
      partials[b] = block_squares(a.x + at, a.n - at < kSquareBlock ? a.n - at : kSquareBlock);
    }
  });
  double sum = 0.0;
  for (std::int64_t b = 0; b < blocks; ++b) sum += partials[b];
  *a.sum = sum;
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
