// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/ref/rms_norm.h"
#include "support/kernel_testing.h"

namespace planalto::kernels {
namespace {

using test::HostMatrix;

constexpr DType kFloats[] = {DType::f32, DType::bf16};
// bf16: the normalised value may fall on the other side of a tie, and the product after it.
test::Bound bound(DType dtype) {
  return dtype == DType::bf16 ? test::Bound{1e-6, 0x1p-6} : test::Bound{1e-6, 1e-6};
}

// mean of 9 and 16 is 12.5: y = (3, 4) / 3.5355339
TEST(RmsNorm, WorkedByHand) {
  HostMatrix x(DType::f32, 1, 2), weight(DType::f32, 1, 2);
  x.set(0, 0, 3), x.set(0, 1, 4), weight.set(0, 0, 1), weight.set(0, 1, 10);
  test::for_each_context([&](const ExecContext& ctx) {
    HostMatrix y(DType::f32, 1, 2), rstd(DType::f32, 1, 1);
    rms_norm_forward(ctx, {.x = x,
                           .weight = weight.data<void>(),
                           .eps = 0.0F,
                           .y = y,
                           .rstd = rstd.data<float>(),
                           .rows = {.capacity = 1}});
    EXPECT_NEAR(y.at(0, 0), 0.8485281, 1e-6);
    EXPECT_NEAR(y.at(0, 1), 11.3137085, 1e-5);
    EXPECT_NEAR(rstd.at(0, 0), 0.2828427, 1e-7);
  });
}

// x (1, 2), eps 0: n = 0.63245553, in bf16 0.6328125. Times 1.015625: 0.6427002 -> 0.64453125; unrounded n would
// give 0.6423377 -> 0.640625.
TEST(RmsNorm, Bf16RoundsTheNormalisedValueBeforeTheWeight) {
  HostMatrix x(DType::bf16, 1, 2), weight(DType::bf16, 1, 2);
  x.set(0, 0, 1), x.set(0, 1, 2), weight.set(0, 0, 1.015625), weight.set(0, 1, 1.015625);
  test::for_each_context([&](const ExecContext& ctx) {
    HostMatrix y(DType::bf16, 1, 2);
    rms_norm_forward(ctx,
                     {.x = x, .weight = weight.data<void>(), .eps = 0.0F, .y = y, .rows = {.capacity = 1}});
    EXPECT_EQ(y.at(0, 0), 0.64453125);
    EXPECT_EQ(y.at(0, 1), 1.2890625);
  });
}

TEST(RmsNorm, ZeroRowGivesZeroAndFiniteStatistics) {
  HostMatrix x(DType::f32, 1, 40), weight(DType::f32, 1, 40);
  test::fill_zero(x);
  test::fill_random(weight, 1);
  test::for_each_context([&](const ExecContext& ctx) {
    HostMatrix y(DType::f32, 1, 40), rstd(DType::f32, 1, 1);
    rms_norm_forward(ctx, {.x = x,
                           .weight = weight.data<void>(),
                           .eps = 1e-6F,
                           .y = y,
                           .rstd = rstd.data<float>(),
                           .rows = {.capacity = 1}});
    EXPECT_NEAR(rstd.at(0, 0), 1000.0, 1e-3);
    for (std::int64_t c = 0; c < 40; ++c) EXPECT_EQ(y.at(0, c), 0.0);
  });
}

TEST(RmsNorm, ForwardAgreesWithTheReferenceAndStopsAtTheCount) {
  const std::int64_t rows = 40, count = 37;
  for (const DType dtype : kFloats) {
    for (const std::int64_t d : {1, 7, 16, 33, 128, 1000}) {
      SCOPED_TRACE(testing::Message() << to_string(dtype) << ", D " << d);
      HostMatrix x(dtype, rows, d, d + 5), weight(dtype, 1, d), want(dtype, rows, d),
          rstd_want(DType::f32, rows, 1);
      test::fill_random(x, 1, -3.0, 3.0);
      test::fill_random(weight, 2, 0.5, 1.5);
      test::poison_rows(x, count);
      RmsNormForward a{.x = x,
                       .weight = weight.data<void>(),
                       .y = want,
                       .rstd = rstd_want.data<float>(),
                       .rows = {.count = &count, .capacity = rows}};
      reference::rms_norm_forward(a);
      test::SameBitsPerIsa same;
      test::for_each_context([&](const ExecContext& ctx) {
        HostMatrix y(dtype, rows, d, d + 2), rstd(DType::f32, rows, 1);
        a.y = y;
        a.rstd = rstd.data<float>();
        rms_norm_forward(ctx, a);
        EXPECT_TRUE(test::close(y, want, bound(dtype), count));
        EXPECT_TRUE(test::close(rstd, rstd_want, {0, 1e-6}, count));
        EXPECT_TRUE(test::untouched(y, count));
        EXPECT_TRUE(test::untouched(rstd, count));
        EXPECT_TRUE(same(ctx, y));
        HostMatrix in_place = x;
        a.y = in_place;
        rms_norm_forward(ctx, a);
        EXPECT_TRUE(test::close(in_place, y, {}, count));
      });
    }
  }
}

struct BackwardCase {
  std::int64_t rows, count, d;
};

class RmsNormBackwardTest : public testing::TestWithParam<BackwardCase> {};

TEST_P(RmsNormBackwardTest, AgreesWithTheReference) {
  const std::int64_t rows = GetParam().rows, count = GetParam().count, d = GetParam().d;
  for (const DType dtype : kFloats) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message() << to_string(dtype) << ", accumulate " << accumulate);
      HostMatrix x(dtype, rows, d, d + 1), weight(dtype, 1, d), dy(dtype, rows, d, d + 4),
          rstd(DType::f32, rows, 1);
      HostMatrix dx_before(dtype, rows, d), dweight_before(DType::f32, 1, d), y(dtype, rows, d);
      test::fill_random(x, 1, -3.0, 3.0);
      test::fill_random(weight, 2, 0.5, 1.5);
      test::fill_random(dy, 3);
      test::fill_random(dweight_before, 4);
      test::fill_random(dx_before, 5);
      for (HostMatrix* m : {&x, &dy, &dx_before}) test::poison_rows(*m, count);
      const RowCount valid{.count = &count, .capacity = rows};
      reference::rms_norm_forward(
          {.x = x, .weight = weight.data<void>(), .y = y, .rstd = rstd.data<float>(), .rows = valid});
      RmsNormBackward a{.x = x,
                        .weight = weight.data<void>(),
                        .rstd = rstd.data<float>(),
                        .dy = dy,
                        .accumulate_dx = accumulate,
                        .accumulate_dweight = accumulate,
                        .rows = valid};
      HostMatrix dx_want = dx_before, dweight_want = dweight_before;
      a.dx = dx_want;
      a.dweight = dweight_want.data<float>();
      reference::rms_norm_backward(a);
      test::SameBitsPerIsa same_dx, same_dweight;
      test::for_each_context([&](const ExecContext& ctx) {
        HostMatrix dx = dx_before, dweight = dweight_before;
        HostMatrix scratch = test::scratch(rms_norm_backward_workspace_bytes(rows, d));
        a.dx = dx;
        a.dweight = dweight.data<float>();
        a.workspace = test::workspace(scratch);
        rms_norm_backward(ctx, a);
        EXPECT_TRUE(test::close(dx, dx_want, test::bound_for(dtype, 16), count));
        EXPECT_TRUE(test::close(dweight, dweight_want, test::bound_for(DType::f32, count + 1, 3.0), 1));
        EXPECT_TRUE(test::untouched(dx, count));
        EXPECT_TRUE(same_dx(ctx, dx));
        EXPECT_TRUE(same_dweight(ctx, dweight));

        HostMatrix dx_alone = dx_before;
        a.dx = dx_alone;
        a.dweight = nullptr;
        a.workspace = {};
        rms_norm_backward(ctx, a);
        EXPECT_TRUE(test::same_bits(dx_alone, dx));
        if (!accumulate) {
          HostMatrix in_place = dy;
          a.dx = in_place;
          rms_norm_backward(ctx, a);
          EXPECT_TRUE(test::close(in_place, dx, {}, count));
        }
      });
    }
  }
}

