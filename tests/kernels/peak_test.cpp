// SPDX-License-Identifier: Apache-2.0
// peak_test.cpp: the probes do what they count; how fast is nobody's promise.
#include "kernels/peak.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/table.h"
#include "support/kernel_testing.h"

namespace planalto::kernels {
namespace {

TEST(Peak, RatesArePositiveAndFinite) {
  std::vector<float> a(100'003, 1.0F), x(100'003, 0.5F);
  const auto n = static_cast<std::int64_t>(a.size());
  test::for_each_context([&](const ExecContext& ctx) {
    for (const double rate :
         {measure_multiply_add_peak(ctx, DType::f32), measure_multiply_add_peak(ctx, DType::bf16),
          measure_read_bandwidth(ctx, a.data(), n), measure_update_bandwidth(ctx, a.data(), x.data(), n)}) {
      EXPECT_TRUE(std::isfinite(rate) && rate > 0.0) << rate;
    }
  });
}

TEST(Peak, UpdateReachesAllElementsButAnIncompleteVector) {
  std::vector<float> a(100'003), x(100'003, 0.5F);
  test::for_each_context([&](const ExecContext& ctx) {
    std::fill(a.begin(), a.end(), 4.0F);
    ctx.kernels->peak_update(ctx, {a.data(), x.data(), 100'003});
    for (std::size_t i = 0; i < 100'000; ++i) ASSERT_EQ(a[i], 3.0F) << i;
  });
}

// A worker counts two flops a lane for each of its sums and iterations: doubling the iterations doubles the count.
TEST(Peak, FlopsAreProportionalToIterations) {
  test::for_each_context([](const ExecContext& ctx) {
    std::int64_t once = 0, twice = 0;
    ctx.kernels->peak_multiply_add(ctx, {DType::f32, 10, &once});
    ctx.kernels->peak_multiply_add(ctx, {DType::f32, 20, &twice});
    EXPECT_EQ(twice, 2 * once);
    EXPECT_EQ(once, ctx.kernels->isa == Isa::avx2 ? 10 * 12 * 8 * 2 : 10 * 24 * 16 * 2);
  });
}

}  // namespace
}  // namespace planalto::kernels
