// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/ref/optimizer.h"
#include "support/kernel_testing.h"

namespace planalto::kernels {
namespace {

using test::HostMatrix;

// The state of n parameters and the scalars of a step, as a trainer keeps them.
struct State {
  explicit State(std::int64_t n, double value = 1.0)
      : grad(DType::f32, 1, n),
        master(DType::f32, 1, n),
        m(DType::f32, 1, n),
        v(DType::f32, 1, n),
        weight(DType::bf16, 1, n) {
    for (std::int64_t i = 0; i < n; ++i) master.set(0, i, value);
    for (HostMatrix* x : {&grad, &m, &v}) test::fill_zero(*x);
  }
  AdamWUpdate args(std::int64_t first, std::int64_t n, float decay = 0.0F) {
    return {.n = n,
            .grad = grad.data<float>() + first,
            .master = master.data<float>() + first,
            .m = m.data<float>() + first,
            .v = v.data<float>() + first,
            .weight = weight.data<bf16>() + first,
            .scalars = &scalars,
            .decay = decay};
  }
  void begin_step(std::int64_t step) {
    scalars.correction1 = 1.0 - std::pow(scalars.beta1, static_cast<double>(step));
    scalars.correction2 = 1.0 - std::pow(scalars.beta2, static_cast<double>(step));
  }
  HostMatrix grad, master, m, v, weight;
  AdamWScalars scalars{.learning_rate = 0.1};
};

// Step 1: m/c1 = g, v/c2 = g^2, so the move is lr sign(g); decay multiplies first: 1 x 0.99 - 0.1.
TEST(AdamW, FirstStepWorkedByHand) {
  test::for_each_context([](const ExecContext& ctx) {
    State s(1);
    s.grad.set(0, 0, 4.0);
    s.begin_step(1);
    adamw_update(ctx, s.args(0, 1, 0.1F));
    EXPECT_NEAR(s.m.at(0, 0), 0.4, 1e-7);
    EXPECT_NEAR(s.v.at(0, 0), 0.8, 1e-7);
    EXPECT_NEAR(s.master.at(0, 0), 0.89, 1e-7);
    EXPECT_EQ(s.weight.at(0, 0), 0.890625);  // 228/256, the bf16 nearest to 0.89
  });
}

TEST(AdamW, FiveStepsAgreeWithTheReferenceHoweverTheyAreCut) {
  constexpr std::int64_t kN = 40003;
  State want(kN), first(kN);
  test::fill_random(want.master, 1);
  first.master = want.master;
  const float factor = 0.25F;
  const auto step_args = [&](State& s, std::int64_t begin, std::int64_t n) {
    AdamWUpdate a = s.args(begin, n, 0.1F);
    a.grad_factor = &factor;
    return a;
  };
  for (int step = 1; step <= 5; ++step) {
    test::fill_random(want.grad, 10 + static_cast<std::uint64_t>(step), -2.0, 2.0);
    want.scalars.learning_rate = 1e-2;
    want.begin_step(step);
    reference::adamw_update(step_args(want, 0, kN));
  }
  test::SameBitsPerIsa same_master, same_v;
  for (const std::int64_t cut : {kN, std::int64_t{1}, std::int64_t{16}, std::int64_t{12345}}) {
    test::for_each_context([&](const ExecContext& ctx) {
      State s = first;
      s.scalars.learning_rate = 1e-2;
      for (int step = 1; step <= 5; ++step) {
        test::fill_random(s.grad, 10 + static_cast<std::uint64_t>(step), -2.0, 2.0);
        s.begin_step(step);
        adamw_update(ctx, step_args(s, 0, cut));
        adamw_update(ctx, step_args(s, cut, kN - cut));
      }
      EXPECT_TRUE(test::close(s.m, want.m, {1e-7, 1e-6}));
      EXPECT_TRUE(test::close(s.v, want.v, {1e-9, 1e-6}));
      EXPECT_TRUE(test::close(s.master, want.master, {1e-6, 1e-6}));
      for (std::int64_t i = 0; i < kN; ++i) {
        ASSERT_EQ(s.weight.data<bf16>()[i].bits, to_bf16(s.master.data<float>()[i]).bits) << i;
      }
      EXPECT_TRUE(same_master(ctx, s.master));
      EXPECT_TRUE(same_v(ctx, s.v));
    });
  }
}

TEST(AdamW, Fp32ModeHasNoSecondCopy) {
  test::for_each_context([](const ExecContext& ctx) {
    State s(100);
    test::fill_random(s.grad, 1);
    s.begin_step(1);
    AdamWUpdate a = s.args(0, 100);
    a.weight = nullptr;
    adamw_update(ctx, a);
    EXPECT_TRUE(test::untouched(s.weight));
    EXPECT_NEAR(std::abs(s.master.at(0, 7) - 1.0), 0.1, 1e-6);
  });
}

TEST(AdamW, C049ZeroGradientDecaysByLrTimesDecay) {
  test::for_each_context([](const ExecContext& ctx) {
    State s(33);
    s.begin_step(1);
    adamw_update(ctx, s.args(0, 32, 0.1F));
    adamw_update(ctx, s.args(32, 1));  // exempt
    for (std::int64_t i = 0; i < 32; ++i) ASSERT_FLOAT_EQ(static_cast<float>(s.master.at(0, i)), 0.99F);
    EXPECT_EQ(s.master.at(0, 32), 1.0);
  });
}

TEST(AdamW, C050Bf16GainMovesThroughItsMaster) {
  test::for_each_context([](const ExecContext& ctx) {
    State s(1);
    s.scalars.learning_rate = 1e-4;
    s.grad.set(0, 0, 0.3);
    for (int step = 1; step <= 100; ++step) {
      s.begin_step(step);
      adamw_update(ctx, s.args(0, 1));
    }
    EXPECT_NEAR(s.master.at(0, 0), 0.99, 5e-6);
    EXPECT_EQ(s.weight.at(0, 0), 0.98828125);
  });
}

TEST(AdamW, C052SkippedStepWritesNothing) {
  test::for_each_context([](const ExecContext& ctx) {
    State s(50);
    test::fill_random(s.grad, 1);
    test::fill_random(s.m, 2);
    const State before = s;
    const std::int32_t skip = 1, go = 0;
    AdamWUpdate a = s.args(0, 50, 0.1F);
    a.skip = &skip;
    adamw_update(ctx, a);
    EXPECT_TRUE(test::same_bits(s.master, before.master));
    EXPECT_TRUE(test::same_bits(s.m, before.m));
    EXPECT_TRUE(test::same_bits(s.v, before.v));
    EXPECT_TRUE(test::untouched(s.weight));
    a.skip = &go;
    adamw_update(ctx, a);
    EXPECT_FALSE(test::same_bits(s.master, before.master));
  });
}

TEST(AdamW, C053ZeroGradientDecaysMomentsToo) {
  test::for_each_context([](const ExecContext& ctx) {
    State s(1);
    s.m.set(0, 0, 1.0);
    s.v.set(0, 0, 1.0);
    adamw_update(ctx, s.args(0, 1, 0.1F));
    EXPECT_FLOAT_EQ(static_cast<float>(s.m.at(0, 0)), 0.9F);
    EXPECT_FLOAT_EQ(static_cast<float>(s.v.at(0, 0)), 0.95F);
    EXPECT_NEAR(s.master.at(0, 0), 0.99 - 0.1 * 0.9 / std::sqrt(0.95), 1e-6);
  });
}

// With the right correction each step of a constant gradient moves by lr; with that of step 1 it would be lr x 2.2.
TEST(AdamW, C096BiasCorrectionOfALateStep) {
  test::for_each_context([](const ExecContext& ctx) {
    State s(1, 0.0);
    s.scalars.learning_rate = 1e-3;
    s.grad.set(0, 0, -0.7);
    for (int step = 1; step <= 100; ++step) {
      s.begin_step(step);
      adamw_update(ctx, s.args(0, 1));
    }
    const double before = s.master.at(0, 0);
    s.begin_step(101);
    adamw_update(ctx, s.args(0, 1));
    EXPECT_NEAR((s.master.at(0, 0) - before) / 1e-3, 1.0, 1e-4);
  });
}

TEST(AdamW, MomentsReachZeroInsteadOfStayingSubnormal) {
  test::for_each_context([](const ExecContext& ctx) {
    State s(20);
    for (std::int64_t i = 0; i < 20; ++i)
      s.m.set(0, i, i % 2 == 0 ? 0x1.1p-126 : -0x1p-140), s.v.set(0, i, 0x1p-126);
    adamw_update(ctx, s.args(0, 20));
    for (std::int64_t i = 0; i < 20; ++i) {
      ASSERT_EQ(s.m.at(0, i), 0.0);
      ASSERT_EQ(s.v.at(0, i), 0.0);
      ASSERT_EQ(s.master.at(0, i), 1.0);
    }
  });
}

TEST(AdamW, NanGradientIsNotHidden) {
  test::for_each_context([](const ExecContext& ctx) {
    State s(20);
    s.grad.set(0, 17, std::numeric_limits<double>::quiet_NaN());
    s.begin_step(1);
    adamw_update(ctx, s.args(0, 20));
    for (const HostMatrix* x : {&s.m, &s.v, &s.master, &s.weight}) EXPECT_TRUE(std::isnan(x->at(0, 17)));
    EXPECT_EQ(s.master.at(0, 16), 1.0);
  });
}

TEST(SumSquares, ExactOnIntegersInFixedBlocks) {
  for (const std::int64_t n : {0, 1, 31, 4096, 4097, 100000}) {
    SCOPED_TRACE(n);
    HostMatrix x(DType::f32, 1, n + 1);
    test::fill_integers(x, 1, -1000, 1000);
    x.set(0, n, std::numeric_limits<double>::quiet_NaN());  // past the end
    double want = -1.0;
    reference::sum_squares({.x = x.data<float>(), .n = n, .sum = &want});
    test::for_each_context([&](const ExecContext& ctx) {
      HostMatrix scratch = test::scratch(sum_squares_workspace_bytes(n));
      double got = -1.0;
      sum_squares(ctx, {.x = x.data<float>(), .n = n, .sum = &got, .workspace = test::workspace(scratch)});
      EXPECT_EQ(got, want);
    });
  }
}

TEST(SumSquares, BitsDoNotDependOnThreads) {
  constexpr std::int64_t kN = 77777;
  HostMatrix x(DType::f32, 1, kN);
  test::fill_random(x, 5);
  test::SameBitsPerIsa same;
  test::for_each_context([&](const ExecContext& ctx) {
    HostMatrix scratch = test::scratch(sum_squares_workspace_bytes(kN)), sum(DType::f64, 1, 1);
    sum_squares(
        ctx,
        {.x = x.data<float>(), .n = kN, .sum = sum.data<double>(), .workspace = test::workspace(scratch)});
    EXPECT_NEAR(sum.at(0, 0), kN / 3.0,
                300.0);  // the mean of x^2 is 1/3; five standard deviations are 0.3 sqrt(n) x 5
    EXPECT_TRUE(same(ctx, sum));
  });
}

TEST(SumSquares, C047OneBadElementIsSeenWhereverItIs) {
  constexpr std::int64_t kN = 9000;
  HostMatrix x(DType::f32, 1, kN);
  test::fill_random(x, 5);
  test::for_each_context([&](const ExecContext& ctx) {
    HostMatrix scratch = test::scratch(sum_squares_workspace_bytes(kN));
    double sum = 0.0;
    const SumSquares a{.x = x.data<float>(), .n = kN, .sum = &sum, .workspace = test::workspace(scratch)};
    for (const std::int64_t at : {0, 31, 4095, 4096, 8999}) {
      const double before = x.at(0, at);
      x.set(0, at, std::numeric_limits<double>::quiet_NaN());
      sum_squares(ctx, a);
      EXPECT_TRUE(std::isnan(sum)) << at;
      x.set(0, at, -std::numeric_limits<double>::infinity());
      sum_squares(ctx, a);
      EXPECT_TRUE(std::isinf(sum)) << at;
      x.set(0, at, 3e38);  // its square is no float
      sum_squares(ctx, a);
      EXPECT_NEAR(sum / 9e76, 1.0, 1e-6);
      x.set(0, at, before);
    }
  });
}

}  // namespace
}  // namespace planalto::kernels
