// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "kernels/ref/elementwise.h"
#include "support/kernel_testing.h"

namespace planalto::kernels {
namespace {

using test::HostMatrix;

constexpr DType kFloats[] = {DType::f32, DType::bf16};

TEST(AddRows, EveryPairOfDtypesIsExactOnIntegersAndStopsAtTheCount) {
  const std::int64_t count = 9, rows = 12;
  for (const DType da : kFloats) {
    for (const DType db : kFloats) {
      for (const DType dy : kFloats) {
        for (const std::int64_t cols : {1, 8, 37, 64}) {
          for (const std::int64_t gap : {0, 3}) {
            SCOPED_TRACE(testing::Message() << to_string(da) << " + " << to_string(db) << " -> "
                                            << to_string(dy) << ", " << cols << " columns, gap " << gap);
            HostMatrix a(da, rows, cols, cols + gap), b(db, rows, cols, cols + 2 * gap), want(dy, rows, cols);
            test::fill_integers(a, 1, -60, 60);
            test::fill_integers(b, 2, -60, 60);
            test::poison_rows(a, count);
            test::poison_rows(b, count);
            const RowCount valid{.count = &count, .capacity = rows};
            reference::add_rows({.a = a, .b = b, .y = want, .rows = valid});
            test::for_each_context([&](const ExecContext& ctx) {
              HostMatrix y(dy, rows, cols, cols + gap);
              add_rows(ctx, {.a = a, .b = b, .y = y, .rows = valid});
              EXPECT_TRUE(test::close(y, want, {}, count));
              EXPECT_TRUE(test::untouched(y, count));
            });
          }
        }
      }
    }
  }
}

TEST(AddRows, MayWriteOverEitherOperand) {
  test::for_each_context([](const ExecContext& ctx) {
    HostMatrix a(DType::bf16, 5, 50), b(DType::bf16, 5, 50), sum(DType::bf16, 5, 50);
    test::fill_integers(a, 1);
    test::fill_integers(b, 2);
    add_rows(ctx, {.a = a, .b = b, .y = sum, .rows = {.capacity = 5}});
    HostMatrix over_a = a, over_b = b;
    add_rows(ctx, {.a = over_a, .b = b, .y = over_a, .rows = {.capacity = 5}});
    add_rows(ctx, {.a = a, .b = over_b, .y = over_b, .rows = {.capacity = 5}});
    EXPECT_TRUE(test::same_bits(over_a, sum));
    EXPECT_TRUE(test::same_bits(over_b, sum));
  });
}

TEST(AddRows, WithoutASecondOperandCopiesOrCasts) {
  for (const DType from : kFloats) {
    for (const DType to : kFloats) {
      HostMatrix a(from, 4, 21, 24), want(to, 4, 21);
      test::fill_random(a, 7);
      reference::add_rows({.a = a, .y = want, .rows = {.capacity = 4}});
      test::for_each_context([&](const ExecContext& ctx) {
        HostMatrix y(to, 4, 21, 25);
        add_rows(ctx, {.a = a, .y = y, .rows = {.capacity = 4}});
        EXPECT_TRUE(test::close(y, want));
        EXPECT_TRUE(test::untouched(y, 4));  // the gaps
      });
    }
  }
}

// bf16 fits 8 bits of mantissa: 256 + 1 is 256, 256 + 3 is 260 (ties to even: 259 lies between 258 and 260).
TEST(AddRows, RoundsTheSumOnceToNearestEven) {
  HostMatrix a(DType::f32, 1, 3), b(DType::f32, 1, 3);
  const double left[] = {256, 256, -256}, right[] = {1, 3, -3}, want[] = {256, 260, -260};
  for (std::int64_t c = 0; c < 3; ++c) a.set(0, c, left[c]), b.set(0, c, right[c]);
  test::for_each_context([&](const ExecContext& ctx) {
    HostMatrix y(DType::bf16, 1, 3);
    add_rows(ctx, {.a = a, .b = b, .y = y, .rows = {.capacity = 1}});
    for (std::int64_t c = 0; c < 3; ++c) EXPECT_EQ(y.at(0, c), want[c]);
  });
}

TEST(CastElements, C104C105EveryPathRoundsAlike) {
  const std::uint32_t bits[] = {0x00400000, 0x00010000, 0x3F808000, 0x3F818000,
                                0x7F7FFFFF, 0x7F800001, 0xBF808000};
  const std::uint16_t want[] = {0x0040, 0x0001, 0x3F80, 0x3F82, 0x7F80, 0x7FC0, 0xBF80};
  EXPECT_EQ(std::bit_cast<float>(bits[0]), 0x1p-127F);
  EXPECT_EQ(std::bit_cast<float>(bits[1]), 0x1p-133F);
  std::vector<std::uint32_t> from(16 * 1024 + 7);  // so that each value meets the vector and the tail
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = bits[i % 7];
  test::for_each_context([&](const ExecContext& ctx) {
    std::vector<bf16> to(from.size() + 1, bf16{0x1234}), copy(from.size());
    const auto n = static_cast<std::int64_t>(from.size());
    cast_elements(ctx, {.from = from.data(), .to = to.data(), .n = n});
    for (std::size_t i = 0; i < from.size(); ++i) ASSERT_EQ(to[i].bits, want[i % 7]) << i;
    EXPECT_EQ(to.back().bits, 0x1234);

    for (std::size_t i = 0; i < to.size(); ++i)
      to[i].bits = static_cast<std::uint16_t>(i * 5);  // some signalling NaN
    cast_elements(ctx, {.from = to.data(), .from_dtype = DType::bf16, .to = copy.data(), .n = n});
    for (std::size_t i = 0; i < copy.size(); ++i) ASSERT_EQ(copy[i].bits, to[i].bits) << i;

    std::vector<float> wide(from.size());
    cast_elements(
        ctx,
        {.from = to.data(), .from_dtype = DType::bf16, .to = wide.data(), .to_dtype = DType::f32, .n = n});
    for (std::size_t i = 0; i < wide.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::uint32_t{to[i].bits} << 16) << i;
    }
  });
}

TEST(FillZero, ZeroesItsBytesAndNoMore) {
  test::for_each_context([](const ExecContext& ctx) {
    for (const std::int64_t bytes : {0, 1, 100, 200001}) {
      std::vector<unsigned char> data(200002, 0xff);
      fill_zero(ctx, {.data = data.data(), .bytes = bytes});
      for (std::int64_t i = 0; i < 200002; ++i)
        ASSERT_EQ(data[static_cast<std::size_t>(i)], i < bytes ? 0 : 0xff);
    }
  });
}

TEST(BiasGrad, IsExactOnIntegersOverSeveralBlocks) {
  for (const DType dtype : kFloats) {
    for (const auto& size :
         {std::pair<std::int64_t, std::int64_t>{0, 5}, {1, 1}, {127, 600}, {300, 600}, {5000, 40}}) {
      const std::int64_t rows = size.first, cols = size.second;
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << to_string(dtype) << " [" << rows << ", " << cols << "], accumulate " << accumulate);
        HostMatrix dy(dtype, rows + 2, cols, cols + 1), before(DType::f32, 1, cols);
        test::fill_integers(dy, 1, -3, 4);
        test::poison_rows(dy, rows);
        test::fill_integers(before, 2, 1, 5);
        BiasGrad a{.dy = dy, .accumulate = accumulate, .rows = {.count = &rows, .capacity = rows + 2}};
        HostMatrix want = before;
        a.dbias = want.data<float>();
        reference::bias_grad(a);
        test::for_each_context([&](const ExecContext& ctx) {
          HostMatrix got = before, scratch = test::scratch(bias_grad_workspace_bytes(rows, cols));
          a.dbias = got.data<float>();
          a.workspace = test::workspace(scratch);
          bias_grad(ctx, a);
          EXPECT_TRUE(test::close(got, want, {.may_be_zero = rows == 0}));
        });
      }
    }
  }
}

