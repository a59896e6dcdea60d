// SPDX-License-Identifier: Apache-2.0
// permute_test.cpp: the layout of routes and the moves along it, on every ISA and on 1, 2 and 3 threads.
#include "kernels/permute.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/ref/permute.h"
#include "kernels/table.h"
#include "support/expect_error.h"
#include "support/kernel_testing.h"

namespace planalto::test {
namespace {

namespace reference = kernels::reference;
using ::planalto::testing::expect_error;

struct Layout {
  std::int64_t num_experts, top_k;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<std::int64_t> counts, offsets;
  std::vector<std::int32_t> source_row, position;
  std::vector<float> row_weights;

  Layout(std::int64_t experts, std::int64_t k, std::vector<std::int32_t> from)
      : num_experts(experts), top_k(k), ids(std::move(from)), counts(experts, 0), offsets(experts + 1, -1) {
    for (const std::int32_t id : ids) ++counts[id];
    for (std::size_t i = 0; i < ids.size(); ++i) weights.push_back(static_cast<float>(i) + 0.5F);
    source_row.assign(ids.size(), -1);
    position.assign(ids.size(), -1);
    row_weights.assign(ids.size(), std::nanf(""));
  }
  std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()) / top_k; }
  std::int64_t rows() const { return static_cast<std::int64_t>(ids.size()); }
  kernels::RouteLayout arguments() {
    return {.ids = ids.data(),
            .counts = counts.data(),
            .num_experts = num_experts,
            .top_k = top_k,
            .weights = weights.data(),
            .offsets = offsets.data(),
            .source_row = source_row.data(),
            .position = position.data(),
            .row_weights = row_weights.data(),
            .tokens = {.capacity = tokens()}};
  }
  bool operator==(const Layout&) const = default;
};

// K distinct ascending ids a token; `skew` sends most of them to the first experts.
Layout random_layout(Random& random, std::int64_t tokens, std::int64_t num_experts, std::int64_t top_k,
                     bool skew) {
  std::vector<std::int32_t> ids, all(static_cast<std::size_t>(num_experts));
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::iota(all.begin(), all.end(), 0);
    const std::int64_t range = skew && random.below(8) != 0 ? top_k : num_experts;
    for (std::int64_t k = 0; k < top_k; ++k) std::swap(all[k], all[k + random.below(range - k)]);
    std::sort(all.begin(), all.begin() + top_k);
    ids.insert(ids.end(), all.begin(), all.begin() + top_k);
  }
  return {num_experts, top_k, ids};
}

TEST(RouteLayout, SmallByHand) {
  // tokens 0, 1, 2 go to experts {1, 3}, {0, 3}, {1, 2}; nobody goes to expert 4
  Layout l(5, 2, {1, 3, 0, 3, 1, 2});
  for_each_context([&](const ExecContext& ctx) {
    kernels::route_layout(ctx, l.arguments());
    EXPECT_EQ(l.offsets, (std::vector<std::int64_t>{0, 1, 3, 4, 6, 6}));
    EXPECT_EQ(l.source_row, (std::vector<std::int32_t>{1, 0, 2, 2, 0, 1}));
    EXPECT_EQ(l.position, (std::vector<std::int32_t>{1, 4, 0, 5, 2, 3}));
    EXPECT_EQ(l.row_weights, (std::vector<float>{2.5F, 0.5F, 4.5F, 5.5F, 1.5F, 3.5F}));
  });
}

void expect_properties(const Layout& l) {
  EXPECT_EQ(l.offsets.front(), 0);
  EXPECT_EQ(l.offsets.back(), l.rows());
  for (std::int64_t e = 0; e < l.num_experts; ++e) {
    ASSERT_EQ(l.offsets[e + 1] - l.offsets[e], l.counts[e]) << "expert " << e;
    for (std::int64_t r = l.offsets[e] + 1; r < l.offsets[e + 1]; ++r) {
      ASSERT_GE(l.source_row[r], l.source_row[r - 1])
          << "expert " << e << " is not in token order at row " << r;
    }
  }
  std::vector<int> used(l.ids.size(), 0);
  for (std::int64_t i = 0; i < l.rows(); ++i) {
    const std::int64_t row = l.position[i];
    ASSERT_TRUE(row >= 0 && row < l.rows()) << "route " << i;
    ASSERT_EQ(used[row]++, 0) << "two routes share row " << row;
    ASSERT_EQ(l.source_row[row], i / l.top_k) << "route " << i;
    ASSERT_TRUE(row >= l.offsets[l.ids[i]] && row < l.offsets[l.ids[i] + 1]) << "route " << i;
    ASSERT_EQ(l.row_weights[row], l.weights[i]) << "route " << i;
  }
}

