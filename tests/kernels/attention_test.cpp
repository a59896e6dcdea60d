// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "kernels/ref/attention.h"
#include "kernels/table.h"
#include "support/kernel_testing.h"

namespace planalto::kernels {
namespace {

using test::Bound;
using test::HostMatrix;

// Lengths of documents: queries and keys. Equal in training and prefill; one query against many keys in
// decode.
struct Lengths {
  std::int64_t q, kv;
};
struct Sizes {
  const char* name;
  std::int64_t heads, kv_heads, qk_dim, v_dim;
  std::vector<Lengths> documents;
  std::int64_t window = 0;
  bool sinks = false;
};

// All buffers of one problem. Three rows more than the documents own are there, poisoned; rows are strided.
struct Problem {
  AttentionShape shape;
  std::vector<std::int32_t> q_offsets{0}, kv_offsets{0};
  HostMatrix q, k, v, out, lse, dout, dq, dk, dv, sinks, dsinks;
  bool with_sinks;

  static std::int64_t rows(const Sizes& s, bool kv) {
    std::int64_t n = 3;
    for (const Lengths& d : s.documents) n += kv ? d.kv : d.q;
    return n;
  }
  static HostMatrix matrix(DType dtype, std::int64_t rows, std::int64_t heads, std::int64_t dim) {
    return {dtype, rows, heads * dim, heads * dim + 5};
  }
  static void fill(HostMatrix& m, std::int64_t rows, std::uint64_t seed) {
    test::Random random(seed);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < m.cols(); ++c) m.set(r, c, random.uniform(-1.0, 1.0));
    }
  }

  Problem(const Sizes& s, DType dtype, std::uint64_t seed = 1)
      : q(matrix(dtype, rows(s, false), s.heads, s.qk_dim)),
        k(matrix(dtype, rows(s, true), s.kv_heads, s.qk_dim)),
        v(matrix(dtype, rows(s, true), s.kv_heads, s.v_dim)),
        out(matrix(dtype, rows(s, false), s.heads, s.v_dim)),
        lse(DType::f32, rows(s, false), s.heads),
        dout(out),
        dq(q),
        dk(k),
        dv(v),
        sinks(DType::f32, 1, s.heads),
        dsinks(DType::f32, 1, s.heads),
        with_sinks(s.sinks) {
    for (const Lengths& d : s.documents) {
      q_offsets.push_back(q_offsets.back() + static_cast<std::int32_t>(d.q));
      kv_offsets.push_back(kv_offsets.back() + static_cast<std::int32_t>(d.kv));
    }
    shape = {.dtype = dtype,
             .num_heads = s.heads,
             .num_kv_heads = s.kv_heads,
             .qk_dim = s.qk_dim,
             .v_dim = s.v_dim,
             .scale = 1.0 / std::sqrt(static_cast<double>(s.qk_dim)),
             .window = s.window,
             .max_q_rows = q.rows(),
             .max_kv_rows = k.rows()};
    fill(q, q_rows(), seed);
    fill(k, kv_rows(), seed + 1);
    fill(v, kv_rows(), seed + 2);
    fill(dout, q_rows(), seed + 3);
    fill(sinks, 1, seed + 4);
    fill_zero(dsinks);
  }

