// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

namespace {

using simd::Floats;

// One vector of angles serves all heads: they are the inner loop. x is the first rotated element of head 0.
template <class T>
PLANALTO_INLINE void rotate_halves(const RopeApply& a, T* x, const float* cosines, const float* sines) {
  simd::sweep(a.half, [&](std::int64_t i, auto part) {
    const Floats c = simd::load(cosines + i, part), s = simd::load(sines + i, part);
    const Floats sine = a.inverse ? simd::zero() - s : s;
    for (std::int64_t h = 0; h < a.num_heads; ++h) {
      T* low = x + h * a.head_stride + i;
      T* high = low + a.half;
      const Floats u = simd::load(low, part), v = simd::load(high, part);
      simd::store(low, simd::fnma(v, sine, u * c), part);
      simd::store(high, simd::fma(u, sine, v * c), part);
    }
  });
}

template <class T>
PLANALTO_INLINE void rotate_pairs(const RopeApply& a, T* x, const float* cosines, const float* sines) {
  // (-s, +s) repeated for the forward rotation, (+s, -s) for its inverse
  const Floats sign = simd::repeat_pair(a.inverse ? 1.0F : -1.0F, a.inverse ? -1.0F : 1.0F);
  simd::sweep(2 * a.half, [&](std::int64_t i, auto part) {
    const Floats c = simd::repeat_each(simd::load_half(cosines + i / 2, part));
    const Floats s = simd::repeat_each(simd::load_half(sines + i / 2, part)) * sign;
    for (std::int64_t h = 0; h < a.num_heads; ++h) {
      T* at = x + h * a.head_stride + i;
      const Floats v = simd::load(at, part);
      simd::store(at, simd::fma(simd::swap_pairs(v), s, v * c), part);
    }
  });
}

template <class T>
void rotate_tokens(const RopeApply& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    T* x = static_cast<T*>(a.x) + t * a.row_stride + a.first;
    const float* cosines = a.table + a.positions[t] * 2 * a.half;
    if (a.style == RopeStyle::halves) {
      rotate_halves(a, x, cosines, cosines + a.half);
    } else {
      rotate_pairs(a, x, cosines, cosines + a.half);
    }
  }
}

}  // namespace

void rope_apply(const ExecContext& ctx, const RopeApply& a) {
  parallel_ranges(ctx, a.tokens.get(), row_grain(a.num_heads * a.half * 2),
                  [&](std::int64_t begin, std::int64_t end, int) {
                    a.dtype == DType::f32 ? rotate_tokens<float>(a, begin, end)
                                          : rotate_tokens<bf16>(a, begin, end);
                  });
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