TEST(RouteLayout, Properties) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    const std::int64_t num_experts = 1 + random.below(seed % 5 == 0 ? 1024 : 70);
    const std::int64_t top_k = 1 + random.below(std::min<std::int64_t>(num_experts, seed % 7 == 0 ? 64 : 8));
    const std::int64_t tokens = seed % 11 == 0 ? random.below(3) : random.below(seed % 4 == 0 ? 6000 : 300);
    Layout l = random_layout(random, tokens, num_experts, top_k, seed % 3 == 0);
    Layout first = l;
    for_each_context([&](const ExecContext& ctx) {
      Layout got = l;
      kernels::route_layout(ctx, got.arguments());
      expect_properties(got);
      if (first.offsets[0] < 0) first = got;
      EXPECT_TRUE(got == first);
    });
    if (l.rows() * num_experts < 100000) {
      reference::route_layout(l.arguments());
      EXPECT_TRUE(l == first);
    }
  }
}

TEST(RouteLayout, AllTokensToOneExpertAndOneRouteEach) {
  for_each_context([&](const ExecContext& ctx) {
    Layout one(8, 1, std::vector<std::int32_t>(5000, 6));
    kernels::route_layout(ctx, one.arguments());
    expect_properties(one);
    Layout every(4, 4, {0, 1, 2, 3, 0, 1, 2, 3});
    kernels::route_layout(ctx, every.arguments());
    EXPECT_EQ(every.source_row, (std::vector<std::int32_t>{0, 1, 0, 1, 0, 1, 0, 1}));
  });
}

TEST(RouteLayout, C010IdsThatAreNoExpertAreRefusedWithTheirValue) {
  for_each_context([&](const ExecContext& ctx) {
    for (const std::int32_t bad : {8, -1, std::numeric_limits<std::int32_t>::max()}) {
      Layout l(8, 2, std::vector<std::int32_t>(4000, 1));
      l.ids[3001] = bad;
      expect_error(ErrorKind::data, {"route_layout", "token 1500", "slot 1", std::to_string(bad), "0 to 7"},
                   [&] { kernels::route_layout(ctx, l.arguments()); });
      EXPECT_EQ(l.position[0], -1);
    }
  });
}

TEST(RouteLayout, CountsOfOtherIdsAreRefused) {
  for_each_context([&](const ExecContext& ctx) {
    Layout l(3, 1, {0, 1, 2, 2});
    l.counts = {1, 2, 1};
    expect_error(ErrorKind::internal, {"counts[1] is 2", "1 routes"},
                 [&] { kernels::route_layout(ctx, l.arguments()); });
  });
}

struct MoveCase {
  DType from, to;
  std::int64_t cols, from_stride, to_stride;
};
std::vector<MoveCase> move_cases() {
  std::vector<MoveCase> cases;
  for (const DType from : {DType::f32, DType::bf16}) {
    for (const DType to : {DType::f32, DType::bf16}) {
      for (const std::int64_t cols : {1, 15, 16, 17, 64, 150})
        cases.push_back({from, to, cols, cols + 3, cols + (cols % 2)});
    }
  }
  return cases;
}

TEST(GatherRows, CopiesBitsOfTheRowsThatAreAskedFor) {
  const std::vector<std::int32_t> source = {4, 0, 4, 2, 1, 3, 3, 0, 4};
  for (const MoveCase& c : move_cases()) {
    if (c.from != c.to) continue;
    HostMatrix x(c.from, 5, c.cols, c.from_stride);
    fill_random(x, 9);
    x.set(2, 0, std::nan(""));
    for_each_context([&](const ExecContext& ctx) {
      HostMatrix got(c.to, 9, c.cols, c.to_stride), want(c.to, 9, c.cols, c.to_stride);
      const std::int64_t rows = 7;
      const RowCount count{.count = &rows, .capacity = 9};
      kernels::gather_rows(ctx, {.x = x, .source_row = source.data(), .rows = got, .num_rows = count});
      reference::gather_rows({.x = x, .source_row = source.data(), .rows = want, .num_rows = count});
      EXPECT_TRUE(same_bits(got, want));
      EXPECT_TRUE(untouched(got, 7));
    });
  }
}

