// SPDX-License-Identifier: Apache-2.0
// grouped_gemm_test.cpp: products against the reference bodies and against chains written out here, on every ISA.
#include "kernels/grouped_gemm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/gemm_problem.h"
#include "kernels/ref/grouped_gemm.h"
#include "kernels/table.h"
#include "support/expect_error.h"

namespace planalto::kernels {
namespace {

// All three passes of a problem on every ISA against the reference, overwriting and then accumulating.
void expect_reference(const Operands& o, bool integers) {
  const Problem& p = o.problem;
  auto bound = [&](DType out, std::int64_t length) {
    test::Bound b;
    if (!integers) b = test::bound_for(out, 2 * length, 3.0);
    if (integers && out == DType::bf16) b.relative = 0x1p-8;  // beyond 256 an integer is rounded
    b.may_be_zero = true;
    return b;
  };
  HostMatrix y[2] = {o.new_y(), o.new_y()}, dx[2] = {o.new_dx(), o.new_dx()},
             dw[2] = {o.new_dw(), o.new_dw()};
  for (const int accumulate : {0, 1}) {
    if (accumulate == 1) y[1] = y[0], dx[1] = dx[0], dw[1] = dw[0];
    reference::grouped_gemm_forward(o.forward(y[accumulate], accumulate == 1));
    reference::grouped_gemm_grad_input(o.grad_input(dx[accumulate], accumulate == 1));
    reference::grouped_gemm_grad_weight(o.grad_weight(dw[accumulate], accumulate == 1));
  }
  for_each_gemm([&](const ExecContext& ctx) {
    HostMatrix got_y = o.new_y(), got_dx = o.new_dx(), got_dw = o.new_dw();
    for (const int accumulate : {0, 1}) {
      SCOPED_TRACE(accumulate == 1 ? "accumulate" : "overwrite");
      run(ctx, o, o.forward(got_y, accumulate == 1));
      EXPECT_TRUE(test::close(got_y, y[accumulate], bound(p.out_dtype, p.k), o.rows)) << "forward";
      EXPECT_TRUE(test::untouched(got_y, o.rows)) << "forward";
      run(ctx, o, o.grad_input(got_dx, accumulate == 1));
      EXPECT_TRUE(test::close(got_dx, dx[accumulate], bound(p.out_dtype, p.n), o.rows)) << "grad_input";
      EXPECT_TRUE(test::untouched(got_dx, o.rows)) << "grad_input";
      run(ctx, o, o.grad_weight(got_dw, accumulate == 1));
      EXPECT_TRUE(test::close(got_dw, dw[accumulate], bound(DType::f32, o.rows))) << "grad_weight";
      EXPECT_TRUE(test::untouched(got_dw, got_dw.rows())) << "grad_weight";
    }
  });
}

const std::vector<std::vector<std::int64_t>> kSegmentCases = {
    {0, 1, 0, 17, 0}, {1, 1, 1, 1}, {0, 0, 0, 0}, {0, 5, 3}, {5, 3, 0},
    {0, 8, 0},        {63},         {64},         {65},      {0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};

TEST(GroupedGemm, C016SmallAndEmptySegments) {
  std::uint64_t seed = 16;
  for (const auto& sizes : kSegmentCases) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(::testing::Message()
                   << to_string(dtype) << ", segments " << ::testing::PrintToString(sizes));
      const Operands o({dtype, dtype, DType::f32, sizes, 48, 64, 7, false}, seed += 10, true);
      expect_reference(o, true);
    }
  }
}

TEST(GroupedGemm, IdleExpertGradientIsExactlyZeroOrLeftAlone) {
  for_each_gemm([](const ExecContext& ctx) {
    const Operands o({DType::bf16, DType::bf16, DType::f32, {0, 4, 0}, 48, 64, 0, false}, 3, true);
    HostMatrix dw = o.new_dw();
    run(ctx, o, o.grad_weight(dw, true));
    for (const std::int64_t row : {0, 47, 96, 143}) EXPECT_TRUE(std::isnan(dw.at(row, 63))) << "row " << row;
    run(ctx, o, o.grad_weight(dw, false));
    for (const std::int64_t row : {0, 47, 96, 143})
      EXPECT_EQ(std::signbit(dw.at(row, 63)), false) << "row " << row;
    for (const std::int64_t row : {0, 47, 96, 143}) EXPECT_EQ(dw.at(row, 63), 0.0) << "row " << row;
  });
}

// Sizes on both sides of every tile, block and group boundary, all dtypes, with bias.
TEST(GroupedGemm, ExactForSmallIntegers) {
  struct Sizes {
    std::vector<std::int64_t> rows;
    std::int64_t n, k;
  };
  const std::vector<Sizes> cases = {{{1}, 1, 1},           {{2, 3}, 3, 2},     {{13, 14, 15}, 31, 17},
                                    {{29, 0, 1}, 33, 129}, {{225, 6}, 65, 31}, {{12}, 529, 15},
                                    {{3, 4}, 17, 1281},    {{7}, 1300, 16}};
  std::uint64_t seed = 100;
  for (const Sizes& s : cases) {
    for (const DType a : {DType::f32, DType::bf16}) {
      for (const DType w : {DType::f32, DType::bf16}) {
        for (const DType out : {DType::f32, DType::bf16}) {
          if (a != w && out == DType::bf16) continue;
          SCOPED_TRACE(::testing::Message() << "n " << s.n << ", k " << s.k << ", " << to_string(a) << " "
                                            << to_string(w) << " -> " << to_string(out));
          expect_reference(Operands({a, w, out, s.rows, s.n, s.k, 1, true}, seed += 10, true), true);
        }
      }
    }
  }
}

// Sums in several blocks: k and n for two passes, rows for the third.
TEST(GroupedGemm, LongSums) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(to_string(dtype));
    expect_reference(Operands({dtype, dtype, DType::f32, {9}, 35, 2603, 1, true}, 5, true), true);
    expect_reference(Operands({dtype, dtype, DType::f32, {9}, 2601, 33, 1, true}, 7, true), true);
    expect_reference(Operands({dtype, dtype, DType::f32, {2701, 2}, 35, 33, 1, true}, 6, true), true);
  }
}

