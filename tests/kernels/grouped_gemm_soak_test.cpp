// SPDX-License-Identifier: Apache-2.0
// grouped_gemm_soak_test.cpp: products whose element counts pass 2^31; run only when PLANALTO_SOAK is set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "kernels/grouped_gemm.h"
#include "kernels/table.h"
#include "support/kernel_testing.h"

namespace planalto::kernels {
namespace {

using test::HostMatrix;

bool soak() {
  return std::getenv("PLANALTO_SOAK") != nullptr;
}

std::int64_t scratch_bytes(const ExecContext& ctx, GemmPass pass, std::int64_t rows, std::int64_t n,
                           std::int64_t k, std::int64_t experts) {
  return grouped_gemm_workspace_bytes({pass, DType::bf16, rows, n, k, experts}, ctx.kernels->isa,
                                      ctx.pool->num_threads());
}

// C018: 299,593 and 299,594 rows of 7168 stand on both sides of 2^31 elements. The last row is the row computed alone.
TEST(GroupedGemm, C018ActivationsOver2To31Elements) {
  if (!soak()) GTEST_SKIP() << "needs 9 GB; set PLANALTO_SOAK";
  ThreadPool pool(2);
  const ExecContext ctx{&pool, &kernel_table(available_isas().back())};
  const std::int64_t k = 7168, n = 16, most = 300000;
  HostMatrix x(DType::bf16, most, k), w(DType::bf16, n, k), y(DType::bf16, most, n), y1(DType::bf16, 1, n);
  test::fill_random(w, 1);
  std::fill_n(x.data<std::uint16_t>(), most * k, std::uint16_t{0});
  for (const std::int64_t rows : {std::int64_t{299593}, std::int64_t{299594}, most}) {
    auto* last = x.view().row<bf16>(rows - 1);
    test::Random random(static_cast<std::uint64_t>(rows));
    for (std::int64_t i = 0; i < k; ++i) last[i] = to_bf16(static_cast<float>(random.uniform(-1.0, 1.0)));
    HostMatrix scratch = test::scratch(scratch_bytes(ctx, GemmPass::forward, rows, n, k, 1));
    GroupedGemmForward a{
        .x = x, .w = w, .y = y, .rows = {nullptr, rows, 1}, .workspace = test::workspace(scratch)};
    grouped_gemm_forward(ctx, a);
    a.x.data = last;
    a.x.rows = 1;
    a.y = y1;
    a.rows.capacity = 1;
    grouped_gemm_forward(ctx, a);
    for (std::int64_t j = 0; j < n; ++j) EXPECT_EQ(y.at(rows - 1, j), y1.at(0, j)) << rows << " rows";
    // dx of the last row against the row alone; x is reused as dx.
    HostMatrix dx1(DType::bf16, 1, k),
        scratch_b = test::scratch(scratch_bytes(ctx, GemmPass::grad_input, rows, n, k, 1));
    GroupedGemmGradInput b{
        .dy = y, .w = w, .dx = x, .rows = {nullptr, rows, 1}, .workspace = test::workspace(scratch_b)};
    grouped_gemm_grad_input(ctx, b);
    b.dy = y1;
    b.dx = dx1;
    b.rows.capacity = 1;
    grouped_gemm_grad_input(ctx, b);
    for (std::int64_t i = 0; i < k; ++i) ASSERT_EQ(x.at(rows - 1, i), dx1.at(0, i)) << rows << " rows";
  }
  // The weight gradient reads the last row: all others are zero.
  HostMatrix dw(DType::f32, n, k),
      scratch = test::scratch(scratch_bytes(ctx, GemmPass::grad_weight, most, n, k, 1));
  std::fill_n(y.data<std::uint16_t>(), (most - 1) * n, std::uint16_t{0});
  grouped_gemm_grad_weight(
      ctx, {.dy = y, .x = x, .dw = dw, .rows = {nullptr, most, 1}, .workspace = test::workspace(scratch)});
  for (std::int64_t i = 0; i < k; ++i) {
    ASSERT_EQ(dw.at(3, i), static_cast<float>(y.at(most - 1, 3) * x.at(most - 1, i)));
  }
}

// C019: expert 64 begins at element 2,147,483,648 of the stacked weights; only it is not zero and has a row.
TEST(GroupedGemm, C019StackedWeightsOver2To31Elements) {
  if (!soak()) GTEST_SKIP() << "needs 5 GB; set PLANALTO_SOAK";
  ThreadPool pool(2);
  const ExecContext ctx{&pool, &kernel_table(available_isas().back())};
  const std::int64_t n = 4096, k = 8192, experts = 65;
  HostMatrix w(DType::bf16, experts * n, k), x(DType::bf16, 1, k), y(DType::f32, 1, n), y1(DType::f32, 1, n);
  std::fill_n(w.data<std::uint16_t>(), 64 * n * k, std::uint16_t{0});
  test::Random random(19);
  for (std::int64_t i = 0; i < n * k; ++i) {
    w.data<bf16>()[64 * n * k + i] = to_bf16(static_cast<float>(random.uniform(-1.0, 1.0)));
  }
  test::fill_random(x, 20);
  std::vector<std::int64_t> offsets(66, 0);
  offsets[65] = 1;
  HostMatrix scratch = test::scratch(scratch_bytes(ctx, GemmPass::forward, 1, n, k, experts));
  GroupedGemmForward a{.x = x,
                       .w = w,
                       .y = y,
                       .segments = {experts, offsets.data()},
                       .rows = {nullptr, 1, 1},
                       .workspace = test::workspace(scratch)};
  grouped_gemm_forward(ctx, a);
  a.segments = Segments{};
  a.w.data = w.data<bf16>() + std::int64_t{2147483648};
  a.w.rows = n;
  a.y = y1;
  grouped_gemm_forward(ctx, a);
  EXPECT_TRUE(test::same_bits(y, y1));
  double squares = 0.0;
  for (std::int64_t j = 0; j < n; ++j) squares += y.at(0, j) * y.at(0, j);
  EXPECT_GT(squares, 1.0);
}

}  // namespace
}  // namespace planalto::kernels