TEST(CombineRows, GatherThenCombineGivesKTimesX) {
  std::uint64_t seed = 40;
  for (const MoveCase& c : move_cases()) {
    Random random(++seed);
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const std::int64_t top_k = 1 + random.below(8), tokens = 1 + random.below(60);
    Layout l = random_layout(random, tokens, 9, top_k, false);
    HostMatrix x(c.from, tokens, c.cols, c.from_stride);
    fill_integers(x, seed);
    HostMatrix want(c.to, tokens, c.cols), twice(c.to, tokens, c.cols);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t j = 0; j < c.cols; ++j) {
        want.set(t, j, static_cast<double>(top_k) * x.at(t, j));
        twice.set(t, j, 2.0 * static_cast<double>(top_k) * x.at(t, j));
      }
    }
    for_each_context([&](const ExecContext& ctx) {
      kernels::route_layout(ctx, l.arguments());
      HostMatrix rows(c.from, l.rows() + 2, c.cols, c.from_stride), y(c.to, tokens, c.cols, c.to_stride);
      kernels::gather_rows(ctx, {.x = x,
                                 .source_row = l.source_row.data(),
                                 .rows = rows,
                                 .num_rows = {.capacity = tokens, .multiplier = top_k}});
      kernels::CombineRows a{.rows = rows,
                             .position = l.position.data(),
                             .top_k = top_k,
                             .y = y,
                             .tokens = {.capacity = tokens}};
      kernels::combine_rows(ctx, a);
      EXPECT_TRUE(close(y, want));
      a.accumulate = true;
      kernels::combine_rows(ctx, a);
      EXPECT_TRUE(close(y, twice));
    });
  }
}

TEST(CombineRows, AgreesWithTheReferenceAndKeepsItsBits) {
  std::uint64_t seed = 70;
  for (const MoveCase& c : move_cases()) {
    Random random(++seed);
    const std::int64_t top_k = 1 + random.below(12), tokens = 21;
    Layout l = random_layout(random, tokens, 16, top_k, false);
    reference::route_layout(l.arguments());
    HostMatrix rows(c.from, l.rows(), c.cols, c.from_stride), start(c.to, tokens, c.cols, c.to_stride);
    fill_random(rows, seed);
    fill_random(start, seed + 1);
    for (const bool accumulate : {false, true}) {
      HostMatrix want = start, first = start;
      kernels::CombineRows a{.rows = rows,
                             .position = l.position.data(),
                             .top_k = top_k,
                             .y = want,
                             .accumulate = accumulate,
                             .tokens = {.capacity = tokens}};
      reference::combine_rows(a);
      bool have_first = false;
      for_each_context([&](const ExecContext& ctx) {
        HostMatrix got = start;
        a.y = got;
        kernels::combine_rows(ctx, a);
        EXPECT_TRUE(close(got, want, bound_for(c.to, top_k + 1))) << "seed " << seed;
        if (!have_first) first = got;
        have_first = true;
        EXPECT_TRUE(same_bits(got, first));
      });
    }
  }
}

TEST(CombineRows, TheSumRunsInSlotOrderAndAddsYLast) {
  // 1e8 and -1e8 cancel in slot order; any other order loses a 3
  HostMatrix rows(DType::f32, 3, 40), y(DType::f32, 1, 40);
  for (std::int64_t j = 0; j < 40; ++j) {
    rows.set(0, j, -1e8);
    rows.set(1, j, 3.0);
    rows.set(2, j, 1e8);
    y.set(0, j, 1.0);
  }
  const std::vector<std::int32_t> position = {2, 0, 1};
  for_each_context([&](const ExecContext& ctx) {
    HostMatrix got = y;
    kernels::combine_rows(ctx, {.rows = rows,
                                .position = position.data(),
                                .top_k = 3,
                                .y = got,
                                .accumulate = true,
                                .tokens = {.capacity = 1}});
    for (std::int64_t j = 0; j < 40; ++j) ASSERT_EQ(got.at(0, j), 4.0) << j;
  });
}

TEST(ScatterRows, WritesOrAddsToItsTargetsAlone) {
  const std::vector<std::int32_t> target = {5, 0, 3};
  for (const MoveCase& c : move_cases()) {
    HostMatrix rows(c.from, 4, c.cols, c.from_stride), start(c.to, 6, c.cols, c.to_stride);
    fill_integers(rows, 3);
    fill_integers(start, 4);
    for (const bool accumulate : {false, true}) {
      HostMatrix want = start;
      kernels::ScatterRows a{.rows = rows,
                             .target_row = target.data(),
                             .y = want,
                             .accumulate = accumulate,
                             .num_rows = {.capacity = 3}};
      for (std::int64_t r = 0; r < 3; ++r) {
        for (std::int64_t j = 0; j < c.cols; ++j)
          want.set(target[r], j, rows.at(r, j) + (accumulate ? start.at(target[r], j) : 0.0));
      }
      HostMatrix other = start;
      a.y = other;
      reference::scatter_rows(a);
      EXPECT_TRUE(close(other, want));
      for_each_context([&](const ExecContext& ctx) {
        HostMatrix got = start;
        a.y = got;
        kernels::scatter_rows(ctx, a);
        EXPECT_TRUE(close(got, want));
      });
    }
  }
}