  std::int64_t q_rows() const { return q_offsets.back(); }
  std::int64_t kv_rows() const { return kv_offsets.back(); }
  HeadsView heads(HostMatrix& m, std::int64_t dim) const {
    return {m.data<void>(), m.view().row_stride, dim};
  }
  Documents documents() const {
    return {
        q_offsets.data(), kv_offsets.data(), {.capacity = static_cast<std::int64_t>(q_offsets.size()) - 1}};
  }
  AttentionForward forward() {
    return {.shape = shape,
            .q = heads(q, shape.qk_dim),
            .k = heads(k, shape.qk_dim),
            .v = heads(v, shape.v_dim),
            .sinks = with_sinks ? sinks.data<float>() : nullptr,
            .out = heads(out, shape.v_dim),
            .lse = lse.data<float>(),
            .documents = documents(),
            .workspace = {}};
  }
  AttentionBackward backward() {
    return {.shape = shape,
            .q = heads(q, shape.qk_dim),
            .k = heads(k, shape.qk_dim),
            .v = heads(v, shape.v_dim),
            .out = heads(out, shape.v_dim),
            .lse = lse.data<float>(),
            .sinks = with_sinks ? sinks.data<float>() : nullptr,
            .dout = heads(dout, shape.v_dim),
            .dq = heads(dq, shape.qk_dim),
            .dk = heads(dk, shape.qk_dim),
            .dv = heads(dv, shape.v_dim),
            .dsinks = with_sinks ? dsinks.data<float>() : nullptr,
            .documents = documents(),
            .workspace = {}};
  }
  void run_forward(const ExecContext& ctx) {
    HostMatrix scratch =
        test::scratch(attention_forward_workspace_bytes(shape, ctx.kernels->isa, ctx.pool->num_threads()));
    AttentionForward a = forward();
    a.workspace = test::workspace(scratch);
    attention_forward(ctx, a);
  }
  void run_backward(const ExecContext& ctx) {
    HostMatrix scratch =
        test::scratch(attention_backward_workspace_bytes(shape, ctx.kernels->isa, ctx.pool->num_threads()));
    AttentionBackward a = backward();
    a.workspace = test::workspace(scratch);
    attention_backward(ctx, a);
  }
};

Problem reference_of(const Sizes& sizes, DType dtype) {
  Problem p(sizes, dtype);
  reference::attention_forward(p.forward());
  reference::attention_backward(p.backward());
  return p;
}

void expect_close(const Problem& got, const Problem& want) {
  const bool f32 = got.shape.dtype == DType::f32;
  const std::int64_t group = want.shape.num_heads / want.shape.num_kv_heads;
  const double rows = static_cast<double>(want.q_rows() * group);
  // bf16: delta is taken from the rounded out, an error of about 2^-9 |out| |dout| sqrt(Dv) in front of each
  // probability.
  const Bound out = f32 ? Bound{2e-6, 2e-6, true} : Bound{1e-5, 0x1p-7, true};
  const Bound dq = f32 ? Bound{4e-6, 4e-6, true} : Bound{4e-3, 0x1p-7, true};
  const Bound dkv =
      f32 ? Bound{1e-6 * std::sqrt(rows), 4e-6, true} : Bound{2e-3 * std::sqrt(rows), 0x1p-7, true};
  EXPECT_TRUE(close(got.out, want.out, out, want.q_rows()));
  EXPECT_TRUE(close(got.lse, want.lse, {2e-6, 2e-6, true}, want.q_rows()));
  EXPECT_TRUE(close(got.dq, want.dq, dq, want.q_rows()));
  EXPECT_TRUE(close(got.dk, want.dk, dkv, want.kv_rows()));
  EXPECT_TRUE(close(got.dv, want.dv, dkv, want.kv_rows()));
  if (got.with_sinks) {
    EXPECT_TRUE(close(got.dsinks, want.dsinks, {f32 ? 1e-5 : 2e-2, 1e-5, true}));
  }
  EXPECT_TRUE(untouched(got.out, got.q_rows()));
  EXPECT_TRUE(untouched(got.lse, got.q_rows()));
  EXPECT_TRUE(untouched(got.dq, got.q_rows()));
  EXPECT_TRUE(untouched(got.dk, got.kv_rows()));
  EXPECT_TRUE(untouched(got.dv, got.kv_rows()));
}

