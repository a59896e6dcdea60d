// SPDX-License-Identifier: Apache-2.0
// router_test.cpp: choice, weights, gradient and bias of the router, on every ISA and on 1, 2 and 3 threads.
#include "kernels/router.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/ref/router.h"
#include "kernels/table.h"
#include "router_testing.h"
#include "support/expect_error.h"

namespace planalto::test {
namespace {

using kernels::GroupScore, kernels::RouterOptions, kernels::RouterScore;
namespace reference = kernels::reference;
using ::planalto::testing::expect_error;

void expect_weights(Routing r, const std::vector<std::int32_t>& ids, const std::vector<double>& weights,
                    double bound) {
  for_each_context([&](const ExecContext& ctx) {
    kernels::router_forward(ctx, r.forward());
    EXPECT_EQ(r.ids, ids);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(r.weights[i]), weights[i], bound) << "weight " << i;
    }
  });
}

TEST(Router, C001SoftmaxBeforeOrAfterTheChoice) {
  const std::vector<float> logits = {2, 1, 0, -1};
  expect_weights({{.num_experts = 4, .top_k = 2, .normalize = false}, logits}, {0, 1}, {0.643914, 0.236883},
                 1e-6);
  expect_weights({{.num_experts = 4, .top_k = 2, .normalize = true}, logits}, {0, 1}, {0.731059, 0.268941},
                 1e-6);
}

TEST(Router, C002ScalingIsAppliedOnceWhateverTheNormalisation) {
  const std::vector<float> logits = {2, 1, 0, -1};
  const auto options = [](RouterScore score, bool normalize) {
    return RouterOptions{
        .num_experts = 4, .top_k = 2, .score = score, .normalize = normalize, .scaling = 2.5};
  };
  expect_weights({options(RouterScore::softmax, false), logits}, {0, 1}, {1.609786, 0.592207}, 2e-6);
  expect_weights({options(RouterScore::softmax, true), logits}, {0, 1}, {1.827646, 0.672354}, 2e-6);
  expect_weights({options(RouterScore::sigmoid, false), logits}, {0, 1}, {2.201993, 1.827646}, 2e-6);
  expect_weights({options(RouterScore::sigmoid, true), logits}, {0, 1}, {1.366123, 1.133877}, 2e-6);
}

TEST(Router, C003TheBiasChoosesAndDoesNotWeigh) {
  std::vector<float> logits;
  for (const double s : {0.6, 0.5, 0.4, 0.3}) logits.push_back(static_cast<float>(std::log(s / (1.0 - s))));
  expect_weights({{.num_experts = 4, .top_k = 2, .score = RouterScore::sigmoid}, logits, {0, 0, 1, 0}},
                 {0, 2}, {0.6, 0.4}, 1e-6);
}

TEST(Router, C004GroupScoreOfTwoGenerations) {
  RouterOptions o{
      .num_experts = 4, .top_k = 1, .num_groups = 2, .top_groups = 1, .score = RouterScore::sigmoid};
  const std::vector<float> logits = {0, 0, 0, 0}, bias = {0.4F, -0.5F, 0, 0};  // biased scores .9, 0 | .5, .5
  expect_weights({o, logits, bias}, {2}, {1.0}, 1e-6);
  o.group_score = GroupScore::best;
  expect_weights({o, logits, bias}, {0}, {1.0}, 1e-6);
}

TEST(Router, C005TiesGoToTheLowerId) {
  for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
    expect_weights({{.num_experts = 8, .top_k = 2, .score = score}, std::vector<float>(8, 0.25F)}, {0, 1},
                   {0.5, 0.5}, 1e-6);
  }
  // -0 equals 0
  expect_weights({{.num_experts = 3, .top_k = 1}, {-0.0F, 0.0F, -1.0F}}, {0}, {1.0}, 1e-6);
  // equal groups: the lower group
  expect_weights(
      {{.num_experts = 6, .top_k = 1, .num_groups = 3, .top_groups = 1, .group_score = GroupScore::best},
       {1, 2, 2, 3, 3, 1}},
      {3}, {1.0}, 1e-6);
  expect_weights({{.num_experts = 6, .top_k = 1, .num_groups = 3, .top_groups = 1}, {1, 2, 2, 1, 1, 2}}, {1},
                 {1.0}, 1e-6);
}

TEST(Router, C005LogitsThatScoresCannotTellApart) {
  std::vector<float> logits(8, -20.0F);
  logits[0] = 0.0F;
  logits[7] = 1e-7F;
  expect_weights({{.num_experts = 8, .top_k = 1}, logits}, {7}, {1.0}, 1e-6);
}