TEST(BiasGrad, BitsDependOnNeitherThreadsNorCapacity) {
  HostMatrix dy(DType::f32, 1000, 300);
  test::fill_random(dy, 11);
  test::SameBitsPerIsa same;
  for (const std::int64_t capacity : {900, 1000}) {
    test::for_each_context([&](const ExecContext& ctx) {
      const std::int64_t count = 900;
      HostMatrix got(DType::f32, 1, 300), scratch = test::scratch(bias_grad_workspace_bytes(capacity, 300));
      bias_grad(ctx, {.dy = dy,
                      .dbias = got.data<float>(),
                      .rows = {.count = &count, .capacity = capacity},
                      .workspace = test::workspace(scratch)});
      EXPECT_TRUE(same(ctx, got));
    });
  }
}

TEST(MlaKeys, AssembleAndTakeApart) {
  constexpr std::int64_t kTokens = 6, kHeads = 3, kNope = 10, kRope = 22, kStride = 10 + 7;
  const std::int64_t count = 5;
  for (const DType dtype : kFloats) {
    HostMatrix kv(dtype, kTokens, kHeads * kStride), rope(dtype, kTokens, kRope, kRope + 4);
    HostMatrix dkeys(dtype, kTokens, kHeads * (kNope + kRope));
    test::fill_integers(kv, 1);
    test::fill_integers(rope, 2);
    test::fill_integers(dkeys, 3);
    for (HostMatrix* m : {&kv, &rope, &dkeys}) test::poison_rows(*m, count);
    MlaKeysForward forward{.dtype = dtype,
                           .num_heads = kHeads,
                           .nope = kNope,
                           .rope_dim = kRope,
                           .kv_head_stride = kStride,
                           .kv = kv.data<void>(),
                           .rope = rope,
                           .tokens = {.count = &count, .capacity = kTokens}};
    MlaKeysBackward backward{.dtype = dtype,
                             .num_heads = kHeads,
                             .nope = kNope,
                             .rope_dim = kRope,
                             .kv_head_stride = kStride,
                             .dkeys = dkeys.data<void>(),
                             .tokens = forward.tokens};
    HostMatrix keys_want(dtype, kTokens, kHeads * (kNope + kRope)),
        dkv_want(dtype, kTokens, kHeads * kStride);
    HostMatrix drope_want(dtype, kTokens, kRope);
    forward.keys = keys_want.data<void>();
    reference::mla_keys_forward(forward);
    backward.dkv = dkv_want.data<void>();
    backward.drope = drope_want;
    reference::mla_keys_backward(backward);
    EXPECT_EQ(keys_want.at(1, kNope + kRope), kv.at(1, kStride));  // head 1 begins with its own part
    EXPECT_EQ(keys_want.at(1, 2 * kNope + kRope), rope.at(1, 0));  // and ends with the shared one
    test::for_each_context([&](const ExecContext& ctx) {
      HostMatrix keys(dtype, kTokens, kHeads * (kNope + kRope)), dkv(dtype, kTokens, kHeads * kStride);
      HostMatrix drope(dtype, kTokens, kRope, kRope + 1);
      forward.keys = keys.data<void>();
      mla_keys_forward(ctx, forward);
      EXPECT_TRUE(test::same_bits(keys, keys_want));
      EXPECT_TRUE(test::untouched(keys, count));
      backward.dkv = dkv.data<void>();
      backward.drope = drope;
      mla_keys_backward(ctx, backward);
      EXPECT_TRUE(test::same_bits(dkv, dkv_want));  // the poison where the values of v lie is part of it
      EXPECT_TRUE(test::close(drope, drope_want, {}, count));
      EXPECT_TRUE(test::untouched(drope, count));
    });
  }
}

}  // namespace
}  // namespace planalto::kernels
