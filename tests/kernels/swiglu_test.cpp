// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/swiglu.h"
#include "support/kernel_testing.h"

namespace planalto::kernels {
namespace {

using test::HostMatrix;

constexpr DType kFloats[] = {DType::f32, DType::bf16};

// silu(1) = 0.73105858, silu(-2) = -0.23840584; silu'(1) = 0.92767051, silu'(-2) = -0.09078425
TEST(Swiglu, WorkedByHand) {
  HostMatrix gate_up(DType::f32, 1, 4), dact(DType::f32, 1, 2);
  const double values[] = {1, -2, 3, 10};
  for (std::int64_t c = 0; c < 4; ++c) gate_up.set(0, c, values[c]);
  dact.set(0, 0, 1), dact.set(0, 1, 2);
  const float weight = 0.5F;
  test::for_each_context([&](const ExecContext& ctx) {
    HostMatrix act(DType::f32, 1, 2), again(DType::f32, 1, 2), dgate_up(DType::f32, 1, 4);
    float dweight = 0.0F;
    swiglu_forward(ctx, {.gate_up = gate_up, .row_weight = &weight, .act = act, .rows = {.capacity = 1}});
    EXPECT_NEAR(act.at(0, 0), 0.5 * 3 * 0.73105858, 1e-6);
    EXPECT_NEAR(act.at(0, 1), 0.5 * 10 * -0.23840584, 1e-6);
    swiglu_backward(ctx, {.gate_up = gate_up,
                          .row_weight = &weight,
                          .dact = dact,
                          .dgate_up = dgate_up,
                          .drow_weight = &dweight,
                          .act = again,
                          .rows = {.capacity = 1}});
    EXPECT_NEAR(dgate_up.at(0, 0), 0.5 * 1 * 3 * 0.92767051, 1e-6);
    EXPECT_NEAR(dgate_up.at(0, 1), 0.5 * 2 * 10 * -0.09078425, 1e-6);
    EXPECT_NEAR(dgate_up.at(0, 2), 0.5 * 1 * 0.73105858, 1e-6);
    EXPECT_NEAR(dgate_up.at(0, 3), 0.5 * 2 * -0.23840584, 1e-6);
    EXPECT_NEAR(dweight, 1 * 0.73105858 * 3 + 2 * -0.23840584 * 10, 1e-5);
    EXPECT_TRUE(test::same_bits(again, act));
  });
}

TEST(Swiglu, AgreesWithTheReferenceAndStopsAtTheCount) {
  const std::int64_t rows = 50, count = 43;
  for (const DType dtype : kFloats) {
    for (const std::int64_t f : {1, 15, 32, 100, 256}) {
      for (const bool weighted : {true, false}) {
        SCOPED_TRACE(testing::Message() << to_string(dtype) << ", F " << f << ", weighted " << weighted);
        HostMatrix gate_up(dtype, rows, 2 * f, 2 * f + 3), dact(dtype, rows, f, f + 1),
            weight(DType::f32, rows, 1);
        test::fill_random(gate_up, 1, -6.0, 6.0);
        test::fill_random(dact, 2);
        test::fill_random(weight, 3, 0.1, 1.0);
        for (HostMatrix* m : {&gate_up, &dact, &weight}) test::poison_rows(*m, count);
        HostMatrix act_want(dtype, rows, f), dgate_up_want(dtype, rows, 2 * f),
            dweight_want(DType::f32, rows, 1);
        SwigluBackward a{.gate_up = gate_up,
                         .row_weight = weighted ? weight.data<float>() : nullptr,
                         .dact = dact,
                         .dgate_up = dgate_up_want,
                         .drow_weight = dweight_want.data<float>(),
                         .act = act_want,
                         .rows = {.count = &count, .capacity = rows}};
        reference::swiglu_backward(a);
        test::SameBitsPerIsa same;
        test::for_each_context([&](const ExecContext& ctx) {
          HostMatrix act(dtype, rows, f), again(dtype, rows, f), dgate_up(dtype, rows, 2 * f),
              dweight(DType::f32, rows, 1);
          swiglu_forward(ctx, {.gate_up = gate_up, .row_weight = a.row_weight, .act = act, .rows = a.rows});
          EXPECT_TRUE(test::close(act, act_want, test::bound_for(dtype, 1, 6.0), count));
          EXPECT_TRUE(test::untouched(act, count));
          a.dgate_up = dgate_up;
          a.drow_weight = dweight.data<float>();
          a.act = again;
          swiglu_backward(ctx, a);
          EXPECT_TRUE(test::close(dgate_up, dgate_up_want, test::bound_for(dtype, 1, 6.0), count));
          EXPECT_TRUE(test::close(dweight, dweight_want, test::bound_for(DType::f32, f, 36.0), count));
          EXPECT_TRUE(test::same_bits(again, act));
          EXPECT_TRUE(test::untouched(dgate_up, count));
          EXPECT_TRUE(test::untouched(dweight, count));
          EXPECT_TRUE(same(ctx, dweight));

          HostMatrix in_place = gate_up;
          a.gate_up = a.dgate_up = in_place;
          a.drow_weight = nullptr;
          a.act = {};
          swiglu_backward(ctx, a);
          EXPECT_TRUE(test::close(in_place, dgate_up, {}, count));
          a.gate_up = gate_up;
        });
      }
    }
  }
}

TEST(Swiglu, LargeGatesStayFinite) {
  const double gates[] = {-1e30, -200, -89, 89, 200, 1e30};
  HostMatrix gate_up(DType::f32, 1, 12), dact(DType::f32, 1, 6);
  for (std::int64_t c = 0; c < 6; ++c)
    gate_up.set(0, c, gates[c]), gate_up.set(0, 6 + c, 1.0), dact.set(0, c, 1.0);
  test::for_each_context([&](const ExecContext& ctx) {
    HostMatrix act(DType::f32, 1, 6), dgate_up(DType::f32, 1, 12);
    swiglu_backward(
        ctx, {.gate_up = gate_up, .dact = dact, .dgate_up = dgate_up, .act = act, .rows = {.capacity = 1}});
    for (std::int64_t c = 0; c < 6; ++c) {
      const double gate = gate_up.at(0, c);
      EXPECT_NEAR(act.at(0, c), gate > 0 ? gate : 0.0, 1e-30);
      EXPECT_NEAR(dgate_up.at(0, c), gate > 0 ? 1.0 : 0.0, 1e-30);
    }
  });
}

TEST(Swiglu, NoRowsWriteNothing) {
  const std::int64_t count = 0;
  test::for_each_context([&](const ExecContext& ctx) {
    HostMatrix gate_up(DType::bf16, 3, 20), act(DType::bf16, 3, 10), dgate_up(DType::bf16, 3, 20);
    swiglu_forward(ctx, {.gate_up = gate_up, .act = act, .rows = {.count = &count, .capacity = 3}});
    swiglu_backward(
        ctx,
        {.gate_up = gate_up, .dact = act, .dgate_up = dgate_up, .rows = {.count = &count, .capacity = 3}});
    EXPECT_TRUE(test::untouched(act));
    EXPECT_TRUE(test::untouched(dgate_up));
  });
}

TEST(Swiglu, BackwardIsTheDerivativeOfForward) {
  HostMatrix gate_up(DType::f64, 4, 10), dact(DType::f64, 4, 5), act(DType::f64, 4, 5),
      dgate_up(DType::f64, 4, 10);
  HostMatrix weight(DType::f32, 4, 1), dweight(DType::f32, 4, 1);
  test::fill_random(gate_up, 1, -4.0, 4.0);
  test::fill_random(dact, 2);
  test::fill_random(weight, 3, 0.1, 1.0);
  const auto loss = [&] {
    reference::swiglu_forward(
        {.gate_up = gate_up, .row_weight = weight.data<float>(), .act = act, .rows = {.capacity = 4}});
    return test::weighted_sum(act, dact);
  };
  reference::swiglu_backward({.gate_up = gate_up,
                              .row_weight = weight.data<float>(),
                              .dact = dact,
                              .dgate_up = dgate_up,
                              .drow_weight = dweight.data<float>(),
                              .rows = {.capacity = 4}});
  EXPECT_TRUE(test::close(dgate_up, test::numeric_gradient(gate_up, loss), {1e-9, 1e-8}));
  EXPECT_TRUE(test::close(dweight, test::numeric_gradient(weight, loss, 0x1p-10), {1e-6, 1e-6}));
}

}  // namespace
}  // namespace planalto::kernels