TEST(Router, ARejectedGroupNeverWinsWhenKeptScoresAreNegative) {
  const RouterOptions o{
      .num_experts = 4, .top_k = 2, .num_groups = 2, .top_groups = 1, .score = RouterScore::sigmoid};
  // biased scores -0.25, -3.5 | -2, -1.9: group 0 stays, and its second is below both of group 1
  expect_weights({o, {0, 0, 0, 0}, {-0.75F, -4.0F, -2.5F, -2.4F}}, {0, 1}, {0.5, 0.5}, 1e-6);
}

TEST(Router, C007OptionsThatCannotWorkAreRefused) {
  ThreadPool pool(1);
  const ExecContext ctx{&pool, &kernels::kernel_table(kernels::available_isas().front())};
  const auto refuse = [&](const RouterOptions& o, std::initializer_list<std::string_view> pieces) {
    Routing r(RouterOptions{.num_experts = 8, .top_k = 8}, std::vector<float>(8, 0.0F));
    r.options = o;
    expect_error(ErrorKind::internal, pieces, [&] { kernels::router_forward(ctx, r.forward()); });
  };
  refuse({.num_experts = 4, .top_k = 5}, {"top_k 5", "num_experts 4"});
  refuse({.num_experts = 4, .top_k = 0}, {"top_k 0"});
  refuse({.num_experts = 4, .top_k = -1}, {"top_k -1"});
  refuse({.num_experts = 8, .top_k = 3, .num_groups = 4, .top_groups = 1}, {"top_groups 1", "top_k 3"});
  refuse({.num_experts = 8, .top_k = 3, .num_groups = 3, .top_groups = 3}, {"num_groups 3", "num_experts 8"});
  refuse({.num_experts = 8, .top_k = 1, .num_groups = 8, .top_groups = 2}, {"num_groups 8"});
}

TEST(Router, C008NonFiniteLogitsLeaveIdsInRange) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  for (const RouterOptions& o : router_variants()) {
    for (const float bad : {nan, -nan, inf, -inf}) {
      for (const std::int64_t every : {std::int64_t{1}, std::int64_t{2}, o.num_experts}) {
        std::vector<float> logits = random_logits(3 * o.num_experts, 11);
        for (std::int64_t i = 0; i < 3 * o.num_experts; i += every) logits[i] = bad;
        Routing r(o, logits);
        ThreadPool pool(1);
        for (const kernels::Isa isa : kernels::available_isas()) {
          kernels::router_forward({&pool, &kernels::kernel_table(isa)}, r.forward());
          for (std::int64_t t = 0; t < 3; ++t) {
            const auto first = r.ids.begin() + t * o.top_k;
            EXPECT_GE(*first, 0);
            EXPECT_LT(first[o.top_k - 1], o.num_experts);
            EXPECT_TRUE(std::adjacent_find(first, first + o.top_k, std::greater_equal<>()) ==
                        first + o.top_k);
          }
          EXPECT_EQ(std::accumulate(r.counts.begin(), r.counts.end(), std::int64_t{0}), 3 * o.top_k);
        }
      }
    }
  }
}

TEST(Router, C008ANaNLogitLosesToEveryNumberAndShowsInTheScores) {
  const float nan = std::nanf("");
  Routing r({.num_experts = 4, .top_k = 2}, {nan, -5, nan, -1e30F});
  for_each_context([&](const ExecContext& ctx) {
    kernels::router_forward(ctx, r.forward());
    EXPECT_EQ(r.ids, (std::vector<std::int32_t>{1, 3}));
    EXPECT_TRUE(std::isnan(r.scores[0]));
  });
}

TEST(Router, C010IdsThatAreNoExpertAreRefusedWithTheirValue) {
  for_each_context([&](const ExecContext& ctx) {
    for (const std::int32_t bad : {4, -1, std::numeric_limits<std::int32_t>::min()}) {
      Routing r({.num_experts = 4, .top_k = 2}, std::vector<float>(4 * 700, 0.5F));
      for (std::size_t i = 0; i < r.ids.size(); ++i) r.ids[i] = static_cast<std::int32_t>(i % 2);
      r.ids[2 * 601 + 1] = bad;
      const std::string value = std::to_string(bad);
      expect_error(ErrorKind::data, {"router_weights", "token 601", "slot 1", value, "0 to 3"},
                   [&] { kernels::router_weights(ctx, r.again()); });
      std::vector<float> dweights(r.weights.size(), 1.0F), dlogits(r.logits.size());
      expect_error(ErrorKind::data, {"router_backward", "token 601", value}, [&] {
        kernels::router_backward(ctx, {.options = r.options,
                                       .scores = r.scores.data(),
                                       .ids = r.ids.data(),
                                       .dweights = dweights.data(),
                                       .dlogits = dlogits.data(),
                                       .tokens = {.capacity = r.tokens()}});
      });
    }
    Routing r({.num_experts = 4, .top_k = 2}, std::vector<float>(8, 0.5F));
    r.ids = {0, 1, 3, 3};
    expect_error(ErrorKind::data, {"token 1", "3 after 3", "ascend"},
                 [&] { kernels::router_weights(ctx, r.again()); });
  });
}

