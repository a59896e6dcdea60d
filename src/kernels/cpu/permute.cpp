// SPDX-License-Identifier: Apache-2.0
#include "kernels/permute.h"

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/router.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

namespace {

PLANALTO_INLINE void store_one(float* p, float v) {
  *p = v;
}
PLANALTO_INLINE void store_one(bf16* p, float v) {
  *p = to_bf16(v);
}

// Few enough blocks for a table on the stack, enough for the pool; what is computed does not depend on their
// number.
constexpr std::int64_t kMaxLayoutBlocks = 16, kLayoutBlockRoutes = 2048;

struct LayoutBlocks {
  std::int64_t number, tokens_each;
  std::uint32_t next[kMaxLayoutBlocks]
                    [kMaxExperts];  // counts, then the next free row of an expert for this block
};

// Columns first .. first + Vectors * simd::kLanes of one token.
template <std::int64_t Vectors, class From, class To>
PLANALTO_INLINE void combine_columns(const CombineRows& a, const std::int32_t* position, std::int64_t first,
                                     To* y) {
  simd::Floats sum[Vectors];
  const From* row = a.rows.row<From>(position[0]) + first;
  for (std::int64_t v = 0; v < Vectors; ++v) sum[v] = simd::load(row + v * simd::kLanes);
  for (std::int64_t k = 1; k < a.top_k; ++k) {
    row = a.rows.row<From>(position[k]) + first;
    for (std::int64_t v = 0; v < Vectors; ++v) sum[v] += simd::load(row + v * simd::kLanes);
  }
  for (std::int64_t v = 0; v < Vectors; ++v) {
    To* to = y + first + v * simd::kLanes;
    if (a.accumulate) sum[v] = simd::load(to) + sum[v];
    simd::store(to, sum[v]);
  }
}

template <class From, class To>
PLANALTO_INLINE void combine_body(const ExecContext& ctx, const CombineRows& a) {
  const std::int64_t cols = a.y.cols;
  parallel_ranges(ctx, a.tokens.get(), 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int32_t* position = a.position + t * a.top_k;
      To* y = a.y.row<To>(t);
      std::int64_t c = 0;
      for (; c + 4 * simd::kLanes <= cols; c += 4 * simd::kLanes) combine_columns<4, From>(a, position, c, y);
      for (; c + simd::kLanes <= cols; c += simd::kLanes) combine_columns<1, From>(a, position, c, y);
      for (; c < cols; ++c) {
        float sum = to_float(a.rows.row<From>(position[0])[c]);
        for (std::int64_t k = 1; k < a.top_k; ++k) sum += to_float(a.rows.row<From>(position[k])[c]);
        store_one(y + c, a.accumulate ? to_float(y[c]) + sum : sum);
      }
    }
  });
}

template <class From, class To>
PLANALTO_INLINE void scatter_body(const ExecContext& ctx, const ScatterRows& a) {
  const std::int64_t cols = a.y.cols;
  parallel_ranges(ctx, a.num_rows.get(), 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const From* row = a.rows.row<From>(r);
      To* y = a.y.row<To>(a.target_row[r]);
      std::int64_t c = 0;
      for (; c + simd::kLanes <= cols; c += simd::kLanes) {
        const simd::Floats x = simd::load(row + c);
        simd::store(y + c, a.accumulate ? simd::load(y + c) + x : x);
      }
      for (; c < cols; ++c)
        store_one(y + c, a.accumulate ? to_float(y[c]) + to_float(row[c]) : to_float(row[c]));
    }
  });
}

PLANALTO_INLINE void count_routes(const ExecContext& ctx, const RouteLayout& a, LayoutBlocks& blocks) {
  const std::int64_t tokens = a.tokens.get();
  parallel_ranges(ctx, blocks.number, 1, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t b = first; b < last; ++b) {
      std::uint32_t* count = blocks.next[b];
      for (std::int64_t e = 0; e < a.num_experts; ++e) count[e] = 0;
      const std::int64_t stop = (b + 1) * blocks.tokens_each;
      const std::int64_t end = (stop < tokens ? stop : tokens) * a.top_k;
      for (std::int64_t i = b * blocks.tokens_each * a.top_k; i < end; ++i) ++count[a.ids[i]];
    }
  });
}

