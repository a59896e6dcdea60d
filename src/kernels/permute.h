// SPDX-License-Identifier: Apache-2.0
// permute.h: the layout that sorts routes by expert, and the moves along it: gather rows, combine them back.
// Shapes      ids [T, K] int32; counts [E] int64; offsets [E + 1] int64; source_row [R] int32 (token of a sorted
//             row); position [T, K] int32 (sorted row of a route); x, y [T, D]; rows [R, D]; R = T * K <= 2^31;
//             E <= 1024; x, y, rows f32 or bf16
// Invariants  routes are sorted by expert, stable in token order; position and source_row are inverse to each other
// Numerics    gather copies bits; combine sums the K rows of a token in slot order in fp32, then adds y; one rounding
// Memory      allocates nothing; the layout keeps a table of 16 x 1024 counts on the caller's stack
// Threads     the split is over tokens or rows; bits do not depend on it
// Errors      data when an expert id is out of range; internal when counts are not those of ids
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/isa.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

struct RouteLayout {
  const std::int32_t* ids = nullptr;     // distinct or not, in any order
  const std::int64_t* counts = nullptr;  // compared with what is counted here; null: not compared
  std::int64_t num_experts = 0, top_k = 0;
  const float* weights = nullptr;  // [T, K]; null with row_weights: not wanted
  std::int64_t* offsets = nullptr;
  std::int32_t* source_row = nullptr;
  std::int32_t* position = nullptr;
  float* row_weights = nullptr;  // [R] the weights in sorted order
  RowCount tokens{};
};
// rows[r] = x[source_row[r]] for r < num_rows; x and rows have one dtype
struct GatherRows {
  ConstMatrix x{};
  const std::int32_t* source_row = nullptr;
  Matrix rows{};
  RowCount num_rows{};
};
// y[t] = sum over k of rows[position[t, k]] (+ y when accumulate)
struct CombineRows {
  ConstMatrix rows{};
  const std::int32_t* position = nullptr;
  std::int64_t top_k = 0;
  Matrix y{};
  bool accumulate = false;
  RowCount tokens{};
};
// values [T, K] = sorted [position]: route gradients back to (token, slot) order
struct UnsortRouteValues {
  const float* sorted = nullptr;
  const std::int32_t* position = nullptr;
  std::int64_t top_k = 0;
  float* values = nullptr;
  RowCount tokens{};
};
// y[target_row[r]] (+)= rows[r]; targets are distinct. Rows of y without a source are left alone.
struct ScatterRows {
  ConstMatrix rows{};
  const std::int32_t* target_row = nullptr;
  Matrix y{};
  bool accumulate = true;
  RowCount num_rows{};
};
void route_layout(const ExecContext& ctx, const RouteLayout& a);
void gather_rows(const ExecContext& ctx, const GatherRows& a);
void combine_rows(const ExecContext& ctx, const CombineRows& a);
void unsort_route_values(const ExecContext& ctx, const UnsortRouteValues& a);
void scatter_rows(const ExecContext& ctx, const ScatterRows& a);

}  // namespace planalto::kernels