TEST(GroupedGemm, RandomDataWithinBounds) {
  std::uint64_t seed = 40;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const DType out : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed + 10);
      expect_reference(Operands({dtype, dtype, out, {40, 0, 7, 100}, 72, 200, 2, true}, seed += 10, false),
                       false);
    }
  }
}

TEST(GroupedGemm, SumsOfNothing) {
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{5, 0}, {0, 5}, {0, 0}}) {
    SCOPED_TRACE(::testing::Message() << "n " << n << ", k " << k);
    expect_reference(Operands({DType::f32, DType::f32, DType::f32, {3, 0, 2}, n, k, 1, true}, 9, true), true);
  }
}

// Contract: one chain of fused multiply-adds in ascending k, whatever the row, the tile, the block or the thread.
TEST(GroupedGemm, EverySumIsOneChainInAscendingOrder) {
  for_each_gemm([](const ExecContext& ctx) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const bool emulated = ctx.kernels->grouped_gemm_forward == emulated_pairs::grouped_gemm_forward ||
                            ctx.kernels->grouped_gemm_forward == emulated_tiles::grouped_gemm_forward;
      if (ctx.kernels->isa >= Isa::avx512_bf16 && dtype == DType::bf16 && !emulated)
        continue;  // the instructions round in a way of their own
      SCOPED_TRACE(to_string(dtype));
      const Operands o({dtype, dtype, DType::f32, {17, 2}, 35, 2603, 0, false}, 77, false);
      HostMatrix y = o.new_y(), dw = o.new_dw();
      run(ctx, o, o.forward(y));
      run(ctx, o, o.grad_weight(dw));
      for (std::int64_t r = 0; r < o.rows; ++r) {
        for (std::int64_t j = 0; j < 35; ++j) {
          float sum = 0.0F;
          for (std::int64_t i = 0; i < 2603; ++i) {
            sum = std::fma(static_cast<float>(o.x.at(r, i)),
                           static_cast<float>(o.w.at((r < 17 ? 0 : 35) + j, i)), sum);
          }
          ASSERT_EQ(y.at(r, j), sum) << "y " << r << ", " << j;
        }
      }
      for (const std::int64_t j : {0, 13, 14, 34}) {
        for (std::int64_t i = 0; i < 2603; ++i) {
          float sum = 0.0F;
          for (std::int64_t r = 0; r < 17; ++r) {
            sum = std::fma(static_cast<float>(o.dy.at(r, j)), static_cast<float>(o.x.at(r, i)), sum);
          }
          ASSERT_EQ(dw.at(j, i), sum) << "dw " << j << ", " << i;
        }
      }
    }
  });
}

