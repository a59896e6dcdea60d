// SPDX-License-Identifier: Apache-2.0
#include "kernels/loss_head.h"

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/loss_head_workspace.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/grouped_gemm.h"

namespace planalto::kernels::PLANALTO_ISA_NS {
namespace {

using simd::Floats;
using simd::kLanes;

constexpr float kInfinity = __builtin_inff();
constexpr std::int64_t kBlock =
    4096;  // logits whose maximum is found, and exponentials summed, while they are in L1

struct Softmax {
  float max;
  double sum;  // of e^(logit - max)
};

inline float max_of(const float* x, std::int64_t n) {
  Floats top[4] = {simd::set1(-kInfinity), simd::set1(-kInfinity), simd::set1(-kInfinity),
                   simd::set1(-kInfinity)};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int c = 0; c < 4; ++c) top[c] = simd::max(top[c], simd::load(x + i + c * kLanes));
  }
  float best = simd::max_lane(simd::max(simd::max(top[0], top[1]), simd::max(top[2], top[3])));
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

// One vector per part of 64 x 4 vectors in fp32, parts in double.
inline double sum_of_exp(const float* x, std::int64_t n, float base) {
  const Floats shift = simd::set1(base);
  double total = 0.0;
  std::int64_t i = 0;
  while (i + 4 * kLanes <= n) {
    Floats sum[4] = {simd::zero(), simd::zero(), simd::zero(), simd::zero()};
    const std::int64_t part = i + 256 * kLanes;
    for (; i + 4 * kLanes <= n && i < part; i += 4 * kLanes) {
      for (int c = 0; c < 4; ++c) sum[c] += simd::exp(simd::load(x + i + c * kLanes) - shift);
    }
    total += static_cast<double>(simd::sum((sum[0] + sum[1]) + (sum[2] + sum[3])));
  }
  for (; i < n; i += kLanes) {
    const std::int64_t valid = n - i < kLanes ? n - i : kLanes;
    float last[kLanes];
    simd::store(last, simd::exp(simd::load(x + i, valid) - shift));
    for (std::int64_t c = 0; c < valid; ++c) total += static_cast<double>(last[c]);
  }
  return total;
}

Softmax softmax_of(const float* logits, std::int64_t vocab) {
  Softmax s{-kInfinity, 0.0};
  for (std::int64_t begin = 0; begin < vocab; begin += kBlock) {
    const std::int64_t n = vocab - begin < kBlock ? vocab - begin : kBlock;
    const float top = max_of(logits + begin, n);
    if (top > s.max) {
      s.sum *= __builtin_exp(static_cast<double>(s.max) - static_cast<double>(top));
      s.max = top;
    }
    s.sum += sum_of_exp(logits + begin, n, s.max);
  }
  return s;
}

inline Floats gradient_of(Floats logits, Floats max, Floats inverse, Floats onehot, Floats scale) {
  return (simd::exp(logits - max) * inverse - onehot) * scale;
}

// The gradient of the logits takes their place, rounded to T: element i of T lies at or before element i in fp32.
template <class T>
void gradient_row(float* logits, std::int64_t vocab, std::int64_t label, const Softmax& s, float grad_scale) {
  T* gradient = reinterpret_cast<T*>(logits);
  const Floats max = simd::set1(s.max), inverse = simd::set1(static_cast<float>(1.0 / s.sum));
  const Floats scale = simd::set1(grad_scale);
  const Floats of_label = gradient_of(simd::set1(logits[label]), max, inverse, simd::set1(1.0F), scale);
  std::int64_t i = 0;
  for (; i + kLanes <= vocab; i += kLanes) {
    simd::store(gradient + i, gradient_of(simd::load(logits + i), max, inverse, simd::zero(), scale));
  }
  if (i < vocab) {
    const Floats last = gradient_of(simd::load(logits + i, vocab - i), max, inverse, simd::zero(), scale);
    simd::store(gradient + i, last, vocab - i);
  }
  simd::store(gradient + label, of_label, 1);
}

template <class T>
void zero_row(float* logits, std::int64_t vocab) {
  T* gradient = reinterpret_cast<T*>(logits);
  for (std::int64_t i = 0; i < vocab; i += kLanes) {
    simd::store(gradient + i, simd::zero(), vocab - i < kLanes ? vocab - i : kLanes);
  }
}

ConstMatrix rows_of(const ConstMatrix& m, std::int64_t begin, std::int64_t n) {
  const char* data = static_cast<const char*>(m.data) + begin * m.row_stride * dtype_bytes(m.dtype);
  return {data, m.dtype, n, m.cols, m.row_stride};
}
Matrix rows_of(const Matrix& m, std::int64_t begin, std::int64_t n) {
  char* data = static_cast<char*>(m.data) + begin * m.row_stride * dtype_bytes(m.dtype);
  return {data, m.dtype, n, m.cols, m.row_stride};
}

void zero_rows(const Matrix& m) {
  for (std::int64_t r = 0; r < m.rows; ++r) {
    char* row = static_cast<char*>(m.data) + r * m.row_stride * dtype_bytes(m.dtype);
    __builtin_memset(row, 0, static_cast<std::size_t>(m.cols * dtype_bytes(m.dtype)));
  }
}

struct Tile {
  std::int64_t begin, rows;  // tokens
  float* logits;
  std::int64_t stride;
  double* losses;
  Workspace product;
  bool gradients;
};

// Logits of a tile -> losses, and where gradients are wanted the gradient of the logits in their place.
void losses_of_tile(const ExecContext& ctx, const LossHead& a, const Tile& t) {
  const std::int64_t vocab = a.w.rows;
  parallel_items(ctx, t.rows, [&](std::int64_t r, int /*worker*/) {
    float* logits = t.logits + r * t.stride;
    const std::int64_t label = a.labels[t.begin + r];
    const bool f32 = a.x.dtype == DType::f32;
    if (label == kIgnoredLabel) {
      t.losses[r] = 0.0;
      if (t.gradients) f32 ? zero_row<float>(logits, vocab) : zero_row<bf16>(logits, vocab);
      return;
    }
    const Softmax s = softmax_of(logits, vocab);
    t.losses[r] = static_cast<double>(s.max) + __builtin_log(s.sum) - static_cast<double>(logits[label]);
    if (!t.gradients) return;
    f32 ? gradient_row<float>(logits, vocab, label, s, *a.grad_scale)
        : gradient_row<bf16>(logits, vocab, label, s, *a.grad_scale);
  });
}

void gradients_of_tile(const ExecContext& ctx, const LossHead& a, const Tile& t, bool accumulate_dw) {
  const std::int64_t stride = a.x.dtype == DType::f32 ? t.stride : 2 * t.stride;
  const ConstMatrix g{t.logits, a.x.dtype, t.rows, a.w.rows, stride};
  if (a.dx.data != nullptr) {
    grouped_gemm_grad_input(ctx, {.dy = g,
                                  .w = a.w,
                                  .packed = a.packed_backward,
                                  .dx = rows_of(a.dx, t.begin, t.rows),
                                  .segments = {},
                                  .rows = {.capacity = t.rows},
                                  .accumulate = a.accumulate_dx,
                                  .workspace = t.product});
  }
  if (a.dw.data != nullptr) {
    grouped_gemm_grad_weight(ctx, {.dy = g,
                                   .x = rows_of(a.x, t.begin, t.rows),
                                   .dw = a.dw,
                                   .segments = {},
                                   .rows = {.capacity = t.rows},
                                   .accumulate = accumulate_dw,
                                   .workspace = t.product});
  }
}

bool any_trained(const std::int32_t* labels, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (labels[i] != kIgnoredLabel) return true;
  }
  return false;
}

}  // namespace