const std::vector<Sizes> kSizes = {
    {"one token", 1, 1, 4, 4, {{1, 1}}},
    {"grouped heads, ragged", 8, 2, 64, 64, {{1, 1}, {0, 0}, {70, 70}, {3, 3}, {128, 128}}},
    {"odd sizes", 3, 3, 12, 7, {{5, 5}, {67, 67}}},
    {"one long document, one head", 1, 1, 24, 20, {{300, 300}}},
    {"mla", 3, 3, 192, 128, {{33, 33}, {80, 80}}},
    {"window", 4, 2, 16, 16, {{150, 150}, {20, 20}}, 17},
    {"window of one", 2, 1, 16, 16, {{70, 70}}, 1},
    {"sinks", 4, 2, 16, 16, {{90, 90}, {2, 2}}, 0, true},
    {"sinks and window", 4, 1, 16, 16, {{90, 90}}, 40, true},
    {"prefill after a cache", 6, 2, 32, 32, {{10, 200}, {130, 140}, {0, 9}}},
    {"decode", 16, 4, 32, 32, {{1, 65}, {1, 1}, {1, 130}}},
    {"fewer keys than queries", 2, 1, 8, 8, {{9, 4}, {3, 0}, {70, 2}}},
    {"more keys than one pass accumulates", 2, 1, 8, 8, {{20, 4200}}},
};

TEST(Attention, MatchesTheReferenceOnEveryIsaAndThreadCount) {
  for (const Sizes& sizes : kSizes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(std::string(sizes.name) + ", " + to_string(dtype));
      const Problem want = reference_of(sizes, dtype);
      test::for_each_context([&](const ExecContext& ctx) {
        Problem got(sizes, dtype);
        got.run_forward(ctx);
        got.run_backward(ctx);
        expect_close(got, want);
      });
    }
  }
}

TEST(Attention, BitsDoNotDependOnThreads) {
  for (const Sizes& sizes : kSizes) {
    for (const Isa isa : available_isas()) {
      SCOPED_TRACE(std::string(sizes.name) + ", " + to_string(isa));
      std::vector<Problem> runs;
      for (const int threads : {1, 2, 3, 7}) {
        ThreadPool pool(threads);
        const ExecContext ctx{&pool, &kernel_table(isa)};
        Problem& p = runs.emplace_back(sizes, DType::f32);
        p.run_forward(ctx);
        p.run_backward(ctx);
        EXPECT_TRUE(same_bits(p.out, runs[0].out)) << threads;
        EXPECT_TRUE(same_bits(p.lse, runs[0].lse)) << threads;
        EXPECT_TRUE(same_bits(p.dq, runs[0].dq)) << threads;
        EXPECT_TRUE(same_bits(p.dk, runs[0].dk)) << threads;
        EXPECT_TRUE(same_bits(p.dv, runs[0].dv)) << threads;
        EXPECT_TRUE(same_bits(p.dsinks, runs[0].dsinks)) << threads;
      }
    }
  }
}

// Equal scores: a row is the mean of the values it sees, by hand.
TEST(Attention, EqualScoresGiveTheMeanOfTheKeysSeen) {
  test::for_each_context([](const ExecContext& ctx) {
    Problem p({"", 2, 1, 4, 2, {{4, 4}}}, DType::f32);
    fill_zero(p.q);
    const double values[4][2] = {{8, 1}, {4, 3}, {0, -4}, {-4, 8}};
    for (int r = 0; r < 4; ++r) p.v.set(r, 0, values[r][0]), p.v.set(r, 1, values[r][1]);
    p.run_forward(ctx);
    const double means[4][2] = {{8, 1}, {6, 2}, {4, 0}, {2, 2}};
    for (int r = 0; r < 4; ++r) {
      for (int c = 0; c < 4; ++c) EXPECT_NEAR(p.out.at(r, c), means[r][c % 2], 1e-6);
      EXPECT_NEAR(p.lse.at(r, 0), std::log(r + 1.0), 1e-6);
    }
  });
}

// A sink of logit 0 beside one key of score 0 takes half: out = v / 2, lse = log 2, and by hand
// dsink = -P_sink (P_key dout.v) = -1/4 dout.v.
TEST(Attention, ASinkTakesItsShare) {
  test::for_each_context([](const ExecContext& ctx) {
    Problem p({"", 1, 1, 4, 2, {{1, 1}}, 0, true}, DType::f32);
    fill_zero(p.q);
    fill_zero(p.sinks);
    p.v.set(0, 0, 3.0), p.v.set(0, 1, -5.0);
    p.dout.set(0, 0, 2.0), p.dout.set(0, 1, 4.0);
    p.run_forward(ctx);
    p.run_backward(ctx);
    EXPECT_NEAR(p.out.at(0, 0), 1.5, 1e-6);
    EXPECT_NEAR(p.out.at(0, 1), -2.5, 1e-6);
    EXPECT_NEAR(p.lse.at(0, 0), std::log(2.0), 1e-6);
    EXPECT_NEAR(p.dv.at(0, 0), 1.0, 1e-6);
    EXPECT_NEAR(p.dsinks.at(0, 0), 3.5, 1e-5);
  });
}

