// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include <cstring>

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

namespace {

// Workers own columns, not rows: each adds the tokens in their order, and no two write the same element.
template <class T>
void add_token_rows(const ExecContext& ctx, const EmbeddingBackward& a, std::int64_t tokens) {
  constexpr std::int64_t kColumnGrain = 64;
  parallel_ranges(ctx, a.dtable.cols, kColumnGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (a.ids[t] == a.padding_id) continue;
      const T* dy = a.dy.row<T>(t) + begin;
      float* row = a.dtable.row<float>(a.ids[t]) + begin;
      simd::sweep(end - begin, [&](std::int64_t i, auto part) {
        simd::store(row + i, simd::load(row + i, part) + simd::load(dy + i, part), part);
      });
    }
  });
}

}  // namespace

void embedding_forward(const ExecContext& ctx, const EmbeddingForward& a) {
  const std::int64_t element = dtype_bytes(a.table.dtype);
  const auto* from = static_cast<const unsigned char*>(a.table.data);
  auto* to = static_cast<unsigned char*>(a.y.data);
  parallel_ranges(ctx, a.tokens.get(), row_grain(a.y.cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      std::memcpy(to + t * a.y.row_stride * element, from + a.ids[t] * a.table.row_stride * element,
                  static_cast<std::size_t>(a.y.cols * element));
    }
  });
}

void embedding_backward(const ExecContext& ctx, const EmbeddingBackward& a) {
  if (!a.accumulate) {
    parallel_ranges(
        ctx, a.dtable.rows, row_grain(a.dtable.cols), [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t r = begin; r < end; ++r) {
            std::memset(a.dtable.row<float>(r), 0, static_cast<std::size_t>(a.dtable.cols) * sizeof(float));
          }
        });
  }
  if (a.dy.dtype == DType::f32) {
    add_token_rows<float>(ctx, a, a.tokens.get());
  } else {
    add_token_rows<bf16>(ctx, a, a.tokens.get());
  }
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
