// SPDX-License-Identifier: Apache-2.0
#include "kernels/loss_head.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "kernels/packed_weight.h"
#include "kernels/ref/loss_head.h"
#include "kernels/table.h"
#include "support/kernel_testing.h"

namespace planalto::kernels {
namespace {

using test::Bound;
using test::HostMatrix;

struct Sizes {
  std::int64_t tokens, d, vocab, tile_rows;
};

// All buffers of one problem. Two rows more than there are tokens are there, poisoned; rows are strided.
struct Problem {
  HostMatrix x, w, dx, dw, row_loss;
  std::vector<std::int32_t> labels;
  double loss_sum = 0.0;
  float grad_scale = 0.25F;
  std::int64_t tokens, tile_rows;
  bool gradients = true, accumulate = false;
  const void* packed_forward = nullptr;
  const void* packed_backward = nullptr;

  Problem(const Sizes& s, DType dtype, std::uint64_t seed = 1)
      : x(dtype, s.tokens + 2, s.d, s.d + 3),
        w(dtype, s.vocab, s.d, s.d + 1),
        dx(dtype, s.tokens + 2, s.d, s.d + 2),
        dw(dtype == DType::f64 ? DType::f64 : DType::f32, s.vocab, s.d, s.d + 4),
        row_loss(DType::f32, s.tokens + 2, 1),
        tokens(s.tokens),
        tile_rows(s.tile_rows) {
    test::Random random(seed);
    for (std::int64_t r = 0; r < s.tokens; ++r) {
      for (std::int64_t c = 0; c < s.d; ++c) x.set(r, c, random.uniform(-1.0, 1.0));
      labels.push_back(static_cast<std::int32_t>(random.below(s.vocab)));
      if (random.below(4) == 0) labels.back() = kIgnoredLabel;
    }
    if (s.tokens > 0) labels[0] = static_cast<std::int32_t>(s.vocab - 1);
    fill_random(w, seed + 1);
  }

  LossHead arguments() {
    return {.x = x,
            .w = w,
            .packed_forward = packed_forward,
            .packed_backward = packed_backward,
            .labels = labels.data(),
            .loss_sum = &loss_sum,
            .row_loss = row_loss.data<float>(),
            .grad_scale = &grad_scale,
            .dx = gradients ? dx.view() : Matrix{},
            .accumulate_dx = accumulate,
            .dw = gradients ? dw.view() : Matrix{},
            .accumulate_dw = accumulate,
            .tile_rows = tile_rows,
            .tokens = {.count = &tokens, .capacity = tokens + 2},
            .workspace = {}};
  }
  void run(const ExecContext& ctx) {
    HostMatrix scratch = test::scratch(loss_head_workspace_bytes({.dtype = x.dtype(),
                                                                  .max_tokens = tokens + 2,
                                                                  .d = x.cols(),
                                                                  .vocab = w.rows(),
                                                                  .tile_rows = tile_rows,
                                                                  .gradients = gradients},
                                                                 ctx.kernels->isa, ctx.pool->num_threads()));
    LossHead a = arguments();
    a.workspace = test::workspace(scratch);
    loss_head(ctx, a);
  }
};

const std::vector<Sizes> kSizes = {{1, 4, 3, 8},         {7, 12, 1, 3},    {5, 8, 17, 128}, {40, 33, 257, 16},
                                   {130, 64, 1000, 128}, {3, 16, 9001, 2}, {33, 48, 50, 1}};

void expect_close(const Problem& got, const Problem& want) {
  const bool f32 = got.x.dtype() == DType::f32;
  const double scale = static_cast<double>(got.grad_scale), tokens = static_cast<double>(got.tokens);
  EXPECT_NEAR(got.loss_sum, want.loss_sum, 2e-6 * (1.0 + tokens));
  EXPECT_TRUE(close(got.row_loss, want.row_loss, {4e-6, 1e-6, true}, want.tokens));
  // The logits' gradient is rounded to bf16, 2^-9 of each; a row of it sums to at most 2 scale in absolute value.
  const Bound dx = f32 ? Bound{2e-6 * scale, 2e-5, true} : Bound{0x1p-8 * scale, 0x1p-8, true};
  const Bound dw =
      f32 ? Bound{2e-6 * scale, 2e-5, true} : Bound{0x1p-9 * scale * std::sqrt(tokens), 0x1p-8, true};
  EXPECT_TRUE(close(got.dx, want.dx, dx, want.tokens));
  EXPECT_TRUE(close(got.dw, want.dw, dw));
  EXPECT_TRUE(untouched(got.dx, got.tokens));
  EXPECT_TRUE(untouched(got.row_loss, got.tokens));
  EXPECT_TRUE(untouched(got.dw, got.dw.rows()));
}

TEST(LossHead, MatchesTheReferenceOnEveryIsaAndThreadCount) {
  for (const Sizes& sizes : kSizes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(std::to_string(sizes.tokens) + " tokens, vocabulary " + std::to_string(sizes.vocab) +
                     ", " + to_string(dtype) + (accumulate ? ", accumulating" : ""));
        const auto make = [&] {
          Problem p(sizes, dtype);
          p.accumulate = accumulate;
          if (accumulate) {
            test::Random random(9);
            for (std::int64_t r = 0; r < p.tokens; ++r) {
              for (std::int64_t c = 0; c < p.dx.cols(); ++c) p.dx.set(r, c, random.uniform(-0.1, 0.1));
            }
            fill_random(p.dw, 10, -0.1, 0.1);
            p.loss_sum = 3.0;
          }
          return p;
        };
        Problem want = make();
        reference::loss_head(want.arguments());
        test::for_each_context([&](const ExecContext& ctx) {
          Problem got = make();
          got.run(ctx);
          expect_close(got, want);
        });
      }
    }
  }
}