PLANALTO_INLINE void place_routes(const ExecContext& ctx, const RouteLayout& a, LayoutBlocks& blocks) {
  const std::int64_t tokens = a.tokens.get();
  parallel_ranges(ctx, blocks.number, 1, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t b = first; b < last; ++b) {
      std::uint32_t* next = blocks.next[b];
      const std::int64_t stop = (b + 1) * blocks.tokens_each, end = stop < tokens ? stop : tokens;
      for (std::int64_t t = b * blocks.tokens_each; t < end; ++t) {
        for (std::int64_t i = t * a.top_k; i < (t + 1) * a.top_k; ++i) {
          const std::uint32_t row = next[a.ids[i]]++;
          a.position[i] = static_cast<std::int32_t>(row);
          a.source_row[row] = static_cast<std::int32_t>(t);
          if (a.row_weights != nullptr) a.row_weights[row] = a.weights[i];
        }
      }
    }
  });
}

}  // namespace

void route_layout(const ExecContext& ctx, const RouteLayout& a) {
  const std::int64_t tokens = a.tokens.get();
  LayoutBlocks blocks;
  blocks.number = (tokens * a.top_k + kLayoutBlockRoutes - 1) / kLayoutBlockRoutes;
  blocks.number = blocks.number < kMaxLayoutBlocks ? blocks.number : kMaxLayoutBlocks;
  blocks.tokens_each = blocks.number > 0 ? (tokens + blocks.number - 1) / blocks.number : 0;
  count_routes(ctx, a, blocks);
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < a.num_experts; ++e) {
    a.offsets[e] = row;
    for (std::int64_t b = 0; b < blocks.number; ++b) {
      const std::uint32_t count = blocks.next[b][e];
      blocks.next[b][e] = static_cast<std::uint32_t>(row);
      row += count;
    }
  }
  a.offsets[a.num_experts] = row;
  place_routes(ctx, a, blocks);
}

void gather_rows(const ExecContext& ctx, const GatherRows& a) {
  const auto bytes = static_cast<std::size_t>(a.rows.cols * dtype_bytes(a.rows.dtype));
  const auto* from = static_cast<const unsigned char*>(a.x.data);
  auto* to = static_cast<unsigned char*>(a.rows.data);
  const std::int64_t from_stride = a.x.row_stride * dtype_bytes(a.x.dtype);
  const std::int64_t to_stride = a.rows.row_stride * dtype_bytes(a.rows.dtype);
  parallel_ranges(ctx, a.num_rows.get(), 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      __builtin_memcpy(to + r * to_stride, from + a.source_row[r] * from_stride, bytes);
    }
  });
}

void combine_rows(const ExecContext& ctx, const CombineRows& a) {
  const bool from_f32 = a.rows.dtype == DType::f32, to_f32 = a.y.dtype == DType::f32;
  if (from_f32 && to_f32) return combine_body<float, float>(ctx, a);
  if (from_f32) return combine_body<float, bf16>(ctx, a);
  if (to_f32) return combine_body<bf16, float>(ctx, a);
  combine_body<bf16, bf16>(ctx, a);
}

void unsort_route_values(const ExecContext& ctx, const UnsortRouteValues& a) {
  parallel_ranges(ctx, a.tokens.get() * a.top_k, 1024, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) a.values[i] = a.sorted[a.position[i]];
  });
}

void scatter_rows(const ExecContext& ctx, const ScatterRows& a) {
  const bool from_f32 = a.rows.dtype == DType::f32, to_f32 = a.y.dtype == DType::f32;
  if (from_f32 && to_f32) return scatter_body<float, float>(ctx, a);
  if (from_f32) return scatter_body<float, bf16>(ctx, a);
  if (to_f32) return scatter_body<bf16, float>(ctx, a);
  scatter_body<bf16, bf16>(ctx, a);
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
