// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "kernels/ref/rope.h"
#include "support/kernel_testing.h"

namespace planalto::kernels {
namespace {

using test::HostMatrix;

constexpr DType kFloats[] = {DType::f32, DType::bf16};
constexpr RopeStyle kStyles[] = {RopeStyle::interleaved, RopeStyle::halves};

std::vector<float> table_of(const std::vector<double>& inv_freq, std::int64_t positions, double scale = 1.0) {
  const auto half = static_cast<std::int64_t>(inv_freq.size());
  std::vector<float> table(static_cast<std::size_t>(positions * 2 * half));
  rope_table({.inv_freq = inv_freq.data(),
              .half = half,
              .scale = scale,
              .max_positions = positions,
              .table = table.data()});
  return table;
}

std::vector<double> frequencies(std::int64_t half) {
  std::vector<double> inv_freq(static_cast<std::size_t>(half));
  for (std::int64_t i = 0; i < half; ++i) {
    inv_freq[static_cast<std::size_t>(i)] =
        std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
  }
  return inv_freq;
}

// cos(100000) = -0.99936081, sin(100000) = 0.03574880: an angle kept in fp32 products would be off by 0.004 here.
TEST(Rope, TableIsRightAtFarPositions) {
  const std::vector<float> table = table_of({1.0, 0.5}, 100001, 2.0);
  EXPECT_EQ(table[0], 2.0F);  // position 0: cos, cos, sin, sin
  EXPECT_EQ(table[1], 2.0F);
  EXPECT_EQ(table[2], 0.0F);
  EXPECT_EQ(table[3], 0.0F);
  EXPECT_FLOAT_EQ(table[4 * 100000], static_cast<float>(2 * -0.9993608074382124));
  EXPECT_FLOAT_EQ(table[4 * 100000 + 2], static_cast<float>(2 * 0.03574879797201651));
  const std::vector<float> far = table_of({0.7498942093324559}, 131072);
  EXPECT_FLOAT_EQ(far[2 * 131071], 0.05461793093636768F);
  EXPECT_FLOAT_EQ(far[2 * 131071 + 1], 0.9985073267734345F);
}

// A quarter turn: (u, v) -> (-v, u); interleaved pairs neighbours, halves pairs (0, 2), (1, 3).
TEST(Rope, PairsAsTheStyleSays) {
  const std::vector<float> table = table_of({std::numbers::pi / 2, std::numbers::pi / 2}, 2);
  const std::int32_t position = 1;
  const double turned[2][4] = {{-2, 1, -4, 3}, {-3, -4, 1, 2}},
               turned_back[2][4] = {{2, -1, 4, -3}, {3, 4, -1, -2}};
  test::for_each_context([&](const ExecContext& ctx) {
    for (const RopeStyle style : kStyles) {
      for (const bool inverse : {false, true}) {
        HostMatrix x(DType::f32, 1, 4);
        for (std::int64_t c = 0; c < 4; ++c) x.set(0, c, static_cast<double>(c + 1));
        rope_apply(ctx, {.x = x.data<void>(),
                         .head_stride = 4,
                         .row_stride = 4,
                         .half = 2,
                         .style = style,
                         .inverse = inverse,
                         .table = table.data(),
                         .positions = &position,
                         .tokens = {.capacity = 1}});
        for (std::int64_t c = 0; c < 4; ++c) {
          EXPECT_NEAR(x.at(0, c), (inverse ? turned_back : turned)[style == RopeStyle::halves][c], 1e-6) << c;
        }
      }
    }
  });
}

struct Shape {
  std::int64_t heads, head_dim, first, half;
};

class RopeShapes : public testing::TestWithParam<Shape> {};

TEST_P(RopeShapes, AgreesWithTheReferenceAndTouchesNothingElse) {
  const Shape s = GetParam();
  const std::int64_t tokens = 23, count = 20, width = s.heads * s.head_dim;
  const std::vector<float> table = table_of(frequencies(s.half), 64, 1.25);
  test::Random random(1);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(tokens));
  for (auto& p : positions) p = static_cast<std::int32_t>(random.below(64));
  positions.back() = 1 << 30;  // past the count: never looked at
  for (const DType dtype : kFloats) {
    for (const RopeStyle style : kStyles) {
      for (const bool inverse : {false, true}) {
        SCOPED_TRACE(testing::Message() << to_string(dtype) << ", halves " << (style == RopeStyle::halves)
                                        << ", inverse " << inverse);
        HostMatrix before(dtype, tokens, width, width + 5);
        test::fill_random(before, 2, -2.0, 2.0);
        test::poison_rows(before, count);
        RopeApply a{.dtype = dtype,
                    .num_heads = s.heads,
                    .head_stride = s.head_dim,
                    .row_stride = width + 5,
                    .first = s.first,
                    .half = s.half,
                    .style = style,
                    .inverse = inverse,
                    .table = table.data(),
                    .positions = positions.data(),
                    .tokens = {.count = &count, .capacity = tokens}};
        HostMatrix want = before;
        a.x = want.data<void>();
        reference::rope_apply(a);
        test::for_each_context([&](const ExecContext& ctx) {
          HostMatrix x = before;
          a.x = x.data<void>();
          rope_apply(ctx, a);
          EXPECT_TRUE(test::close(x, want, test::bound_for(dtype, 1, 2.0), count));
          EXPECT_TRUE(test::untouched(x, count));
          for (std::int64_t t = 0; t < count; ++t) {
            for (std::int64_t c = 0; c < width; ++c) {
              const std::int64_t in_head = c % s.head_dim;
              if (in_head >= s.first && in_head < s.first + 2 * s.half) continue;
              ASSERT_EQ(x.at(t, c), before.at(t, c)) << "token " << t << ", element " << c;
            }
          }
        });
      }
    }
  }
}

// A whole head, the last elements of a head (MLA), the first half of one (GLM), widths that fill no vector, one pair.
INSTANTIATE_TEST_SUITE_P(Heads, RopeShapes,
                         testing::Values(Shape{3, 64, 0, 32}, Shape{4, 48, 32, 8}, Shape{2, 128, 0, 32},
                                         Shape{1, 64, 0, 32}, Shape{3, 30, 1, 13}, Shape{2, 5, 2, 1},
                                         Shape{2, 24, 0, 12}));

TEST(Rope, InverseUndoesARotationOfScaleOne) {
  const std::vector<float> table = table_of(frequencies(16), 8);
  const std::int32_t positions[] = {7, 3};
  test::for_each_context([&](const ExecContext& ctx) {
    for (const RopeStyle style : kStyles) {
      HostMatrix x(DType::f32, 2, 64);
      test::fill_random(x, 3);
      const HostMatrix before = x;
      RopeApply a{.x = x.data<void>(),
                  .num_heads = 2,
                  .head_stride = 32,
                  .row_stride = 64,
                  .half = 16,
                  .style = style,
                  .table = table.data(),
                  .positions = positions,
                  .tokens = {.capacity = 2}};
      rope_apply(ctx, a);
      EXPECT_FALSE(test::close(x, before, {1e-2}));
      a.inverse = true;
      rope_apply(ctx, a);
      EXPECT_TRUE(test::close(x, before, {1e-6, 1e-6}));
    }
  });
}

TEST(Rope, InverseIsTheDerivativeOfTheRotation) {
  const std::vector<float> table = table_of(frequencies(3), 8, 1.5);
  const std::int32_t positions[] = {5, 2};
  for (const RopeStyle style : kStyles) {
    HostMatrix x(DType::f64, 2, 14), dy(DType::f64, 2, 14);
    test::fill_random(x, 1);
    test::fill_random(dy, 2);
    RopeApply a{.dtype = DType::f64,
                .num_heads = 2,
                .head_stride = 7,
                .row_stride = 14,
                .first = 1,
                .half = 3,
                .style = style,
                .table = table.data(),
                .positions = positions,
                .tokens = {.capacity = 2}};
    const auto loss = [&] {
      HostMatrix y = x;
      a.x = y.data<void>();
      reference::rope_apply(a);
      return test::weighted_sum(y, dy);
    };
    const HostMatrix want = test::numeric_gradient(x, loss);
    a.inverse = true;
    HostMatrix dx = dy;
    a.x = dx.data<void>();
    reference::rope_apply(a);
    EXPECT_TRUE(test::close(dx, want, {1e-9, 1e-8}));
  }
}

}  // namespace
}  // namespace planalto::kernels
