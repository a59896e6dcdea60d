// SPDX-License-Identifier: Apache-2.0
#include "kernels/grouped_gemm.h"

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/gemm_driver.h"
#include "kernels/packed_weight.h"
#if defined(__AMX_BF16__) || defined(PLANALTO_EMULATE_TILES)
#include "kernels/cpu/tile_engine.h"
#endif

namespace planalto::kernels::PLANALTO_ISA_NS {

using namespace gemm;

namespace {

// PLANALTO_EMULATE_PAIRS and PLANALTO_EMULATE_TILES build the paths of vdpbf16ps and of AMX without these instructions: their packing
// and drivers are tested everywhere.
#if defined(__AMX_BF16__) || defined(PLANALTO_EMULATE_TILES)
constexpr Isa kGeometryIsa = Isa::amx;
#elif defined(__AVX512BF16__) || defined(PLANALTO_EMULATE_PAIRS)
constexpr Isa kGeometryIsa = Isa::avx512_bf16;
#elif defined(__AVX512F__)
constexpr Isa kGeometryIsa = Isa::avx512;
#else
constexpr Isa kGeometryIsa = Isa::avx2;
#endif
static_assert(gemm_geometry(kGeometryIsa, false).tile_rows == kTileRows);
static_assert(gemm_geometry(kGeometryIsa, false).tile_cols == kTileCols);

struct Range {
  std::int64_t begin, end;
};
Range segment(const Segments& s, const RowCount& rows, std::int64_t e) {
  if (s.offsets == nullptr) return {0, rows.get()};
  return {s.offsets[e], s.offsets[e + 1]};
}

const void* at(const ConstMatrix& m, std::int64_t row) {
  return static_cast<const char*>(m.data) + row * m.row_stride * dtype_bytes(m.dtype);
}
void* at(const Matrix& m, std::int64_t row) {
  return static_cast<char*>(m.data) + row * m.row_stride * dtype_bytes(m.dtype);
}

GemmOperand packed_operand(std::int64_t depth) {
  GemmOperand b;
  b.stride = packed_depth(depth);
  b.packed = true;
  return b;
}
const void* packed_matrix(const void* packed, std::int64_t e, std::int64_t lines, std::int64_t depth) {
  return static_cast<const bf16*>(packed) + e * packed_elements(lines, depth, kTileCols);
}

template <class ProductOf>
void run(const ExecContext& ctx, GemmCall& call, DType a, DType b, std::int64_t max_depth,
         std::int64_t num_products, const ProductOf& product_of) {
  const bool pairs = gemm_uses_pairs(kGeometryIsa, a == DType::bf16 && b == DType::bf16);
  choose_pack<kTileRows>(call.a, a, pairs);  // tiles read A as it lies, or copy it in their own way
  if (call.b.packed) {
    choose_panels(call.b, pairs);
  } else {
    choose_pack<kTileCols>(call.b, b, pairs);
  }
  call.geometry = gemm_geometry(kGeometryIsa, pairs);
  call.scratch = gemm_scratch(call.geometry, max_depth);
#if defined(__AMX_BF16__) || defined(PLANALTO_EMULATE_TILES)
  if (pairs) return run_products<TileEngine>(ctx, call, num_products, product_of);
#else
  if constexpr (kGeometryIsa == Isa::avx512_bf16) {
    if (pairs) return run_products<VectorEngine<PairMath>>(ctx, call, num_products, product_of);
  }
#endif
  run_products<VectorEngine<FloatMath>>(ctx, call, num_products, product_of);
}

}  // namespace

// Lines of A are rows of x, lines of B rows of w; k runs along both.
void grouped_gemm_forward(const ExecContext& ctx, const GroupedGemmForward& a) {
  const std::int64_t n = a.y.cols;
  GemmCall call;
  call.a = {nullptr, a.x.row_stride, 0, false};
  call.b = {nullptr, a.w.row_stride, 0, false};
  if (a.packed != nullptr) call.b = packed_operand(a.x.cols);
  call.c_dtype = a.y.dtype;
  call.c_stride = a.y.row_stride;
  call.bias_dtype = a.w.dtype;
  call.accumulate = a.accumulate;
  call.workspace = a.workspace;
  run(ctx, call, a.x.dtype, a.w.dtype, a.x.cols, a.segments.num, [&](std::int64_t e) {
    const Range r = segment(a.segments, a.rows, e);
    const void* bias = a.bias;
    if (bias != nullptr) bias = static_cast<const char*>(bias) + e * n * dtype_bytes(a.w.dtype);
    const void* w = a.packed != nullptr ? packed_matrix(a.packed, e, n, a.x.cols) : at(a.w, e * n);
    return GemmProduct{at(a.x, r.begin), w, at(a.y, r.begin), bias, r.end - r.begin, n, a.x.cols};
  });
}

// The sum runs over n: along the rows of dy, across the rows of w.
void grouped_gemm_grad_input(const ExecContext& ctx, const GroupedGemmGradInput& a) {
  const std::int64_t n = a.dy.cols;
  GemmCall call;
  call.a = {nullptr, a.dy.row_stride, 0, false};
  call.b = {nullptr, a.w.row_stride, 0, true};
  if (a.packed != nullptr) call.b = packed_operand(n);
  call.c_dtype = a.dx.dtype;
  call.c_stride = a.dx.row_stride;
  call.accumulate = a.accumulate;
  call.workspace = a.workspace;
  run(ctx, call, a.dy.dtype, a.w.dtype, n, a.segments.num, [&](std::int64_t e) {
    const Range r = segment(a.segments, a.rows, e);
    const void* w = a.packed != nullptr ? packed_matrix(a.packed, e, a.dx.cols, n) : at(a.w, e * n);
    return GemmProduct{at(a.dy, r.begin), w, at(a.dx, r.begin), nullptr, r.end - r.begin, a.dx.cols, n};
  });
}

// The sum runs over the segment's rows, across both operands, and goes on from dw when it accumulates:
// microbatches one after the other have the bits of one big batch.
void grouped_gemm_grad_weight(const ExecContext& ctx, const GroupedGemmGradWeight& a) {
  const std::int64_t n = a.dy.cols;
  GemmCall call;
  call.a = {nullptr, a.dy.row_stride, 0, true};
  call.b = {nullptr, a.x.row_stride, 0, true};
  call.c_stride = a.dw.row_stride;
  call.accumulate = a.accumulate;
  call.continue_sums = a.accumulate;
  call.workspace = a.workspace;
  run(ctx, call, a.dy.dtype, a.x.dtype, a.rows.capacity * a.rows.multiplier, a.segments.num,
      [&](std::int64_t e) {
        const Range r = segment(a.segments, a.rows, e);
        return GemmProduct{at(a.dy, r.begin), at(a.x, r.begin), at(a.dw, e * n), nullptr, n,
                           a.x.cols,          r.end - r.begin};
      });
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