TEST(Attention, GradientIsThatOfCentralDifferences) {
  const Sizes sizes{"", 4, 2, 5, 3, {{6, 6}, {1, 1}, {3, 7}}, 4, true};
  Problem f64(sizes, DType::f64);
  const auto loss = [&] {
    reference::attention_forward(f64.forward());
    double sum = 0.0;
    for (std::int64_t r = 0; r < f64.q_rows(); ++r) {
      for (std::int64_t c = 0; c < f64.out.cols(); ++c) sum += f64.out.at(r, c) * f64.dout.at(r, c);
    }
    return sum;
  };
  const auto numeric = [&](HostMatrix& x, std::int64_t rows) {
    HostMatrix gradient(DType::f64, x.rows(), x.cols());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < x.cols(); ++c) {
        const double value = x.at(r, c), step = x.dtype() == DType::f32 ? 0x1p-12 : 1e-5;
        x.set(r, c, value + step);
        const double above = loss(), high = x.at(r, c);
        x.set(r, c, value - step);
        const double below = loss(), low = x.at(r, c);
        x.set(r, c, value);
        gradient.set(r, c, (above - below) / (high - low));
      }
    }
    return gradient;
  };
  const HostMatrix dq = numeric(f64.q, f64.q_rows()), dk = numeric(f64.k, f64.kv_rows());
  const HostMatrix dv = numeric(f64.v, f64.kv_rows()), dsinks = numeric(f64.sinks, 1);
  loss();
  reference::attention_backward(f64.backward());
  EXPECT_TRUE(close(f64.dq, dq, {1e-9, 1e-7, true}, f64.q_rows()));
  EXPECT_TRUE(close(f64.dk, dk, {1e-9, 1e-7, true}, f64.kv_rows()));
  EXPECT_TRUE(close(f64.dv, dv, {1e-9, 1e-7}, f64.kv_rows()));
  EXPECT_TRUE(close(f64.dsinks, dsinks, {1e-6, 1e-6}));
  test::for_each_context([&](const ExecContext& ctx) {
    Problem p(sizes, DType::f32);
    p.run_forward(ctx);
    p.run_backward(ctx);
    EXPECT_TRUE(close(p.dq, dq, {1e-6, 1e-5, true}, p.q_rows()));
    EXPECT_TRUE(close(p.dk, dk, {1e-6, 1e-5, true}, p.kv_rows()));
    EXPECT_TRUE(close(p.dv, dv, {1e-6, 1e-5}, p.kv_rows()));
    EXPECT_TRUE(close(p.dsinks, dsinks, {1e-6, 1e-5}));
  });
}

// Token by token against a cache = the whole document at once, bit for bit.
TEST(Attention, DecodeGivesTheBitsOfPrefill) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t window : {0, 50}) {
      test::for_each_context([&](const ExecContext& ctx) {
        constexpr std::int64_t kTokens = 140;
        Problem whole({"", 6, 2, 20, 12, {{kTokens, kTokens}}, window}, dtype);
        whole.run_forward(ctx);
        Problem step = whole;
        step.out.poison();
        step.lse.poison();
        HostMatrix scratch = test::scratch(
            attention_forward_workspace_bytes(whole.shape, ctx.kernels->isa, ctx.pool->num_threads()));
        for (std::int64_t t = 0; t < kTokens; ++t) {
          AttentionForward a = step.forward();
          a.workspace = test::workspace(scratch);
          const std::int32_t q_offsets[2] = {static_cast<std::int32_t>(t), static_cast<std::int32_t>(t + 1)};
          const std::int32_t kv_offsets[2] = {0, static_cast<std::int32_t>(t + 1)};
          a.documents = {q_offsets, kv_offsets, {.capacity = 1}};
          attention_forward(ctx, a);
        }
        EXPECT_TRUE(same_bits(step.out, whole.out));
        EXPECT_TRUE(same_bits(step.lse, whole.lse));
      });
    }
  }
}

