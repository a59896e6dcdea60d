// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.h"

#include <cstring>

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

namespace {

constexpr std::int64_t kElementGrain = 8192;

// step(offset_a, offset_b, offset_y, n) over runs of elements: whole parts of dense matrices, else row by
// row.
template <class Step>
void for_runs(const ExecContext& ctx, const AddRows& a, const Step& step) {
  const std::int64_t rows = a.rows.get(), cols = a.y.cols;
  const bool has_b = a.b.data != nullptr;
  if (a.a.row_stride == cols && a.y.row_stride == cols && (!has_b || a.b.row_stride == cols)) {
    parallel_ranges(ctx, rows * cols, kElementGrain, [&](std::int64_t begin, std::int64_t end, int) {
      step(begin, begin, begin, end - begin);
    });
    return;
  }
  parallel_ranges(ctx, rows, row_grain(cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      step(r * a.a.row_stride, r * a.b.row_stride, r * a.y.row_stride, cols);
    }
  });
}

template <class From, class To>
PLANALTO_INLINE void convert(const From* from, To* to, std::int64_t n) {
  simd::sweep(n, [&](std::int64_t i, auto part) { simd::store(to + i, simd::load(from + i, part), part); });
}

template <class A, class B, class Y>
void add_typed(const ExecContext& ctx, const AddRows& a) {
  for_runs(ctx, a, [&](std::int64_t at_a, std::int64_t at_b, std::int64_t at_y, std::int64_t n) {
    const A* left = static_cast<const A*>(a.a.data) + at_a;
    const B* right = static_cast<const B*>(a.b.data) + at_b;
    Y* y = static_cast<Y*>(a.y.data) + at_y;
    simd::sweep(n, [&](std::int64_t i, auto part) {
      simd::store(y + i, simd::load(left + i, part) + simd::load(right + i, part), part);
    });
  });
}

template <class A, class B>
void add_typed_from(const ExecContext& ctx, const AddRows& a) {
  if (a.y.dtype == DType::f32) {
    add_typed<A, B, float>(ctx, a);
  } else {
    add_typed<A, B, bf16>(ctx, a);
  }
}

template <class From, class To>
void convert_rows(const ExecContext& ctx, const AddRows& a) {
  for_runs(ctx, a, [&](std::int64_t at_a, std::int64_t, std::int64_t at_y, std::int64_t n) {
    convert(static_cast<const From*>(a.a.data) + at_a, static_cast<To*>(a.y.data) + at_y, n);
  });
}

void copy_rows(const ExecContext& ctx, const AddRows& a) {
  if (a.a.data == a.y.data && a.a.row_stride == a.y.row_stride) return;
  const std::int64_t element = dtype_bytes(a.y.dtype);
  for_runs(ctx, a, [&](std::int64_t at_a, std::int64_t, std::int64_t at_y, std::int64_t n) {
    std::memcpy(static_cast<unsigned char*>(a.y.data) + at_y * element,
                static_cast<const unsigned char*>(a.a.data) + at_a * element,
                static_cast<std::size_t>(n * element));
  });
}

template <class From, class To>
void convert_elements(const ExecContext& ctx, const CastElements& a) {
  parallel_ranges(ctx, a.n, kElementGrain, [&](std::int64_t begin, std::int64_t end, int) {
    convert(static_cast<const From*>(a.from) + begin, static_cast<To*>(a.to) + begin, end - begin);
  });
}

template <class T>
void bias_grad_typed(const ExecContext& ctx, const BiasGrad& a) {
  sum_columns(ctx, a.rows.get(), a.dy.cols, static_cast<float*>(a.workspace.data), a.dbias, a.accumulate,
              [&](std::int64_t begin, std::int64_t end, float* partial) {
                for (std::int64_t r = begin; r < end; ++r) {
                  const T* dy = a.dy.row<T>(r);
                  simd::sweep(a.dy.cols, [&](std::int64_t i, auto part) {
                    simd::store(partial + i, simd::load(partial + i, part) + simd::load(dy + i, part), part);
                  });
                }
              });
}

