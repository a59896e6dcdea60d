// SPDX-License-Identifier: Apache-2.0
// gemm_problem.h: ragged products for tests: operands with gaps and poison around them, run on every ISA with the right scratch.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

#include "kernels/grouped_gemm.h"
#include "kernels/table.h"
#include "support/kernel_testing.h"

// The paths of AVX-512-BF16 and AMX with their instructions emulated (tests/CMakeLists.txt), for machines that lack them.
#define PLANALTO_EMULATED_PRODUCTS(name)                                                 \
  namespace planalto::kernels::name {                                                    \
  void grouped_gemm_forward(const ExecContext& ctx, const GroupedGemmForward& a);        \
  void grouped_gemm_grad_input(const ExecContext& ctx, const GroupedGemmGradInput& a);   \
  void grouped_gemm_grad_weight(const ExecContext& ctx, const GroupedGemmGradWeight& a); \
  }
PLANALTO_EMULATED_PRODUCTS(emulated_pairs)
PLANALTO_EMULATED_PRODUCTS(emulated_tiles)
#undef PLANALTO_EMULATED_PRODUCTS

namespace planalto::kernels {

using test::HostMatrix;

inline void for_each_gemm(const std::function<void(const ExecContext&)>& body) {
  test::for_each_context([&](const ExecContext& ctx) {
    body(ctx);
    if (ctx.kernels->isa != Isa::avx512) return;
    KernelTable table = *ctx.kernels;
    {
      SCOPED_TRACE("emulated pairs");
      table.isa = Isa::avx512_bf16;
      table.grouped_gemm_forward = emulated_pairs::grouped_gemm_forward;
      table.grouped_gemm_grad_input = emulated_pairs::grouped_gemm_grad_input;
      table.grouped_gemm_grad_weight = emulated_pairs::grouped_gemm_grad_weight;
      body(ExecContext{ctx.pool, &table});
    }
    SCOPED_TRACE("emulated tiles");
    table.isa = Isa::amx;
    table.grouped_gemm_forward = emulated_tiles::grouped_gemm_forward;
    table.grouped_gemm_grad_input = emulated_tiles::grouped_gemm_grad_input;
    table.grouped_gemm_grad_weight = emulated_tiles::grouped_gemm_grad_weight;
    body(ExecContext{ctx.pool, &table});
  });
}

struct Problem {
  DType a_dtype = DType::f32;  // of x and dy
  DType w_dtype = DType::f32;
  DType out_dtype = DType::f32;  // of y and dx
  std::vector<std::int64_t> sizes{1};
  std::int64_t n = 1, k = 1;
  std::int64_t spare_rows = 0;  // capacity beyond the last offset
  bool bias = false;
};

inline std::vector<std::int64_t> offsets_of(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> offsets(sizes.size() + 1, 0);
  std::partial_sum(sizes.begin(), sizes.end(), offsets.begin() + 1);
  return offsets;
}

// The operands of one problem; row strides have gaps, and spare rows stay poison, so reading either makes NaN.
class Operands {
 public:
  Operands(const Problem& p, std::uint64_t seed, bool integers)
      : problem(p),
        offsets(offsets_of(p.sizes)),
        rows(offsets.back()),
        capacity(rows + p.spare_rows),
        experts(static_cast<std::int64_t>(p.sizes.size())),
        x(p.a_dtype, capacity, p.k, p.k + 3),
        dy(p.a_dtype, capacity, p.n, p.n + 1),
        w(p.w_dtype, experts * p.n, p.k, p.k + 2),
        bias(p.w_dtype, experts, p.n) {
    for (HostMatrix* m : {&x, &dy, &w, &bias}) {
      test::Random random(seed++);
      const std::int64_t filled = m == &x || m == &dy ? rows : m->rows();
      for (std::int64_t r = 0; r < filled; ++r) {
        for (std::int64_t c = 0; c < m->cols(); ++c) {
          m->set(r, c, integers ? static_cast<double>(random.below(7) - 3) : random.uniform(-1.0, 1.0));
        }
      }
    }
  }

  Segments segments() const { return {experts, offsets.data()}; }
  RowCount row_count() const { return {nullptr, capacity, 1}; }
  HostMatrix scratch_for(const ExecContext& ctx, GemmPass pass) const {
    const bool weight = pass == GemmPass::grad_weight;
    const bool bf16s = problem.a_dtype == DType::bf16 && (weight || problem.w_dtype == DType::bf16);
    return test::scratch(grouped_gemm_workspace_bytes(
        {pass, bf16s ? DType::bf16 : DType::f32, capacity, problem.n, problem.k, experts}, ctx.kernels->isa,
        ctx.pool->num_threads()));
  }
  GroupedGemmForward forward(HostMatrix& y, bool accumulate = false) const {
    return {.x = x,
            .w = w,
            .bias = problem.bias ? bias.data<void>() : nullptr,
            .y = y,
            .segments = segments(),
            .rows = row_count(),
            .accumulate = accumulate,
            .workspace = {}};
  }
  GroupedGemmGradInput grad_input(HostMatrix& dx, bool accumulate = false) const {
    return {.dy = dy,
            .w = w,
            .dx = dx,
            .segments = segments(),
            .rows = row_count(),
            .accumulate = accumulate,
            .workspace = {}};
  }
  GroupedGemmGradWeight grad_weight(HostMatrix& dw, bool accumulate = false) const {
    return {.dy = dy,
            .x = x,
            .dw = dw,
            .segments = segments(),
            .rows = row_count(),
            .accumulate = accumulate,
            .workspace = {}};
  }
  HostMatrix new_y() const { return HostMatrix(problem.out_dtype, capacity, problem.n, problem.n + 5); }
  HostMatrix new_dx() const { return HostMatrix(problem.out_dtype, capacity, problem.k, problem.k + 5); }
  HostMatrix new_dw() const { return HostMatrix(DType::f32, experts * problem.n, problem.k, problem.k + 1); }

  Problem problem;
  std::vector<std::int64_t> offsets;
  std::int64_t rows, capacity, experts;
  HostMatrix x, dy, w, bias;
};

inline void run(const ExecContext& ctx, const Operands& o, GroupedGemmForward a) {
  HostMatrix scratch = o.scratch_for(ctx, GemmPass::forward);
  a.workspace = test::workspace(scratch);
  grouped_gemm_forward(ctx, a);
}
inline void run(const ExecContext& ctx, const Operands& o, GroupedGemmGradInput a) {
  HostMatrix scratch = o.scratch_for(ctx, GemmPass::grad_input);
  a.workspace = test::workspace(scratch);
  grouped_gemm_grad_input(ctx, a);
}
inline void run(const ExecContext& ctx, const Operands& o, GroupedGemmGradWeight a) {
  HostMatrix scratch = o.scratch_for(ctx, GemmPass::grad_weight);
  a.workspace = test::workspace(scratch);
  grouped_gemm_grad_weight(ctx, a);
}

}  // namespace planalto::kernels