TEST(Router, C011RouteCountsAreIntegers) {
  std::vector<std::int64_t> partial;  // 64 counts between 608 and 676
  for (int i = 0; i < 62; ++i) partial.push_back(638);
  partial.insert(partial.end(), {608, 676});
  std::vector<std::int64_t> counts(256, 0);
  for (const std::int64_t n : partial) counts[0] += n;
  ASSERT_EQ(counts[0], 40840);
  std::fill(counts.begin() + 1, counts.end(), 40960);
  counts[1] += 120;  // mean 40,960
  std::vector<float> bias(256, 0.0F);
  kernels::router_bias_update(
      {.bias = bias.data(), .counts = counts.data(), .num_experts = 256, .rate = 0.001F});
  EXPECT_EQ(bias[0], 0.001F);
  EXPECT_EQ(bias[1], -0.001F);
  EXPECT_EQ(bias[2], 0.0F);
}

TEST(Router, C012BiasGrowsInFp32) {
  std::vector<float> bias = {1.0F, 0.0F};
  const std::vector<std::int64_t> counts = {0, 10};
  for (int i = 0; i < 100; ++i) {
    kernels::router_bias_update(
        {.bias = bias.data(), .counts = counts.data(), .num_experts = 2, .rate = 0.001F});
  }
  EXPECT_NEAR(bias[0], 1.1F, 1e-5);
  EXPECT_FLOAT_EQ(bias[0], 1.1000047F);
}

TEST(Router, TheMeanOfCountsNeedNotBeAnInteger) {
  std::vector<float> bias(3, 0.0F);
  const std::vector<std::int64_t> counts = {3, 4, 4};  // mean 11/3
  kernels::router_bias_update({.bias = bias.data(), .counts = counts.data(), .num_experts = 3, .rate = 0.5F});
  EXPECT_EQ(bias, (std::vector<float>{0.5F, -0.5F, -0.5F}));
}

TEST(Router, C014TheBiasIsUpdatedFromTheCountsOfTheRouter) {
  for_each_context([&](const ExecContext& ctx) {
    std::vector<float> logits;
    for (int t = 0; t < 6; ++t) logits.insert(logits.end(), {8, -8, -8, -8});
    Routing r({.num_experts = 4, .top_k = 1, .score = RouterScore::sigmoid}, logits,
              std::vector<float>(4, 0.0F));
    for (int step = 0; step < 20; ++step) {
      kernels::router_forward(ctx, r.forward());
      EXPECT_EQ(r.counts, (std::vector<std::int64_t>{6, 0, 0, 0}));
      kernels::router_bias_update(
          {.bias = r.bias.data(), .counts = r.counts.data(), .num_experts = 4, .rate = 0.01F});
    }
    EXPECT_NEAR(r.bias[0], -0.2F, 1e-6);
    for (int e = 1; e < 4; ++e) EXPECT_NEAR(r.bias[e], 0.2F, 1e-6);
  });
}

void expect_reference(const RouterOptions& o, std::int64_t tokens, std::uint64_t seed, bool with_bias) {
  SCOPED_TRACE(::testing::Message() << "E " << o.num_experts << " K " << o.top_k << " T " << tokens
                                    << " seed " << seed);
  Routing want(o, random_logits(tokens * o.num_experts, seed),
               with_bias ? random_logits(o.num_experts, seed + 1, 0.3) : std::vector<float>{});
  reference::router_forward(want.forward());
  Routing first = want;
  bool have_first = false;
  for_each_context([&](const ExecContext& ctx) {
    Routing got(o, want.logits, want.bias);
    kernels::router_forward(ctx, got.forward());
    EXPECT_EQ(got.ids, want.ids);
    EXPECT_EQ(got.counts, want.counts);
    for (std::size_t i = 0; i < got.weights.size(); ++i)
      ASSERT_NEAR(got.weights[i], want.weights[i], 2e-6F * std::fabs(want.weights[i])) << i;
    for (std::size_t i = 0; i < got.scores.size(); ++i)
      ASSERT_NEAR(got.scores[i], want.scores[i], 1e-6F * want.scores[i]) << i;
    if (!have_first) first = got;
    have_first = true;
    EXPECT_EQ(got.weights, first.weights);  // bit for bit over threads and ISAs
    EXPECT_EQ(got.scores, first.scores);
    Routing again = got;
    std::fill(again.weights.begin(), again.weights.end(), 0.0F);
    std::fill(again.counts.begin(), again.counts.end(), 7);
    kernels::router_weights(ctx, again.again());
    EXPECT_EQ(again.weights, got.weights);
    EXPECT_EQ(again.scores, got.scores);
    EXPECT_EQ(again.counts, got.counts);
  });
}