// The same rows alone, in the middle of a big segment, and in an expert of their own.
TEST(GroupedGemm, ARowsBitsDoNotDependOnItsPlace) {
  for_each_gemm([](const ExecContext& ctx) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Operands big({dtype, dtype, DType::bf16, {240}, 600, 130, 0, true}, 8, false);
      HostMatrix y = big.new_y(), dx = big.new_dx();
      run(ctx, big, big.forward(y));
      run(ctx, big, big.grad_input(dx));
      for (const std::int64_t row : {0, 14, 100, 227, 239}) {
        Operands one = big;
        one.offsets = {0, 1};
        one.rows = one.capacity = 1;
        GroupedGemmForward f = one.forward(y);
        HostMatrix y1(DType::bf16, 1, 600), dx1(DType::bf16, 1, 130);
        f.x.data = big.x.view().row<char>(0) + row * big.x.view().row_stride * dtype_bytes(dtype);
        f.x.rows = 1;
        f.y = y1;
        run(ctx, one, f);
        GroupedGemmGradInput g = one.grad_input(dx);
        g.dy.data = big.dy.view().row<char>(0) + row * big.dy.view().row_stride * dtype_bytes(dtype);
        g.dy.rows = 1;
        g.dx = dx1;
        run(ctx, one, g);
        for (std::int64_t j = 0; j < 600; ++j)
          ASSERT_EQ(y1.at(0, j), y.at(row, j)) << "row " << row << ", " << j;
        for (std::int64_t j = 0; j < 130; ++j)
          ASSERT_EQ(dx1.at(0, j), dx.at(row, j)) << "row " << row << ", " << j;
      }
    }
  });
}

TEST(GroupedGemm, BitsDoNotDependOnThreads) {
  const Operands o({DType::bf16, DType::bf16, DType::f32, {90, 3, 0, 260}, 200, 150, 0, true}, 21, false);
  struct Results {
    HostMatrix y, dx, dw;
  };
  std::vector<std::pair<Isa, Results>> first;
  test::for_each_context([&](const ExecContext& ctx) {
    Results r{o.new_y(), o.new_dx(), o.new_dw()};
    run(ctx, o, o.forward(r.y));
    run(ctx, o, o.grad_input(r.dx));
    run(ctx, o, o.grad_weight(r.dw));
    for (const auto& [isa, want] : first) {
      if (isa != ctx.kernels->isa) continue;
      EXPECT_TRUE(test::same_bits(r.y, want.y));
      EXPECT_TRUE(test::same_bits(r.dx, want.dx));
      EXPECT_TRUE(test::same_bits(r.dw, want.dw));
      return;
    }
    first.emplace_back(ctx.kernels->isa, r);
  });
}

// The GEMM part of C009: one expert with all rows is the dense product (offsets null), to the bit.
TEST(GroupedGemm, C009OneExpertIsTheDenseProduct) {
  for_each_gemm([](const ExecContext& ctx) {
    const Operands o({DType::f32, DType::f32, DType::f32, {70}, 96, 100, 0, false}, 9, false);
    HostMatrix y = o.new_y(), dense_y = o.new_y(), dx = o.new_dx(), dense_dx = o.new_dx(), dw = o.new_dw(),
               dense_dw = o.new_dw();
    GroupedGemmForward f = o.forward(dense_y);
    GroupedGemmGradInput g = o.grad_input(dense_dx);
    GroupedGemmGradWeight h = o.grad_weight(dense_dw);
    f.segments = g.segments = h.segments = Segments{};
    run(ctx, o, o.forward(y));
    run(ctx, o, o.grad_input(dx));
    run(ctx, o, o.grad_weight(dw));
    run(ctx, o, f);
    run(ctx, o, g);
    run(ctx, o, h);
    EXPECT_TRUE(test::same_bits(y, dense_y));
    EXPECT_TRUE(test::same_bits(dx, dense_dx));
    EXPECT_TRUE(test::same_bits(dw, dense_dw));
  });
}

TEST(GroupedGemm, RunTimeRowCountBoundsADenseProduct) {
  for_each_gemm([](const ExecContext& ctx) {
    const Operands o({DType::f32, DType::f32, DType::f32, {6}, 40, 50, 10, false}, 4, true);
    const std::int64_t count = 3;
    HostMatrix y = o.new_y(), want = o.new_y();
    GroupedGemmForward f = o.forward(y);
    f.segments = Segments{};
    f.rows = {&count, 8, 2};
    run(ctx, o, f);
    reference::grouped_gemm_forward(o.forward(want));
    EXPECT_TRUE(test::same_bits(y, want));
  });
}