TEST(UnsortRouteValues, ReturnsWhatTheLayoutSorted) {
  Random random(12);
  Layout l = random_layout(random, 900, 20, 3, true);
  for_each_context([&](const ExecContext& ctx) {
    kernels::route_layout(ctx, l.arguments());
    std::vector<float> values(l.weights.size(), 0.0F);
    kernels::unsort_route_values(ctx, {.sorted = l.row_weights.data(),
                                       .position = l.position.data(),
                                       .top_k = 3,
                                       .values = values.data(),
                                       .tokens = {.capacity = 900}});
    EXPECT_EQ(values, l.weights);
  });
}

TEST(PermuteMoves, WrongShapesAreRefused) {
  ThreadPool pool(1);
  const ExecContext ctx{&pool, &kernels::kernel_table(kernels::available_isas().front())};
  HostMatrix x(DType::f32, 2, 8), narrow(DType::f32, 2, 7), half(DType::bf16, 2, 8);
  const std::vector<std::int32_t> rows = {0, 1, 0};
  expect_error(ErrorKind::internal, {"8 columns", "7"}, [&] {
    kernels::gather_rows(ctx,
                         {.x = x, .source_row = rows.data(), .rows = narrow, .num_rows = {.capacity = 2}});
  });
  expect_error(ErrorKind::internal, {"f32", "bf16"}, [&] {
    kernels::gather_rows(ctx, {.x = x, .source_row = rows.data(), .rows = half, .num_rows = {.capacity = 2}});
  });
  expect_error(ErrorKind::internal, {"3 rows", "0 to 2"}, [&] {
    kernels::scatter_rows(ctx, {.rows = x, .target_row = rows.data(), .y = x, .num_rows = {.capacity = 3}});
  });
}

// Address space without memory behind it but where it is written.
struct SparseRows {
  std::int64_t rows, cols;
  std::size_t bytes;
  void* data;
  SparseRows(std::int64_t r, std::int64_t c)
      : rows(r),
        cols(c),
        bytes(static_cast<std::size_t>(r * c * 2)),
        data(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                    0)) {}
  ~SparseRows() { ::munmap(data, bytes); }
  SparseRows(const SparseRows&) = delete;
  SparseRows& operator=(const SparseRows&) = delete;
  Matrix view() const { return {data, DType::bf16, rows, cols, cols}; }
};

TEST(PermuteMoves, C018ActivationsOver2To31Elements) {
  const std::int64_t cols = 7168, last = 299999;
  SparseRows big(last + 1, cols);
  ASSERT_NE(big.data, MAP_FAILED);
  HostMatrix x(DType::bf16, 1, cols);
  fill_integers(x, 8, 1, 3);
  std::copy_n(x.data<bf16>(), cols, big.view().row<bf16>(last));
  const std::vector<std::int32_t> row = {static_cast<std::int32_t>(last)};
  for_each_context([&](const ExecContext& ctx) {
    HostMatrix gathered(DType::bf16, 1, cols), combined(DType::bf16, 1, cols), twice(DType::bf16, 1, cols),
        back(DType::bf16, 1, cols);
    kernels::gather_rows(
        ctx, {.x = big.view(), .source_row = row.data(), .rows = gathered, .num_rows = {.capacity = 1}});
    EXPECT_TRUE(same_bits(gathered, x));
    kernels::combine_rows(
        ctx,
        {.rows = big.view(), .position = row.data(), .top_k = 1, .y = combined, .tokens = {.capacity = 1}});
    EXPECT_TRUE(same_bits(combined, x));
    kernels::scatter_rows(
        ctx, {.rows = x, .target_row = row.data(), .y = big.view(), .num_rows = {.capacity = 1}});
    for (std::int64_t j = 0; j < cols; ++j) twice.set(0, j, 2.0 * x.at(0, j));
    kernels::gather_rows(
        ctx, {.x = big.view(), .source_row = row.data(), .rows = back, .num_rows = {.capacity = 1}});
    EXPECT_TRUE(same_bits(back, twice));
    kernels::scatter_rows(ctx, {.rows = x,
                                .target_row = row.data(),
                                .y = big.view(),
                                .accumulate = false,
                                .num_rows = {.capacity = 1}});
  });
}

}  // namespace
}  // namespace planalto::test
