// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm.h"

#include <cmath>

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

namespace {

// v as it is after a store to T.
PLANALTO_INLINE simd::Floats rounded_to(const float*, simd::Floats v) {
  return v;
}
PLANALTO_INLINE simd::Floats rounded_to(const bf16*, simd::Floats v) {
  return simd::rounded_to_bf16(v);
}

template <class T>
void forward_rows(const RmsNormForward& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t d = a.x.cols;
  const T* weight = static_cast<const T*>(a.weight);
  for (std::int64_t r = begin; r < end; ++r) {
    const T* x = a.x.row<T>(r);
    T* y = a.y.row<T>(r);
    const float squares = simd::sum_terms(d, [&](std::int64_t i, auto part) {
      const simd::Floats v = simd::load(x + i, part);
      return v * v;
    });
    const float rstd = 1.0F / std::sqrt(squares / static_cast<float>(d) + a.eps);
    if (a.rstd != nullptr) a.rstd[r] = rstd;
    simd::sweep(d, [&](std::int64_t i, auto part) {
      const simd::Floats n = rounded_to(x, simd::load(x + i, part) * simd::set1(rstd));
      simd::store(y + i, n * simd::load(weight + i, part), part);
    });
  }
}

// dx of one row, and its dy n added to dweight unless that is null.
template <class T, bool kAccumulate>
PLANALTO_INLINE void backward_row(const RmsNormBackward& a, std::int64_t r, float* dweight) {
  const std::int64_t d = a.x.cols;
  const T *x = a.x.row<T>(r), *dy = a.dy.row<T>(r), *weight = static_cast<const T*>(a.weight);
  T* dx = a.dx.row<T>(r);
  const float rstd = a.rstd[r];
  const float dot = simd::sum_terms(d, [&](std::int64_t i, auto part) {
    return simd::load(dy + i, part) * simd::load(weight + i, part) * simd::load(x + i, part);
  });
  const simd::Floats mean = simd::set1(dot * rstd / static_cast<float>(d)), scale = simd::set1(rstd);
  simd::sweep(d, [&](std::int64_t i, auto part) {
    const simd::Floats g = simd::load(dy + i, part), n = simd::load(x + i, part) * scale;
    if (dweight != nullptr) simd::store(dweight + i, simd::fma(g, n, simd::load(dweight + i, part)), part);
    simd::Floats grad = scale * simd::fnma(n, mean, g * simd::load(weight + i, part));
    if (kAccumulate) grad += simd::load(dx + i, part);
    simd::store(dx + i, grad, part);
  });
}

template <class T, bool kAccumulate>
void backward_typed(const ExecContext& ctx, const RmsNormBackward& a) {
  const auto fold_rows = [&](std::int64_t begin, std::int64_t end, float* dweight) {
    for (std::int64_t r = begin; r < end; ++r) backward_row<T, kAccumulate>(a, r, dweight);
  };
  if (a.dweight != nullptr) {
    sum_columns(ctx, a.rows.get(), a.x.cols, static_cast<float*>(a.workspace.data), a.dweight,
                a.accumulate_dweight, fold_rows);
    return;
  }
  parallel_ranges(ctx, a.rows.get(), row_grain(a.x.cols),
                  [&](std::int64_t begin, std::int64_t end, int) { fold_rows(begin, end, nullptr); });
}

}  // namespace

void rms_norm_forward(const ExecContext& ctx, const RmsNormForward& a) {
  parallel_ranges(ctx, a.rows.get(), row_grain(a.x.cols), [&](std::int64_t begin, std::int64_t end, int) {
    a.x.dtype == DType::f32 ? forward_rows<float>(a, begin, end) : forward_rows<bf16>(a, begin, end);
  });
}

void rms_norm_backward(const ExecContext& ctx, const RmsNormBackward& a) {
  if (a.x.dtype == DType::f32) {
    a.accumulate_dx ? backward_typed<float, true>(ctx, a) : backward_typed<float, false>(ctx, a);
  } else {
    a.accumulate_dx ? backward_typed<bf16, true>(ctx, a) : backward_typed<bf16, false>(ctx, a);
  }
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