// C020: four microbatches into one fp32 gradient: the sum of four single runs, and (one chain) the bits of one batch.
TEST(GroupedGemm, C020MicrobatchesAccumulateIntoTheWeightGradient) {
  for_each_gemm([](const ExecContext& ctx) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(to_string(dtype));
      const Operands all({dtype, DType::bf16, DType::f32, {48}, 40, 70, 0, false}, 20, false);
      HostMatrix dw = all.new_dw(), single = all.new_dw(), one_batch = all.new_dw();
      std::vector<double> sum(40 * 70, 0.0);
      for (std::int64_t micro = 0; micro < 4; ++micro) {
        for (HostMatrix* out : {&dw, &single}) {
          GroupedGemmGradWeight a = all.grad_weight(*out, out == &dw && micro > 0);
          a.dy.data = all.dy.data<char>() + 12 * micro * a.dy.row_stride * dtype_bytes(dtype);
          a.x.data = all.x.data<char>() + 12 * micro * a.x.row_stride * dtype_bytes(dtype);
          a.segments = Segments{};
          a.rows.capacity = 12;
          run(ctx, all, a);
        }
        for (std::int64_t i = 0; i < 40 * 70; ++i)
          sum[static_cast<std::size_t>(i)] += single.at(i / 70, i % 70);
      }
      for (std::int64_t i = 0; i < 40 * 70; ++i) {
        ASSERT_NEAR(dw.at(i / 70, i % 70), sum[static_cast<std::size_t>(i)], 48 * 0x1p-22);
      }
      run(ctx, all, all.grad_weight(one_batch));
      EXPECT_TRUE(test::same_bits(dw, one_batch));
    }
  });
}

// C106: gradients 256 and 1, then 512 times 1; bf16 sums would stop at 256.
TEST(GroupedGemm, C106AccumulationIsInFp32) {
  for_each_gemm([](const ExecContext& ctx) {
    Operands o({DType::bf16, DType::bf16, DType::f32, {1}, 2, 3, 0, false}, 1, true);
    HostMatrix dw = o.new_dw();
    auto add = [&](double value, bool accumulate) {
      for (std::int64_t i = 0; i < 2; ++i) o.dy.set(0, i, value);
      for (std::int64_t i = 0; i < 3; ++i) o.x.set(0, i, 1.0);
      run(ctx, o, o.grad_weight(dw, accumulate));
    };
    add(256.0, false);
    add(1.0, true);
    EXPECT_EQ(dw.at(1, 2), 257.0);
    add(1.0, false);
    for (int i = 1; i < 512; ++i) add(1.0, true);
    EXPECT_EQ(dw.at(0, 0), 512.0);
  });
}

float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

// C104, C105: the epilogue rounds as to_bf16 does on every ISA: to nearest even, subnormals kept, overflow to infinity.
TEST(GroupedGemm, C104C105RoundingOfTheOutput) {
  const std::vector<std::pair<float, std::uint16_t>> cases = {{0x1p-127F, 0x0040},
                                                              {0x1p-133F, 0x0001},
                                                              {1.0F + 0x1p-8F, 0x3f80},
                                                              {1.0F + 3 * 0x1p-8F, 0x3f82},
                                                              {from_bits(0x7f7fffff), 0x7f80},
                                                              {-1.0F - 0x1p-8F, 0xbf80}};
  for_each_gemm([&](const ExecContext& ctx) {
    for (const std::int64_t n : {1, 32, 40}) {
      Operands o({DType::f32, DType::f32, DType::bf16, {2}, n, 1, 0, false}, 1, true);
      for (const auto& [value, want] : cases) {
        for (std::int64_t r = 0; r < 2; ++r) o.x.set(r, 0, 1.0);
        for (std::int64_t j = 0; j < n; ++j) o.w.set(j, 0, value);
        HostMatrix y = o.new_y();
        run(ctx, o, o.forward(y));
        for (std::int64_t j = 0; j < n; ++j)
          EXPECT_EQ(y.view().row<bf16>(1)[j].bits, want) << value << " at " << j;
      }
      for (const float bad : {from_bits(0x7f800001), from_bits(0x7f800000)}) {
        for (std::int64_t j = 0; j < n; ++j) o.w.view().row<float>(j)[0] = bad;
        HostMatrix y = o.new_y();
        run(ctx, o, o.forward(y));
        EXPECT_EQ(std::isnan(y.at(1, n - 1)), std::isnan(bad));
        EXPECT_FALSE(std::isfinite(y.at(1, n - 1)));
      }
    }
  });
}

// A NaN or an infinity in one row must not reach its neighbours through the zeros that fill a tile.
TEST(GroupedGemm, NonFiniteRowsStayAlone) {
  for_each_gemm([](const ExecContext& ctx) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Operands o({dtype, dtype, DType::f32, {3, 3}, 33, 35, 0, false}, 2, true);
      HostMatrix want = o.new_y(), y = o.new_y();
      reference::grouped_gemm_forward(o.forward(want));
      o.x.set(2, 34, INFINITY);
      run(ctx, o, o.forward(y));
      for (const std::int64_t r : {0, 1, 3, 4, 5}) {
        for (std::int64_t j = 0; j < 33; ++j) EXPECT_EQ(y.at(r, j), want.at(r, j)) << r << ", " << j;
      }
    }
  });
}