TEST(LossHead, BitsDependNeitherOnThreadsNorOnTiles) {
  for (const Isa isa : available_isas()) {
    std::vector<Problem> runs;
    for (const int threads : {1, 2, 3}) {
      for (const std::int64_t tile_rows : {128, 16, 7, 1}) {
        ThreadPool pool(threads);
        const ExecContext ctx{&pool, &kernel_table(isa)};
        Problem& p = runs.emplace_back(Sizes{70, 24, 300, tile_rows}, DType::f32);
        p.run(ctx);
        EXPECT_EQ(p.loss_sum, runs[0].loss_sum) << threads << " threads, tiles of " << tile_rows;
        EXPECT_TRUE(same_bits(p.row_loss, runs[0].row_loss));
        EXPECT_TRUE(same_bits(p.dx, runs[0].dx));
        EXPECT_TRUE(same_bits(p.dw, runs[0].dw));
      }
    }
  }
}

TEST(LossHead, PackedCopiesHaveTheBitsOfThePlainWeight) {
  for (const Sizes& sizes : kSizes) {
    SCOPED_TRACE(std::to_string(sizes.tokens) + " tokens, vocabulary " + std::to_string(sizes.vocab));
    test::for_each_context([&](const ExecContext& ctx) {
      Problem plain(sizes, DType::bf16), packed = plain;
      plain.run(ctx);
      HostMatrix source(DType::f32, sizes.vocab, sizes.d);
      for (std::int64_t v = 0; v < sizes.vocab; ++v) {
        for (std::int64_t c = 0; c < sizes.d; ++c) source.set(v, c, packed.w.at(v, c));
      }
      const Isa isa = ctx.kernels->isa;
      HostMatrix forward(DType::u8, 1, packed_weight_bytes(1, sizes.vocab, sizes.d, isa));
      HostMatrix backward(DType::u8, 1, packed_weight_bytes(1, sizes.d, sizes.vocab, isa));
      pack_weight(ctx, {.source = source.data<float>(),
                        .copies = {1, sizes.vocab, sizes.d, forward.data<void>(), backward.data<void>()}});
      packed.w.poison();
      packed.packed_forward = forward.data<void>();
      packed.packed_backward = backward.data<void>();
      packed.run(ctx);
      EXPECT_EQ(packed.loss_sum, plain.loss_sum);
      EXPECT_TRUE(test::same_bits(packed.row_loss, plain.row_loss));
      EXPECT_TRUE(test::same_bits(packed.dx, plain.dx));
      EXPECT_TRUE(test::same_bits(packed.dw, plain.dw));
    });
  }
}

TEST(LossHead, LossAloneHasTheSameBits) {
  test::for_each_context([](const ExecContext& ctx) {
    Problem both({20, 8, 40, 8}, DType::bf16), alone = both;
    both.run(ctx);
    alone.gradients = false;
    alone.run(ctx);
    EXPECT_EQ(alone.loss_sum, both.loss_sum);
    EXPECT_TRUE(same_bits(alone.row_loss, both.row_loss));
    EXPECT_TRUE(untouched(alone.dx));
    EXPECT_TRUE(untouched(alone.dw));
  });
}