// Absorbed MLA: one key head of width 40 whose first 24 elements are the value.
TEST(Attention, ValueMayLieInsideTheRowsOfTheKey) {
  const Sizes sizes{"", 16, 1, 40, 24, {{1, 100}, {2, 30}}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Problem apart(sizes, dtype);
    for (std::int64_t r = 0; r < apart.kv_rows(); ++r) {
      for (std::int64_t c = 0; c < 24; ++c) apart.v.set(r, c, apart.k.at(r, c));
    }
    reference::attention_forward(apart.forward());
    test::for_each_context([&](const ExecContext& ctx) {
      Problem inside(sizes, dtype);
      HostMatrix scratch = test::scratch(
          attention_forward_workspace_bytes(inside.shape, ctx.kernels->isa, ctx.pool->num_threads()));
      AttentionForward a = inside.forward();
      a.v = a.k;
      a.workspace = test::workspace(scratch);
      attention_forward(ctx, a);
      EXPECT_TRUE(close(inside.out, apart.out, test::bound_for(dtype, 128), inside.q_rows()));
    });
  }
}

TEST(Attention, LargeScoresStayFinite) {
  const Sizes sizes{"", 2, 1, 16, 16, {{100, 100}}};
  Problem want(sizes, DType::f32);
  want.shape.scale = 3000.0;
  reference::attention_forward(want.forward());
  test::for_each_context([&](const ExecContext& ctx) {
    Problem got(sizes, DType::f32);
    got.shape.scale = 3000.0;
    got.run_forward(ctx);
    got.run_backward(ctx);
    // An fp32 score of 20,000 is known to 1e-3: probabilities near a tie move by as much.
    EXPECT_TRUE(close(got.out, want.out, {2e-2, 1e-6}, got.q_rows()));
    for (std::int64_t r = 0; r < got.q_rows(); ++r) {
      for (std::int64_t c = 0; c < got.dq.cols(); ++c) EXPECT_TRUE(std::isfinite(got.dq.at(r, c)));
    }
  });
}

// Rows that see no key: documents with fewer keys than queries (padding only: no key at all), and a document
// of length 0.
TEST(Attention, C061EveryKeyMasked) {
  const Sizes sizes{"", 4, 2, 8, 8, {{3, 0}, {0, 0}, {6, 4}, {5, 5}, {0, 3}}, 2};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    test::for_each_context([&](const ExecContext& ctx) {
      Problem p(sizes, dtype);
      p.run_forward(ctx);
      p.run_backward(ctx);
      for (const std::int64_t row :
           {0, 1, 2, 3, 4}) {  // the first document, and the first two rows of the third
        for (std::int64_t c = 0; c < p.out.cols(); ++c) EXPECT_EQ(p.out.at(row, c), 0.0);
        for (std::int64_t c = 0; c < p.dq.cols(); ++c) EXPECT_EQ(p.dq.at(row, c), 0.0);
        for (std::int64_t h = 0; h < 4; ++h)
          EXPECT_EQ(p.lse.at(row, h), -std::numeric_limits<double>::infinity());
      }
      for (std::int64_t key = 9; key < 12; ++key) {  // the last document: keys that no query sees
        for (std::int64_t c = 0; c < p.dk.cols(); ++c) EXPECT_EQ(p.dk.at(key, c), 0.0);
        for (std::int64_t c = 0; c < p.dv.cols(); ++c) EXPECT_EQ(p.dv.at(key, c), 0.0);
      }
      for (std::int64_t row = 5; row < 14; ++row) EXPECT_TRUE(std::isfinite(p.lse.at(row, 0)));
      // The fourth document alone: the same bits.
      Problem alone({"", 4, 2, 8, 8, {{5, 5}}, 2}, dtype);
      for (std::int64_t r = 0; r < 5; ++r) {
        for (std::int64_t c = 0; c < p.q.cols(); ++c) alone.q.set(r, c, p.q.at(9 + r, c));
        for (std::int64_t c = 0; c < p.k.cols(); ++c) alone.k.set(r, c, p.k.at(4 + r, c));
        for (std::int64_t c = 0; c < p.v.cols(); ++c) alone.v.set(r, c, p.v.at(4 + r, c));
      }
      alone.run_forward(ctx);
      for (std::int64_t r = 0; r < 5; ++r) {
        for (std::int64_t c = 0; c < p.out.cols(); ++c) EXPECT_EQ(alone.out.at(r, c), p.out.at(9 + r, c));
      }
    });
  }
}