template <class T>
void mla_forward_typed(const ExecContext& ctx, const MlaKeysForward& a) {
  const std::int64_t heads = a.num_heads, width = a.nope + a.rope_dim;
  const auto nope_bytes = static_cast<std::size_t>(a.nope) * sizeof(T);
  const auto rope_bytes = static_cast<std::size_t>(a.rope_dim) * sizeof(T);
  parallel_ranges(
      ctx, a.tokens.get(), row_grain(heads * width), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
          for (std::int64_t h = 0; h < heads; ++h) {
            T* key = static_cast<T*>(a.keys) + (t * heads + h) * width;
            std::memcpy(key, static_cast<const T*>(a.kv) + (t * heads + h) * a.kv_head_stride, nope_bytes);
            std::memcpy(key + a.nope, a.rope.row<T>(t), rope_bytes);
          }
        }
      });
}

template <class T>
void mla_backward_typed(const ExecContext& ctx, const MlaKeysBackward& a) {
  const std::int64_t heads = a.num_heads, width = a.nope + a.rope_dim;
  const auto nope_bytes = static_cast<std::size_t>(a.nope) * sizeof(T);
  parallel_ranges(ctx, a.tokens.get(), row_grain(heads * width),
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t t = begin; t < end; ++t) {
                      const T* dkeys = static_cast<const T*>(a.dkeys) + t * heads * width;
                      for (std::int64_t h = 0; h < heads; ++h) {
                        std::memcpy(static_cast<T*>(a.dkv) + (t * heads + h) * a.kv_head_stride,
                                    dkeys + h * width, nope_bytes);
                      }
                      T* drope = a.drope.row<T>(t);
                      simd::sweep(a.rope_dim, [&](std::int64_t i, auto part) {
                        simd::Floats sum = simd::zero();
                        for (std::int64_t h = 0; h < heads; ++h)
                          sum += simd::load(dkeys + h * width + a.nope + i, part);
                        simd::store(drope + i, sum, part);
                      });
                    }
                  });
}

}  // namespace

void add_rows(const ExecContext& ctx, const AddRows& a) {
  const bool a_f32 = a.a.dtype == DType::f32;
  if (a.b.data == nullptr) {
    if (a.a.dtype == a.y.dtype) return copy_rows(ctx, a);
    return a_f32 ? convert_rows<float, bf16>(ctx, a) : convert_rows<bf16, float>(ctx, a);
  }
  if (a.b.dtype == DType::f32) {
    return a_f32 ? add_typed_from<float, float>(ctx, a) : add_typed_from<bf16, float>(ctx, a);
  }
  return a_f32 ? add_typed_from<float, bf16>(ctx, a) : add_typed_from<bf16, bf16>(ctx, a);
}

void cast_elements(const ExecContext& ctx, const CastElements& a) {
  if (a.from_dtype == a.to_dtype) {
    const std::int64_t element = dtype_bytes(a.to_dtype);
    parallel_ranges(ctx, a.n, kElementGrain, [&](std::int64_t begin, std::int64_t end, int) {
      std::memcpy(static_cast<unsigned char*>(a.to) + begin * element,
                  static_cast<const unsigned char*>(a.from) + begin * element,
                  static_cast<std::size_t>((end - begin) * element));
    });
  } else if (a.from_dtype == DType::f32) {
    convert_elements<float, bf16>(ctx, a);
  } else {
    convert_elements<bf16, float>(ctx, a);
  }
}

void fill_zero(const ExecContext& ctx, const FillZero& a) {
  parallel_ranges(ctx, a.bytes, kElementGrain * 4, [&](std::int64_t begin, std::int64_t end, int) {
    std::memset(static_cast<unsigned char*>(a.data) + begin, 0, static_cast<std::size_t>(end - begin));
  });
}

void bias_grad(const ExecContext& ctx, const BiasGrad& a) {
  a.dy.dtype == DType::f32 ? bias_grad_typed<float>(ctx, a) : bias_grad_typed<bf16>(ctx, a);
}

void mla_keys_forward(const ExecContext& ctx, const MlaKeysForward& a) {
  a.dtype == DType::f32 ? mla_forward_typed<float>(ctx, a) : mla_forward_typed<bf16>(ctx, a);
}

void mla_keys_backward(const ExecContext& ctx, const MlaKeysBackward& a) {
  a.dtype == DType::f32 ? mla_backward_typed<float>(ctx, a) : mla_backward_typed<bf16>(ctx, a);
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