TEST(Router, AgreesWithTheReferenceOnEveryVariant) {
  std::uint64_t seed = 100;
  for (const RouterOptions& o : router_variants()) {
    for (const std::int64_t tokens : {1, 53}) {
      expect_reference(o, tokens, seed++, false);
      expect_reference(o, tokens, seed++, true);
    }
  }
}

TEST(Router, TiesByTheDozenAreTheSameOnEveryIsa) {
  for (const RouterOptions& o : router_variants()) {
    std::vector<float> logits = random_logits(64 * o.num_experts, 5, 2.0);
    for (float& l : logits) l = std::round(l);
    Routing want(o, logits);
    // equal logits have equal scores, in the reference too; groups can differ by rounding alone, so only without groups
    if (o.num_groups == 1) reference::router_forward(want.forward());
    for_each_context([&](const ExecContext& ctx) {
      Routing got(o, logits);
      kernels::router_forward(ctx, got.forward());
      if (want.ids[0] < 0) want = got;
      EXPECT_EQ(got.ids, want.ids);
    });
  }
}

TEST(Router, ZeroTokensGiveZeroCounts) {
  for_each_context([&](const ExecContext& ctx) {
    Routing r({.num_experts = 4, .top_k = 2}, {1, 2, 3, 4});
    kernels::RouterForward a = r.forward();
    const std::int64_t none = 0;
    a.tokens.count = &none;
    kernels::router_forward(ctx, a);
    EXPECT_EQ(r.counts, (std::vector<std::int64_t>{0, 0, 0, 0}));
    EXPECT_EQ(r.ids[0], -1);
  });
}

TEST(Router, C006OnlyTheTokensThatAreThereAreCounted) {
  for_each_context([&](const ExecContext& ctx) {
    Routing r({.num_experts = 8, .top_k = 2}, random_logits(64 * 8, 3));
    kernels::RouterForward a = r.forward();
    const std::int64_t real = 48;
    a.tokens.count = &real;
    kernels::router_forward(ctx, a);
    EXPECT_EQ(std::accumulate(r.counts.begin(), r.counts.end(), std::int64_t{0}), 96);
    EXPECT_EQ(r.ids[96], -1);
  });
}

TEST(Router, BackwardAgainstDifferenceQuotients) {
  std::uint64_t seed = 300;
  for (const RouterOptions& o : router_variants()) {
    if (o.num_experts > 160) continue;
    const std::int64_t tokens = 5;
    Routing r(o, random_logits(tokens * o.num_experts, ++seed));
    const std::vector<float> dweights = random_logits(tokens * o.top_k, seed + 50, 1.0);
    reference::router_forward(r.forward());
    const auto loss = [&](std::int64_t t, const std::vector<double>& logits) {
      const std::vector<double> w =
          reference::router_token_weights(o, reference::router_scores(o, logits.data()), &r.ids[t * o.top_k]);
      double sum = 0.0;
      for (std::int64_t k = 0; k < o.top_k; ++k) sum += w[k] * static_cast<double>(dweights[t * o.top_k + k]);
      return sum;
    };
    std::vector<double> want;
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::vector<double> l(r.logits.begin() + t * o.num_experts, r.logits.begin() + (t + 1) * o.num_experts);
      for (double& x : l) {
        const double value = x, step = 1e-5;
        x = value + step;
        const double above = loss(t, l);
        x = value - step;
        want.push_back((above - loss(t, l)) / (2.0 * step));
        x = value;
      }
    }
    const auto expect_gradient = [&](const std::vector<float>& got) {
      for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(static_cast<double>(got[i]), want[i], 2e-6 * std::max(1.0, o.scaling))
            << "seed " << seed << " at " << i;
    };
    std::vector<float> dlogits(r.logits.size(), std::nanf("")), first;
    const kernels::RouterBackward a{.options = o,
                                    .scores = r.scores.data(),
                                    .ids = r.ids.data(),
                                    .dweights = dweights.data(),
                                    .dlogits = dlogits.data(),
                                    .tokens = {.capacity = tokens}};
    reference::router_backward(a);
    expect_gradient(dlogits);
    for_each_context([&](const ExecContext& ctx) {
      std::fill(dlogits.begin(), dlogits.end(), std::nanf(""));
      kernels::router_backward(ctx, a);
      expect_gradient(dlogits);
      if (first.empty()) first = dlogits;
      EXPECT_EQ(dlogits, first);
    });
  }
}

}  // namespace
}  // namespace planalto::test
