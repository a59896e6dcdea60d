// SPDX-License-Identifier: Apache-2.0
#include "kernels/packed_weight.h"

#include <cstring>

#include "kernels/gemm_problem.h"
#include "kernels/optimizer.h"
#include "kernels/ref/packed_weight.h"

namespace planalto::kernels {
namespace {

// Both copies of E matrices [n, k], poisoned, each with a guard of 64 bytes behind it.
struct Copies {
  Copies(std::int64_t e, std::int64_t rows, std::int64_t cols, Isa isa)
      : num(e),
        n(rows),
        k(cols),
        forward(DType::bf16, 1, packed_weight_bytes(e, rows, cols, isa) / 2 + 32),
        backward(DType::bf16, 1, packed_weight_bytes(e, cols, rows, isa) / 2 + 32) {}
  PackedCopies view() {
    return {.num = num, .n = n, .k = k, .forward = forward.data<void>(), .backward = backward.data<void>()};
  }
  std::int64_t num, n, k;
  HostMatrix forward, backward;
};

struct Size {
  std::int64_t num, n, k;
};
const std::vector<Size> kSizes = {{1, 1, 1},   {2, 3, 5},    {3, 32, 32},  {1, 33, 31},   {2, 16, 64},
                                  {2, 65, 47}, {1, 48, 300}, {2, 31, 257}, {3, 100, 512}, {1, 17, 1}};

// Element (expert 1, row 2, column 3) of 2 x [3, 5] with 16 lines a panel: forward copy: 1 panel of depth 32 before it, line 2 of pair
// 1, odd half; backward: line 3 of pair 1, even half.
TEST(PackedWeight, LayoutWorkedByHand) {
  HostMatrix source(DType::f32, 6, 5);
  test::fill_zero(source);
  source.set(3 + 2, 3, 1.5);
  Copies c(2, 3, 5, Isa::avx2);
  reference::pack_weight({.source = source.data<float>(), .copies = c.view()}, 16);
  const std::int64_t forward = 16 * 32 + (1 * 16 + 2) * 2 + 1, backward = 16 * 32 + (1 * 16 + 3) * 2;
  for (std::int64_t i = 0; i < 2 * 16 * 32; ++i) {
    EXPECT_EQ(c.forward.at(0, i), i == forward ? 1.5 : 0.0) << i;
    EXPECT_EQ(c.backward.at(0, i), i == backward ? 1.5 : 0.0) << i;
  }
}

TEST(PackedWeight, EveryIsaPacksAsTheReference) {
  for (const Size& s : kSizes) {
    SCOPED_TRACE(::testing::Message() << s.num << " x [" << s.n << ", " << s.k << "]");
    HostMatrix source(DType::f32, s.num * s.n, s.k);
    test::fill_random(source, 3);
    test::for_each_context([&](const ExecContext& ctx) {
      Copies want(s.num, s.n, s.k, ctx.kernels->isa), got = want;
      reference::pack_weight({.source = source.data<float>(), .copies = want.view()},
                             packed_panel_lines(ctx.kernels->isa));
      pack_weight(ctx, {.source = source.data<float>(), .copies = got.view()});
      EXPECT_TRUE(test::same_bits(got.forward, want.forward)) << "forward";
      EXPECT_TRUE(test::same_bits(got.backward, want.backward)) << "backward";
      Copies one(s.num, s.n, s.k, ctx.kernels->isa);
      PackedCopies only_backward = one.view();
      only_backward.forward = nullptr;
      pack_weight(ctx, {.source = source.data<float>(), .copies = only_backward});
      EXPECT_TRUE(test::same_bits(one.backward, want.backward)) << "backward alone";
    });
  }
}

// The packed copies of an update are those of the weights that it leaves, and the rest of the update does not notice them.
TEST(PackedWeight, AdamWWritesTheCopiesOfWhatItLeaves) {
  for (const Size& s : kSizes) {
    SCOPED_TRACE(::testing::Message() << s.num << " x [" << s.n << ", " << s.k << "]");
    const std::int64_t count = s.num * s.n * s.k;
    HostMatrix grad(DType::f32, 1, count), master(DType::f32, 1, count), m(DType::f32, 1, count),
        v(DType::f32, 1, count);
    test::fill_random(grad, 1);
    test::fill_random(master, 2);
    test::fill_random(m, 3);
    test::fill_random(v, 4, 0.0, 1.0);
    const AdamWScalars scalars{.learning_rate = 0.01, .correction1 = 0.1, .correction2 = 0.05};
    test::for_each_context([&](const ExecContext& ctx) {
      HostMatrix p1 = master, m1 = m, v1 = v, p2 = master, m2 = m, v2 = v, plain(DType::bf16, 1, count);
      AdamWUpdate a{.n = count, .grad = grad.data<float>(), .scalars = &scalars, .decay = 0.1F};
      a.master = p1.data<float>(), a.m = m1.data<float>(), a.v = v1.data<float>();
      a.weight = plain.data<void>();
      adamw_update(ctx, a);
      Copies got(s.num, s.n, s.k, ctx.kernels->isa), want = got;
      a.master = p2.data<float>(), a.m = m2.data<float>(), a.v = v2.data<float>();
      a.weight = nullptr;
      a.packed = got.view();
      adamw_update(ctx, a);
      EXPECT_TRUE(test::same_bits(p2, p1));
      EXPECT_TRUE(test::same_bits(m2, m1));
      EXPECT_TRUE(test::same_bits(v2, v1));
      pack_weight(ctx, {.source = p1.data<float>(), .copies = want.view()});
      EXPECT_TRUE(test::same_bits(got.forward, want.forward));
      EXPECT_TRUE(test::same_bits(got.backward, want.backward));
    });
  }
}

// Products that read the panels have the bits of products that read the rows.
TEST(PackedWeight, ProductsHaveTheBitsOfThePlainWeight) {
  struct Case {
    std::vector<std::int64_t> rows;
    std::int64_t n, k;
  };
  const std::vector<Case> cases = {{{1}, 1, 1},           {{2, 0, 3}, 3, 5},  {{13, 15}, 31, 17},
                                   {{29, 0, 1}, 33, 129}, {{225, 6}, 64, 32}, {{12}, 529, 15},
                                   {{3, 4}, 17, 1281},    {{7}, 1300, 48},    {{5, 9}, 35, 2603},
                                   {{4}, 2600, 40},       {{40, 7}, 96, 200}};
  std::uint64_t seed = 900;
  for (const Case& c : cases) {
    for (const DType a : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(::testing::Message() << "n " << c.n << ", k " << c.k << ", x " << to_string(a));
      const Operands o({a, DType::bf16, DType::f32, c.rows, c.n, c.k, 1, true}, seed += 10, false);
      HostMatrix dense(DType::f32, o.experts * c.n, c.k);
      for (std::int64_t r = 0; r < dense.rows(); ++r) {
        for (std::int64_t k = 0; k < c.k; ++k) dense.set(r, k, o.w.at(r, k));
      }
      for_each_gemm([&](const ExecContext& ctx) {
        Copies copies(o.experts, c.n, c.k, ctx.kernels->isa);
        pack_weight(ctx, {.source = dense.data<float>(), .copies = copies.view()});
        for (const bool accumulate : {false, true}) {
          HostMatrix y = o.new_y(), dx = o.new_dx();
          test::fill_random(y, 1);
          test::fill_random(dx, 2);
          HostMatrix got_y = y, got_dx = dx;
          run(ctx, o, o.forward(y, accumulate));
          run(ctx, o, o.grad_input(dx, accumulate));
          GroupedGemmForward f = o.forward(got_y, accumulate);
          GroupedGemmGradInput g = o.grad_input(got_dx, accumulate);
          f.w.data = g.w.data = nullptr;
          f.packed = copies.forward.data<void>();
          g.packed = copies.backward.data<void>();
          run(ctx, o, f);
          run(ctx, o, g);
          EXPECT_TRUE(test::same_bits(got_y, y)) << "forward";
          EXPECT_TRUE(test::same_bits(got_dx, dx)) << "grad_input";
        }
      });
    }
  }
}

}  // namespace
}  // namespace planalto::kernels
