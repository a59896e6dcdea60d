// SPDX-License-Identifier: Apache-2.0
// gemm_driver.h: computes E products C = A B^T of ragged shapes in one parallel region: packs blocks, runs tiles.
// Shapes      A has `rows` lines, B `cols` lines, both of `depth` values of k; C [rows, cols]; any may be zero
// Numerics    as gemm_tile.h; with `continue_sums` the chain starts from C, else C (accumulate) and then the bias
//             are added at its end
// Memory      workspace: the schedule (gemm_schedule_bytes), then one GemmScratch a worker
// Threads     a unit is (product, row block, column group); units of the most expensive products are taken first
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/exec_context.h"
#include "base/view.h"
#include "kernels/cpu/gemm_geometry.h"
#include "kernels/cpu/gemm_pack.h"
#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/parallel.h"

namespace planalto::kernels::PLANALTO_ISA_NS::gemm {
namespace {  // NOLINT: internal linkage is the purpose

struct GemmProduct {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // [cols]
  std::int64_t rows = 0, cols = 0, depth = 0;
};

// How the values of an operand lie: `across` when its lines are columns of the source matrix, `packed` when they stand in panels
// of pairs already (packed_weight.h).
struct GemmOperand {
  // null: the panels of the source are read where they are
  void (*pack)(const void* source, std::int64_t stride, std::int64_t valid, std::int64_t depth,
               void* panel) = nullptr;
  std::int64_t stride = 0;  // in values; packed: the depth that a panel holds
  std::int64_t value_bytes = 0;
  bool across = false;
  bool packed = false;

  // The values from k on of `line`, which begins a panel when the operand is packed; k is even then.
  const void* at(const void* data, std::int64_t line, std::int64_t k) const {
    if (packed) return static_cast<const bf16*>(data) + line * stride + k * kTileCols;
    const std::int64_t offset = across ? k * stride + line : line * stride + k;
    return static_cast<const char*>(data) + offset * value_bytes;
  }
};

struct GemmCall {
  GemmOperand a, b;
  DType c_dtype = DType::f32;
  DType bias_dtype = DType::f32;
  std::int64_t c_stride = 0;
  bool accumulate = false;
  bool continue_sums = false;  // fp32 C only
  GemmGeometry geometry;
  GemmScratch scratch;
  Workspace workspace;
};

// Only B is ever packed, and its dtype is bf16.
inline void choose_panels(GemmOperand& operand, bool pairs) {
  operand.pack = pairs ? nullptr : widen_panel<kTileCols>;
  operand.value_bytes = sizeof(bf16);
}

template <class Format, int W>
[[gnu::always_inline]] inline void choose_pack(GemmOperand& operand) {
  operand.pack = operand.across ? pack_across<Format, W> : pack_along<Format, W>;
  operand.value_bytes = sizeof(typename Format::Value);
}

template <int W>
inline void choose_pack(GemmOperand& operand, DType dtype, bool pairs) {
  if (dtype == DType::f32) return choose_pack<PackFloat, W>(operand);
  if (pairs) return choose_pack<PackPairs, W>(operand);
  choose_pack<PackWiden, W>(operand);
}

[[gnu::always_inline]] inline float value_at(const void* data, DType dtype, std::int64_t i) {
  return dtype == DType::f32 ? static_cast<const float*>(data)[i]
                             : to_float(static_cast<const bf16*>(data)[i]);
}

template <class T>
[[gnu::always_inline]] inline T rounded(float v) {
  if constexpr (sizeof(T) == 4) {
    return v;
  } else {
    return to_bf16(v);
  }
}

template <class T>
void write_row(const float* sums, const float* bias, bool accumulate, std::int64_t cols, T* c) {
  if (cols == kTileCols) {
#pragma GCC unroll 2
    for (int j = 0; j < kTileCols; j += kLanes) {
      Floats v = simd::load(sums + j);
      if (accumulate) v += simd::load(c + j);
      if (bias != nullptr) v += simd::load(bias + j);
      simd::store(c + j, v);
    }
    return;
  }
  for (std::int64_t j = 0; j < cols; ++j) {
    float v = sums[j];
    if (accumulate) v += to_float(c[j]);
    if (bias != nullptr) v += bias[j];
    c[j] = rounded<T>(v);
  }
}

// The sums of one tile, finished, to C at (row, col).
inline void write_tile(const GemmCall& call, const GemmProduct& p, const float* sums, std::int64_t row,
                       std::int64_t col, std::int64_t rows, std::int64_t cols) {
  float bias[kTileCols];
  if (p.bias != nullptr) {
    for (std::int64_t j = 0; j < cols; ++j) bias[j] = value_at(p.bias, call.bias_dtype, col + j);
  }
  const bool accumulate = call.accumulate && !call.continue_sums;
  for (std::int64_t i = 0; i < rows; ++i, sums += kTileCols) {
    const std::int64_t offset = (row + i) * call.c_stride + col;
    const float* b = p.bias != nullptr ? bias : nullptr;
    if (call.c_dtype == DType::f32) {
      write_row(sums, b, accumulate, cols, static_cast<float*>(p.c) + offset);
    } else {
      write_row(sums, b, accumulate, cols, static_cast<bf16*>(p.c) + offset);
    }
  }
}

inline void read_tile(const GemmCall& call, const GemmProduct& p, std::int64_t row, std::int64_t col,
                      std::int64_t rows, std::int64_t cols, float* sums) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* c = static_cast<const float*>(p.c) + (row + i) * call.c_stride + col;
    for (std::int64_t j = 0; j < cols; ++j) sums[i * kTileCols + j] = c[j];
  }
}