// x = 0 and V = 4: each probability is 1/4 whatever w is. By hand, with label 2 and scale 8: logits' gradient
// (2, 2, -6, 2); dx = that times w, exact in small integers; dw = that times x = 0.
TEST(LossHead, EqualLogitsGiveExactGradients) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    test::for_each_context([&](const ExecContext& ctx) {
      Problem p({1, 2, 4, 128}, dtype);
      fill_zero(p.x);
      const double w[4][2] = {{1, -1}, {3, 0}, {2, 5}, {-2, 4}};
      for (int r = 0; r < 4; ++r) p.w.set(r, 0, w[r][0]), p.w.set(r, 1, w[r][1]);
      p.labels = {2};
      p.grad_scale = 8.0F;
      p.run(ctx);
      EXPECT_NEAR(p.loss_sum, std::log(4.0), 1e-12);
      EXPECT_EQ(p.dx.at(0, 0), 2.0 * (1 + 3 - 2) - 6.0 * 2);
      EXPECT_EQ(p.dx.at(0, 1), 2.0 * (-1 + 0 + 4) - 6.0 * 5);
      for (int r = 0; r < 4; ++r) EXPECT_EQ(p.dw.at(r, 0), 0.0);
    });
  }
}

TEST(LossHead, GradientIsThatOfCentralDifferences) {
  const Sizes sizes{6, 5, 7, 4};
  Problem f64(sizes, DType::f64);
  f64.gradients = false;
  f64.grad_scale = 1.0F;
  const auto loss = [&] {
    f64.loss_sum = 0.0;
    reference::loss_head(f64.arguments());
    return f64.loss_sum;
  };
  HostMatrix dx(DType::f64, f64.x.rows(), f64.x.cols());
  for (std::int64_t r = 0; r < f64.tokens; ++r) {
    for (std::int64_t c = 0; c < dx.cols(); ++c) {
      const double value = f64.x.at(r, c);
      f64.x.set(r, c, value + 1e-5);
      const double above = loss();
      f64.x.set(r, c, value - 1e-5);
      dx.set(r, c, (above - loss()) / 2e-5);
      f64.x.set(r, c, value);
    }
  }
  const HostMatrix dw = test::numeric_gradient(f64.w, loss);
  f64.gradients = true;
  reference::loss_head(f64.arguments());
  EXPECT_TRUE(close(f64.dx, dx, {1e-9, 1e-8, true}, f64.tokens));
  EXPECT_TRUE(close(f64.dw, dw, {1e-9, 1e-8}));
  test::for_each_context([&](const ExecContext& ctx) {
    Problem p(sizes, DType::f32);
    p.grad_scale = 1.0F;
    p.run(ctx);
    EXPECT_TRUE(close(p.dx, dx, {1e-6, 1e-5, true}, p.tokens));
    EXPECT_TRUE(close(p.dw, dw, {1e-6, 1e-5}));
  });
}

TEST(LossHead, LargeLogitsStayFinite) {
  test::for_each_context([](const ExecContext& ctx) {
    Problem p({4, 1, 3, 128}, DType::f32);
    const double x[4] = {1e4, -1e4, 80.0, 0.0}, w[3] = {1.0, 0.0, -1.0};
    for (int r = 0; r < 4; ++r) p.x.set(r, 0, x[r]);
    for (int r = 0; r < 3; ++r) p.w.set(r, 0, w[r]);
    p.labels = {0, 0, 2, 1};
    p.run(ctx);
    EXPECT_EQ(p.row_loss.at(0, 0), 0.0);
    EXPECT_EQ(p.row_loss.at(1, 0), 2e4);
    EXPECT_NEAR(p.row_loss.at(2, 0), 160.0, 1e-5);
    EXPECT_NEAR(p.row_loss.at(3, 0), std::log(3.0), 1e-6);
    for (int r = 0; r < 4; ++r) EXPECT_TRUE(std::isfinite(p.dx.at(r, 0)));
  });
}