// Blocks hold 128 rows from D = 512 on and more below: one block, several, and a count that ends inside one.
INSTANTIATE_TEST_SUITE_P(Shapes, RmsNormBackwardTest,
                         testing::Values(BackwardCase{1, 1, 1}, BackwardCase{5, 4, 33},
                                         BackwardCase{300, 290, 513}, BackwardCase{1200, 1200, 128},
                                         BackwardCase{256, 128, 600}));

TEST(RmsNorm, NoRowsZeroTheWeightGradientOrLeaveIt) {
  const std::int64_t count = 0;
  test::for_each_context([&](const ExecContext& ctx) {
    for (const bool accumulate : {false, true}) {
      HostMatrix x(DType::f32, 4, 20), weight(DType::f32, 1, 20), dweight(DType::f32, 1, 20),
          dx(DType::f32, 4, 20);
      test::fill_random(dweight, 1, 1.0, 2.0);
      const HostMatrix before = dweight;
      rms_norm_backward(ctx, {.x = x,
                              .weight = weight.data<void>(),
                              .dy = x,
                              .dx = dx,
                              .dweight = dweight.data<float>(),
                              .accumulate_dweight = accumulate,
                              .rows = {.count = &count, .capacity = 4}});
      for (std::int64_t c = 0; c < 20; ++c) EXPECT_EQ(dweight.at(0, c), accumulate ? before.at(0, c) : 0.0);
      EXPECT_TRUE(test::untouched(dx));
    }
  });
}

TEST(RmsNorm, BackwardIsTheDerivativeOfForward) {
  HostMatrix x(DType::f64, 3, 9), weight(DType::f64, 1, 9), dy(DType::f64, 3, 9), y(DType::f64, 3, 9);
  HostMatrix rstd(DType::f32, 3, 1), dx(DType::f64, 3, 9), dweight(DType::f32, 1, 9);
  test::fill_random(x, 1, -2.0, 2.0);
  test::fill_random(weight, 2, 0.5, 1.5);
  test::fill_random(dy, 3);
  const auto loss = [&] {
    reference::rms_norm_forward({.x = x,
                                 .weight = weight.data<void>(),
                                 .eps = 0.01F,
                                 .y = y,
                                 .rstd = rstd.data<float>(),
                                 .rows = {.capacity = 3}});
    return test::weighted_sum(y, dy);
  };
  const HostMatrix dx_want = test::numeric_gradient(x, loss),
                   dweight_want = test::numeric_gradient(weight, loss);
  loss();
  reference::rms_norm_backward({.x = x,
                                .weight = weight.data<void>(),
                                .rstd = rstd.data<float>(),
                                .dy = dy,
                                .dx = dx,
                                .dweight = dweight.data<float>(),
                                .rows = {.capacity = 3}});
  EXPECT_TRUE(test::close(dx, dx_want, {1e-7, 1e-6}));  // rstd is saved as fp32
  EXPECT_TRUE(test::close(dweight, dweight_want, {1e-6, 1e-6}));
}

}  // namespace
}  // namespace planalto::kernels