struct GemmUnit {
  std::int64_t row_begin, row_end, col_begin, col_end;
};

// All sums of a unit over k_begin .. k_begin + depth - 1.
template <class Math>
void compute_block(const GemmCall& call, const GemmProduct& p, const GemmUnit& u, std::int64_t k_begin,
                   std::int64_t depth, char* scratch) {
  using Word = typename Math::Word;
  const std::int64_t steps = (depth + call.geometry.k_per_step - 1) / call.geometry.k_per_step;
  auto* a_panels = reinterpret_cast<Word*>(scratch + call.scratch.a);
  auto* b_panel = reinterpret_cast<Word*>(scratch + call.scratch.b);
  auto* sums = reinterpret_cast<float*>(scratch + call.scratch.tile);
  auto* strip = reinterpret_cast<float*>(scratch + call.scratch.strip);
  const std::int64_t strip_stride = call.geometry.group_cols;
  const bool first = k_begin == 0, last = k_begin + depth == p.depth;

  for (std::int64_t i = u.row_begin; i < u.row_end; i += kTileRows) {
    call.a.pack(call.a.at(p.a, i, k_begin), call.a.stride, p.rows - i, depth,
                a_panels + (i - u.row_begin) * steps);
  }
  for (std::int64_t j = u.col_begin; j < u.col_end; j += kTileCols) {
    const void* b_source = call.b.at(p.b, j, k_begin);
    const Word* b_words = b_panel;
    if (call.b.pack != nullptr) {
      call.b.pack(b_source, call.b.stride, p.cols - j, depth, b_panel);
    } else {
      b_words = static_cast<const Word*>(b_source);
    }
    const std::int64_t cols = p.cols - j < kTileCols ? p.cols - j : kTileCols;
    for (std::int64_t i = u.row_begin; i < u.row_end; i += kTileRows) {
      const std::int64_t rows = u.row_end - i < kTileRows ? u.row_end - i : kTileRows;
      float* partial = strip + (i - u.row_begin) * strip_stride + (j - u.col_begin);
      TileSums s{nullptr, strip_stride, partial, strip_stride};
      if (!first) {
        s.start = partial;
      } else if (call.continue_sums) {
        read_tile(call, p, i, j, rows, cols, sums);
        s.start = sums;
        s.start_stride = kTileCols;
      }
      if (last) {
        s.out = sums;
        s.out_stride = kTileCols;
      }
      tile<Math>(rows, steps, a_panels + (i - u.row_begin) * steps, b_words, s);
      if (last) write_tile(call, p, sums, i, j, rows, cols);
    }
  }
}

// Sums in vector registers.
template <class Math>
struct VectorEngine {
  static void compute(const GemmCall& call, const GemmProduct& p, const GemmUnit& u, char* scratch);
};

template <class Math>
void VectorEngine<Math>::compute(const GemmCall& call, const GemmProduct& p, const GemmUnit& u,
                                 char* scratch) {
  const std::int64_t k_per_step = call.geometry.k_per_step;
  const std::int64_t block = gemm_block_steps((p.depth + k_per_step - 1) / k_per_step) * k_per_step;
  std::int64_t k = 0;
  do {  // once at least: an empty sum is a zero to be written
    const std::int64_t depth = p.depth - k < block ? p.depth - k : block;
    compute_block<Math>(call, p, u, k, depth, scratch);
    k += block;
  } while (k < p.depth);
}