// The maximum stands far behind the first block of the vocabulary that is summed, 300 above the rest.
TEST(LossHead, ALateMaximumRescalesTheSum) {
  test::for_each_context([](const ExecContext& ctx) {
    Problem p({1, 1, 9001, 128}, DType::f32);
    p.x.set(0, 0, 1.0);
    fill_zero(p.w);
    p.w.set(6000, 0, 300.0);
    p.w.set(8999, 0, 300.0);
    p.labels = {6000};
    p.grad_scale = 2.0F;
    p.run(ctx);
    EXPECT_NEAR(p.loss_sum, std::log(2.0), 1e-6);
    EXPECT_NEAR(p.dw.at(6000, 0), -1.0, 1e-6);
    EXPECT_NEAR(p.dw.at(8999, 0), 1.0, 1e-6);
    EXPECT_EQ(p.dw.at(0, 0), 0.0);
  });
}

// What is not a number must reach the loss: the trainer stops on it.
TEST(LossHead, NanReachesTheLoss) {
  test::for_each_context([](const ExecContext& ctx) {
    for (const std::int64_t entry : {0, 37, 6000}) {
      Problem p({2, 4, 6001, 128}, DType::bf16);
      p.labels = {5, 5};
      p.w.set(entry, 1, std::numeric_limits<double>::quiet_NaN());
      p.run(ctx);
      EXPECT_TRUE(std::isnan(p.loss_sum)) << entry;
    }
  });
}

// Four microbatches, the third all ignored: gradients and loss as without it. Then all ignored: exactly 0, and what was
// accumulated stays as it is, although 1 / 0 stands in the scale.
TEST(LossHead, C054NoTrainedLabel) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    test::for_each_context([&](const ExecContext& ctx) {
      const Sizes sizes{10, 8, 20, 4};
      Problem with(sizes, dtype), without(sizes, dtype);
      for (int microbatch = 0; microbatch < 4; ++microbatch) {
        Problem data(sizes, dtype, 20 + static_cast<std::uint64_t>(microbatch));
        if (microbatch == 2) data.labels.assign(10, kIgnoredLabel);
        for (Problem* p : {&with, &without}) {
          if (p == &without && microbatch == 2) continue;
          p->x = data.x;
          p->labels = data.labels;
          LossHead a = p->arguments();
          a.accumulate_dw = microbatch > 0;
          HostMatrix scratch = test::scratch(loss_head_workspace_bytes(
              {.dtype = dtype, .max_tokens = 12, .d = 8, .vocab = 20, .tile_rows = 4}, ctx.kernels->isa,
              ctx.pool->num_threads()));
          a.workspace = test::workspace(scratch);
          loss_head(ctx, a);
          if (p == &with && microbatch == 2) {
            for (int r = 0; r < 10; ++r) {
              EXPECT_EQ(p->row_loss.at(r, 0), 0.0);
              for (int c = 0; c < 8; ++c) EXPECT_EQ(p->dx.at(r, c), 0.0);
            }
          }
        }
      }
      EXPECT_EQ(with.loss_sum, without.loss_sum);
      EXPECT_GT(with.loss_sum, 0.0);
      EXPECT_TRUE(same_bits(with.dw, without.dw));
      EXPECT_TRUE(same_bits(with.dx, without.dx));

      Problem none(sizes, dtype);
      none.labels.assign(10, kIgnoredLabel);
      none.grad_scale = std::numeric_limits<float>::infinity();
      none.run(ctx);
      EXPECT_EQ(none.loss_sum, 0.0);
      for (int r = 0; r < 20; ++r) {
        for (int c = 0; c < 8; ++c) EXPECT_EQ(none.dw.at(r, c), 0.0);
      }
      none.accumulate = true;
      none.loss_sum = 5.0;
      fill_integers(none.dw, 3);
      const HostMatrix before = none.dw;
      none.run(ctx);
      EXPECT_EQ(none.loss_sum, 5.0);
      EXPECT_TRUE(same_bits(none.dw, before));
    });
  }
}

// A prompt whose labels are ignored, then an answer: loss and gradients are those of the answer alone.
TEST(LossHead, C055OnlyTheAnswerIsTrained) {
  test::for_each_context([](const ExecContext& ctx) {
    Problem whole({205, 8, 30, 64}, DType::f32), answer({5, 8, 30, 64}, DType::f32);
    for (std::size_t t = 0; t < 205; ++t)
      whole.labels[t] = t < 200 ? kIgnoredLabel : static_cast<std::int32_t>(t % 30);
    for (std::size_t t = 0; t < 5; ++t) {
      answer.labels[t] = whole.labels[200 + t];
      for (std::int64_t c = 0; c < 8; ++c) {
        answer.x.set(static_cast<std::int64_t>(t), c, whole.x.at(200 + static_cast<std::int64_t>(t), c));
      }
    }
    whole.run(ctx);
    answer.run(ctx);
    EXPECT_EQ(whole.loss_sum, answer.loss_sum);
    EXPECT_GT(whole.loss_sum, 0.0);
    EXPECT_TRUE(same_bits(whole.dw, answer.dw));
    for (std::int64_t r = 0; r < 5; ++r) {
      for (std::int64_t c = 0; c < 8; ++c) EXPECT_EQ(whole.dx.at(200 + r, c), answer.dx.at(r, c));
    }
  });
}