TEST(Attention, C062PackedDocumentsDoNotLeak) {
  const Sizes sizes{"", 4, 2, 16, 16, {{3, 3}, {5, 5}, {1, 1}}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    test::for_each_context([&](const ExecContext& ctx) {
      Problem before(sizes, dtype);
      before.run_forward(ctx);
      before.run_backward(ctx);
      Problem after(sizes, dtype);
      for (std::int64_t c = 0; c < after.k.cols(); ++c) after.k.set(1, c, 100.0), after.v.set(1, c, -50.0);
      after.run_forward(ctx);
      after.run_backward(ctx);
      EXPECT_NE(before.out.at(2, 0), after.out.at(2, 0));  // the document itself does change
      for (std::int64_t r = 3; r < 9; ++r) {
        for (std::int64_t c = 0; c < before.out.cols(); ++c)
          EXPECT_EQ(before.out.at(r, c), after.out.at(r, c));
        for (std::int64_t c = 0; c < before.dq.cols(); ++c) EXPECT_EQ(before.dq.at(r, c), after.dq.at(r, c));
        for (std::int64_t c = 0; c < before.dk.cols(); ++c) EXPECT_EQ(before.dk.at(r, c), after.dk.at(r, c));
        for (std::int64_t c = 0; c < before.dv.cols(); ++c) EXPECT_EQ(before.dv.at(r, c), after.dv.at(r, c));
      }
    });
  }
}

TEST(Attention, NoDocumentsIsNoWork) {
  test::for_each_context([](const ExecContext& ctx) {
    Problem p({"", 2, 1, 8, 8, {}}, DType::f32);
    p.run_forward(ctx);
    p.run_backward(ctx);
    EXPECT_TRUE(untouched(p.out));
    EXPECT_TRUE(untouched(p.dk));
  });
}

TEST(Attention, WrongArgumentsAreNamed) {
  ThreadPool pool(1);
  const ExecContext ctx{&pool, &kernel_table(available_isas().front())};
  Problem p({"", 3, 1, 8, 8, {{4, 4}}}, DType::f32);
  p.shape.num_kv_heads = 2;
  EXPECT_THROW(p.run_forward(ctx), Error);
  p.shape.num_kv_heads = 1;
  p.q_offsets = {0, 9};
  EXPECT_THROW(p.run_forward(ctx), Error);
  p.q_offsets = {0, 4};
  AttentionForward a = p.forward();  // no workspace
  EXPECT_THROW(attention_forward(ctx, a), Error);
  p.run_forward(ctx);
}

// Scratch is bounded however long the documents are.
TEST(Attention, WorkspaceDoesNotGrowWithTheSquareOfTheLength) {
  AttentionShape s{.num_heads = 8,
                   .num_kv_heads = 2,
                   .qk_dim = 64,
                   .v_dim = 64,
                   .max_q_rows = 1 << 20,
                   .max_kv_rows = 1 << 20};
  EXPECT_EQ(attention_forward_workspace_bytes(s, Isa::avx512, 1),
            4 * (16 + 64 * (2 * 64 + 64 + 64) + 64 * 128));
  EXPECT_LT(attention_backward_workspace_bytes(s, Isa::avx512, 1), 3 << 20);
  EXPECT_EQ(attention_backward_workspace_bytes(s, Isa::avx512, 4),
            4 * attention_backward_workspace_bytes(s, Isa::avx512, 1));
}

}  // namespace
}  // namespace planalto::kernels