TEST(GroupedGemm, GradientsAgainstCentralDifferences) {
  Problem p{DType::f32, DType::f32, DType::f32, {2, 0, 3}, 4, 5, 0, false};
  const Operands o(p, 12, false);
  HostMatrix x = test::converted(o.x, DType::f64), w = test::converted(o.w, DType::f64),
             y(DType::f64, o.rows, p.n);
  auto loss = [&] {
    GroupedGemmForward f = o.forward(y);
    f.x = x;
    f.w = w;
    reference::grouped_gemm_forward(f);
    return test::weighted_sum(y, o.dy);
  };
  const HostMatrix dx_want = test::numeric_gradient(x, loss), dw_want = test::numeric_gradient(w, loss);
  for_each_gemm([&](const ExecContext& ctx) {
    HostMatrix dx = o.new_dx(), dw = o.new_dw();
    run(ctx, o, o.grad_input(dx));
    run(ctx, o, o.grad_weight(dw));
    EXPECT_TRUE(test::close(dx, dx_want, {1e-6, 1e-6}));
    EXPECT_TRUE(test::close(dw, dw_want, {1e-6, 1e-6, true}));
  });
}

TEST(GroupedGemm, WrongArgumentsAreRefused) {
  ThreadPool pool(1);
  const ExecContext ctx{&pool, &kernel_table(Isa::avx2)};
  Operands o({DType::f32, DType::f32, DType::f32, {2, 3}, 4, 5, 0, false}, 1, true);
  HostMatrix y = o.new_y(), dw(DType::bf16, 8, 5);
  auto refused = [&](std::initializer_list<std::string_view> pieces, auto change) {
    GroupedGemmForward f = o.forward(y);
    HostMatrix scratch = o.scratch_for(ctx, GemmPass::forward);
    f.workspace = test::workspace(scratch);
    change(f);
    ::planalto::testing::expect_error(ErrorKind::internal, pieces, [&] { grouped_gemm_forward(ctx, f); });
  };
  const std::vector<std::int64_t> descending{0, 3, 2}, late{1, 2, 5}, beyond{0, 2, 6};
  refused({"offset 2 is 2", "below 3"},
          [&](GroupedGemmForward& f) { f.segments.offsets = descending.data(); });
  refused({"first offset is 1"}, [&](GroupedGemmForward& f) { f.segments.offsets = late.data(); });
  refused({"last offset is 6", "5 rows"}, [&](GroupedGemmForward& f) { f.segments.offsets = beyond.data(); });
  refused({"workspace"}, [](GroupedGemmForward& f) { f.workspace.bytes -= 1; });
  refused({"w is 8 x 4"}, [](GroupedGemmForward& f) { f.w.cols = 4; });
  refused({"row stride 4"}, [](GroupedGemmForward& f) { f.x.row_stride = 4; });
  refused({"without offsets"}, [](GroupedGemmForward& f) { f.segments.offsets = nullptr; });
  GroupedGemmGradWeight h = o.grad_weight(dw);
  ::planalto::testing::expect_error(ErrorKind::internal, {"dw is bf16"},
                                    [&] { grouped_gemm_grad_weight(ctx, h); });
}

// Worked out by hand from gemm_geometry.h: E = 3: schedule 7 words, 64 bytes. AVX-512, k = 100: packed A 224 x 100 x 4 + 64
// = 89,664; packed B 32 x 100 x 4 = 12,800; tile 14 x 32 x 4 = 1,792; no strip.
TEST(GroupedGemm, WorkspaceIsAClosedForm) {
  const GroupedGemmDescription d{GemmPass::forward, DType::f32, 1000, 50, 100, 3};
  EXPECT_EQ(grouped_gemm_workspace_bytes(d, Isa::avx512, 1), 64 + 104256);
  EXPECT_EQ(grouped_gemm_workspace_bytes(d, Isa::avx512, 5), 64 + 5 * 104256);
  GroupedGemmDescription more = d;
  std::int64_t last = 0;
  for (more.k = 0; more.k < 6000; more.k += 7) {
    const std::int64_t bytes = grouped_gemm_workspace_bytes(more, Isa::avx512_bf16, 2);
    ASSERT_GE(bytes, last);
    last = bytes;
  }
}

}  // namespace
}  // namespace planalto::kernels