// Which product a unit belongs to: order[] sorted by falling cost, first_unit[] its prefix sum of units.
struct GemmSchedule {
  std::int64_t* order;
  std::int64_t* first_unit;
  std::int64_t groups;  // column groups of a product
};

[[gnu::always_inline]] inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

[[gnu::always_inline]] inline bool has_work(const GemmCall& call, const GemmProduct& p) {
  return p.rows > 0 && p.cols > 0 && (p.depth > 0 || !call.accumulate || p.bias != nullptr);
}

// Shell sort by falling key: small, in place, no library template (which would leave a weak symbol); ties
// keep no order that matters, units are independent.
inline void sort_falling(std::int64_t* order, const std::int64_t* key, std::int64_t n) {
  std::int64_t gap = 1;
  while (gap < n / 3) gap = 3 * gap + 1;
  for (; gap > 0; gap /= 3) {
    for (std::int64_t i = gap; i < n; ++i) {
      const std::int64_t moved = order[i];
      std::int64_t j = i;
      for (; j >= gap && key[order[j - gap]] < key[moved]; j -= gap) order[j] = order[j - gap];
      order[j] = moved;
    }
  }
}

template <class ProductOf>
inline GemmSchedule make_schedule(const GemmCall& call, int num_threads, std::int64_t num_products,
                                  const ProductOf& product_of) {
  GemmSchedule s{static_cast<std::int64_t*>(call.workspace.data),
                 static_cast<std::int64_t*>(call.workspace.data) + num_products, 1};
  std::int64_t row_blocks = 0, cols = 0;
  for (std::int64_t e = 0; e < num_products; ++e) {
    const GemmProduct p = product_of(e);
    s.order[e] = e;
    s.first_unit[e] = p.rows * p.depth;
    if (!has_work(call, p)) continue;
    row_blocks += ceil_div(p.rows, call.geometry.block_rows);
    cols = p.cols;  // the same in all products
  }
  sort_falling(s.order, s.first_unit, num_products);
  // Enough units to share out evenly, but groups no narrower than that asks for: each packs its block of A again.
  const std::int64_t wanted = num_threads == 1 || row_blocks == 0 ? 1 : ceil_div(2 * num_threads, row_blocks);
  const std::int64_t panels = ceil_div(cols, kTileCols);
  s.groups = ceil_div(cols, call.geometry.group_cols);
  if (s.groups < wanted) s.groups = wanted;
  if (s.groups > panels) s.groups = panels;
  std::int64_t units = 0;
  for (std::int64_t i = 0; i < num_products; ++i) {
    const GemmProduct p = product_of(s.order[i]);
    s.first_unit[i] = units;
    if (has_work(call, p)) units += ceil_div(p.rows, call.geometry.block_rows) * s.groups;
  }
  s.first_unit[num_products] = units;
  return s;
}

// product_of(e) describes product e; all have the same number of columns.
template <class Engine, class ProductOf>
inline void run_products(const ExecContext& ctx, const GemmCall& call, std::int64_t num_products,
                         const ProductOf& product_of) {
  if (num_products <= 0) return;
  const GemmSchedule s = make_schedule(call, ctx.pool->num_threads(), num_products, product_of);
  if (s.groups == 0) return;  // products without columns
  char* scratch = static_cast<char*>(call.workspace.data) + gemm_schedule_bytes(num_products);
  parallel_items(ctx, s.first_unit[num_products], [&](std::int64_t unit, int worker) {
    std::int64_t low = 0, high = num_products;  // the last i with first_unit[i] <= unit
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (s.first_unit[middle] <= unit ? low : high) = middle;
    }
    const GemmProduct p = product_of(s.order[low]);
    const std::int64_t local = unit - s.first_unit[low];
    const std::int64_t blocks = ceil_div(p.rows, call.geometry.block_rows);
    const std::int64_t block = local % blocks, group = local / blocks;
    const std::int64_t height = call.geometry.tile_rows;
    const std::int64_t tiles = ceil_div(p.rows, height), panels = ceil_div(p.cols, kTileCols);
    GemmUnit u{tiles * block / blocks * height, tiles * (block + 1) / blocks * height,
               panels * group / s.groups * kTileCols, panels * (group + 1) / s.groups * kTileCols};
    if (u.row_end > p.rows) u.row_end = p.rows;
    if (u.col_end > p.cols) u.col_end = p.cols;
    Engine::compute(call, p, u, scratch + worker * call.scratch.bytes);
  });
}

}  // namespace
}  // namespace planalto::kernels::PLANALTO_ISA_NS::gemm
