// SPDX-License-Identifier: Apache-2.0
#include "kernels/swiglu.h"

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

namespace {

template <class T>
void forward_rows(const SwigluForward& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t f = a.act.cols;
  for (std::int64_t r = begin; r < end; ++r) {
    const T* gate = a.gate_up.row<T>(r);
    const T* up = gate + f;
    T* act = a.act.row<T>(r);
    const simd::Floats w = simd::set1(a.row_weight != nullptr ? a.row_weight[r] : 1.0F);
    simd::sweep(f, [&](std::int64_t i, auto part) {
      const simd::Floats g = simd::load(gate + i, part);
      simd::store(act + i, w * (g * simd::sigmoid(g) * simd::load(up + i, part)), part);
    });
  }
}

// gate and up are read before dgate and dup are written at the same place: the two matrices may be one.
template <class T, bool kAct>
void backward_rows(const SwigluBackward& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t f = a.dact.cols;
  const simd::Floats one = simd::set1(1.0F);
  for (std::int64_t r = begin; r < end; ++r) {
    const T *gate = a.gate_up.row<T>(r), *dact = a.dact.row<T>(r);
    T* dgate = a.dgate_up.row<T>(r);
    T* act = kAct ? a.act.row<T>(r) : nullptr;
    const simd::Floats w = simd::set1(a.row_weight != nullptr ? a.row_weight[r] : 1.0F);
    const float dot = simd::sum_terms(f, [&](std::int64_t i, auto part) {
      const simd::Floats g = simd::load(gate + i, part), u = simd::load(gate + f + i, part);
      const simd::Floats da = simd::load(dact + i, part);
      const simd::Floats s = simd::sigmoid(g), silu = g * s, wda = w * da;
      simd::store(dgate + i, wda * u * (s * simd::fma(g, one - s, one)), part);
      simd::store(dgate + f + i, wda * silu, part);
      if (kAct) simd::store(act + i, w * (silu * u), part);
      return da * (silu * u);
    });
    if (a.drow_weight != nullptr) a.drow_weight[r] = dot;
  }
}

template <class T>
void backward_typed(const SwigluBackward& a, std::int64_t begin, std::int64_t end) {
  a.act.data != nullptr ? backward_rows<T, true>(a, begin, end) : backward_rows<T, false>(a, begin, end);
}

}  // namespace

void swiglu_forward(const ExecContext& ctx, const SwigluForward& a) {
  parallel_ranges(
      ctx, a.rows.get(), row_grain(a.gate_up.cols), [&](std::int64_t begin, std::int64_t end, int) {
        a.act.dtype == DType::f32 ? forward_rows<float>(a, begin, end) : forward_rows<bf16>(a, begin, end);
      });
}

void swiglu_backward(const ExecContext& ctx, const SwigluBackward& a) {
  parallel_ranges(ctx, a.rows.get(), row_grain(a.gate_up.cols),
                  [&](std::int64_t begin, std::int64_t end, int) {
                    a.dact.dtype == DType::f32 ? backward_typed<float>(a, begin, end)
                                               : backward_typed<bf16>(a, begin, end);
                  });
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