void loss_head(const ExecContext& ctx, const LossHead& a) {
  const std::int64_t tokens = a.tokens.get();
  const LossHeadLayout l = loss_head_layout(a.tokens.capacity * a.tokens.multiplier, a.w.rows, a.tile_rows);
  char* scratch = static_cast<char*>(a.workspace.data);
  Tile t{};
  t.logits = reinterpret_cast<float*>(scratch);
  t.stride = l.logits_stride;
  t.losses = reinterpret_cast<double*>(scratch + l.losses);
  t.product = {scratch + l.product, a.workspace.bytes - l.product};
  t.gradients = a.dx.data != nullptr || a.dw.data != nullptr;
  bool accumulate_dw = a.accumulate_dw;
  for (t.begin = 0; t.begin < tokens; t.begin += l.tile_rows) {
    t.rows = tokens - t.begin < l.tile_rows ? tokens - t.begin : l.tile_rows;
    if (!any_trained(a.labels + t.begin, t.rows)) {
      for (std::int64_t r = 0; a.row_loss != nullptr && r < t.rows; ++r) a.row_loss[t.begin + r] = 0.0F;
      if (a.dx.data != nullptr && !a.accumulate_dx) zero_rows(rows_of(a.dx, t.begin, t.rows));
      continue;
    }
    grouped_gemm_forward(ctx, {.x = rows_of(a.x, t.begin, t.rows),
                               .w = a.w,
                               .packed = a.packed_forward,
                               .bias = nullptr,
                               .y = {t.logits, DType::f32, t.rows, a.w.rows, t.stride},
                               .segments = {},
                               .rows = {.capacity = t.rows},
                               .accumulate = false,
                               .workspace = t.product});
    losses_of_tile(ctx, a, t);
    for (std::int64_t r = 0; r < t.rows; ++r) {
      *a.loss_sum += t.losses[r];
      if (a.row_loss != nullptr) a.row_loss[t.begin + r] = static_cast<float>(t.losses[r]);
    }
    if (t.gradients) gradients_of_tile(ctx, a, t, accumulate_dw);
    accumulate_dw = true;
  }
  if (a.dw.data != nullptr && !accumulate_dw) zero_rows(a.dw);
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