// Two microbatches, 3 tokens of loss 2 and 1 token of loss 6. With V = 2 and logits (x, 0), label 1: loss log(1 + e^x),
// so x = log(e^loss - 1). The mean over trained tokens is 3, and the gradients add up to those of the joint batch.
TEST(LossHead, C056MeanOverTokensNotOverMicrobatches) {
  test::for_each_context([](const ExecContext& ctx) {
    const double x2 = std::log(std::exp(2.0) - 1.0), x6 = std::log(std::exp(6.0) - 1.0);
    const auto batch = [&](const std::vector<double>& xs) {
      Problem p({static_cast<std::int64_t>(xs.size()), 1, 2, 128}, DType::f32);
      for (std::size_t i = 0; i < xs.size(); ++i) p.x.set(static_cast<std::int64_t>(i), 0, xs[i]);
      p.w.set(0, 0, 1.0), p.w.set(1, 0, 0.0);
      p.labels.assign(xs.size(), 1);
      p.grad_scale = 0.25F;  // 1 / trained tokens of the step
      return p;
    };
    Problem first = batch({x2, x2, x2}), second = batch({x6}), joint = batch({x2, x2, x2, x6});
    first.run(ctx);
    second.loss_sum = first.loss_sum;
    second.dw = first.dw;
    second.accumulate = true;
    second.dx.set(0, 0, 0.0);
    second.run(ctx);
    joint.run(ctx);
    EXPECT_NEAR(second.loss_sum / 4.0, 3.0, 1e-6);
    EXPECT_EQ(second.loss_sum, joint.loss_sum);
    EXPECT_TRUE(same_bits(second.dw, joint.dw));
    const double p2 = 1.0 - std::exp(-2.0), p6 = 1.0 - std::exp(-6.0);  // probability of entry 0
    EXPECT_NEAR(second.dw.at(0, 0), 0.25 * (3 * p2 * x2 + p6 * x6), 1e-6);
    EXPECT_NEAR(second.dx.at(0, 0), 0.25 * p6, 1e-6);
    EXPECT_NEAR(first.loss_sum / 3.0, 2.0, 1e-6);  // the second without a token: the first alone
  });
}

TEST(LossHead, ALabelThatIsNoTokenIsNamed) {
  ThreadPool pool(1);
  const ExecContext ctx{&pool, &kernel_table(available_isas().front())};
  for (const std::int32_t wrong : {-1, -99, -101, 20, 1 << 30}) {
    Problem p({6, 4, 20, 128}, DType::f32);
    p.labels[4] = wrong;
    try {
      p.run(ctx);
      FAIL() << "label " << wrong << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::data);
      EXPECT_NE(std::string(e.what()).find(std::to_string(wrong)), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("row 4"), std::string::npos) << e.what();
    }
    EXPECT_EQ(p.loss_sum, 0.0);
  }
}

TEST(LossHead, NoTokensClearOrKeepTheWeightGradient) {
  test::for_each_context([](const ExecContext& ctx) {
    Problem p({0, 4, 6, 128}, DType::f32);
    p.run(ctx);
    EXPECT_EQ(p.loss_sum, 0.0);
    for (int r = 0; r < 6; ++r) EXPECT_EQ(p.dw.at(r, 3), 0.0);
  });
}

TEST(LossHead, ScratchStaysWithin100MiBAtAVocabularyOf128000) {
  for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const int threads : {1, 2, 8}) {
        const std::int64_t bytes = loss_head_workspace_bytes(
            {.dtype = dtype, .max_tokens = 4096, .d = 1024, .vocab = 128000}, isa, threads);
        EXPECT_GT(bytes, std::int64_t{128} * 128000 * 4);
        EXPECT_LE(bytes, std::int64_t{100} << 20) << to_string(isa) << ", " << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace planalto::kernels
