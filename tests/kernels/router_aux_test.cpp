// SPDX-License-Identifier: Apache-2.0
// router_aux_test.cpp: the router's auxiliary losses: published values, difference quotients, and layouts of one batch.
#include <numeric>

#include "kernels/ref/router.h"
#include "kernels/table.h"
#include "router_testing.h"
#include "support/expect_error.h"

namespace planalto::test {
namespace {

using kernels::AuxLossKind, kernels::RouterAuxLoss, kernels::RouterOptions, kernels::RouterScore;
namespace reference = kernels::reference;

struct AuxResult {
  double loss = 0.0;
  std::vector<float> dlogits;
};

// Tokens [begin, end) of r as one microbatch; docs are offsets inside it.
AuxResult run(const ExecContext& ctx, RouterAuxLoss a, const Routing& r, std::int64_t begin, std::int64_t end,
              const std::vector<std::int32_t>& docs = {}) {
  const std::int64_t width = r.options.num_experts;
  AuxResult result{.loss = 0.0,
                   .dlogits = std::vector<float>(static_cast<std::size_t>((end - begin) * width), 0.0F)};
  HostMatrix space = scratch(kernels::router_aux_loss_workspace_bytes(r.options, end - begin));
  a.options = r.options;
  a.logits = r.logits.data() + begin * width;
  a.scores = r.scores.data() + begin * width;
  a.ids = r.ids.data() + begin * r.options.top_k;
  if (a.counts == nullptr) a.counts = r.counts.data();
  a.doc_offsets = docs.data();
  a.num_docs = {.capacity = static_cast<std::int64_t>(docs.size()) - 1};
  a.loss = &result.loss;
  a.dlogits = result.dlogits.data();
  a.tokens = {.capacity = end - begin};
  a.workspace = workspace(space);
  kernels::router_aux_loss(ctx, a);
  return result;
}

Routing routed(const RouterOptions& o, std::vector<float> logits) {
  Routing r(o, std::move(logits));
  reference::router_forward(r.forward());
  return r;
}

std::vector<float> repeated(std::initializer_list<float> row, int times) {
  std::vector<float> all;
  for (int i = 0; i < times; ++i) all.insert(all.end(), row);
  return all;
}

TEST(RouterAux, C015BalanceLossOfALayerAndOfJoinedLayers) {
  const RouterOptions o{.num_experts = 2, .top_k = 1};
  const Routing layer0 = routed(o, repeated({100, -100}, 5)), layer1 = routed(o, repeated({-100, 100}, 5));
  const std::vector<std::int64_t> joined = {5, 5};
  for_each_context([&](const ExecContext& ctx) {
    const RouterAuxLoss micro{.kind = AuxLossKind::microbatch, .coefficient = 1.0};
    EXPECT_NEAR(run(ctx, micro, layer0, 0, 5).loss, 2.0, 1e-7);
    EXPECT_NEAR(run(ctx, micro, layer1, 0, 5).loss, 2.0, 1e-7);
    const RouterAuxLoss both{
        .kind = AuxLossKind::joined, .coefficient = 1.0, .joined_counts = joined.data(), .joined_layers = 2};
    EXPECT_NEAR(run(ctx, both, layer0, 0, 5).loss + run(ctx, both, layer1, 0, 5).loss, 1.0, 1e-7);
  });
}

TEST(RouterAux, C015UniformRoutingGivesOneOrKWhenNotDividedByK) {
  const RouterOptions o{.num_experts = 4, .top_k = 2};
  Routing r = routed(o, std::vector<float>(16, 0.5F));
  r.ids = {0, 1, 2, 3, 0, 2, 1, 3};
  r.counts = {2, 2, 2, 2};
  for_each_context([&](const ExecContext& ctx) {
    EXPECT_NEAR(run(ctx, {.kind = AuxLossKind::microbatch, .coefficient = 1.0}, r, 0, 4).loss, 1.0, 1e-7);
    EXPECT_NEAR(run(ctx, {.kind = AuxLossKind::sequence, .coefficient = 1.0}, r, 0, 4, {0, 4}).loss, 1.0,
                1e-7);
    EXPECT_NEAR(
        run(ctx, {.kind = AuxLossKind::joined, .coefficient = 1.0, .joined_counts = r.counts.data()}, r, 0, 4)
            .loss,
        2.0, 1e-7);
  });
}

TEST(RouterAux, C058ZLossOfAToken) {
  const Routing r = routed({.num_experts = 4, .top_k = 2}, {2, 1, 0, -1, 2, 1, 0, -1});
  for_each_context([&](const ExecContext& ctx) {
    EXPECT_NEAR(run(ctx, {.kind = AuxLossKind::z, .coefficient = 1.0}, r, 0, 2).loss, 5.954526, 1e-6);
    const double half = 0.5;
    EXPECT_NEAR(run(ctx, {.kind = AuxLossKind::z, .coefficient = 0.1, .scale = &half}, r, 0, 2).loss,
                0.2977263, 1e-7);
  });
}

TEST(RouterAux, C058SequenceAndZLossesDoNotDependOnTheLayout) {
  const std::int64_t docs = 8, length = 21, tokens = docs * length;
  const RouterOptions o{.num_experts = 24, .top_k = 3, .score = RouterScore::sigmoid};
  const Routing r = routed(o, random_logits(tokens * o.num_experts, 7));
  for (const AuxLossKind kind : {AuxLossKind::sequence, AuxLossKind::z}) {
    std::vector<AuxResult> results;
    for_each_context([&](const ExecContext& ctx) {
      for (const std::int64_t microbatches : {1, 2, 4, 8}) {
        const double scale = 1.0 / static_cast<double>(microbatches);
        AuxResult all;
        for (std::int64_t m = 0; m < microbatches; ++m) {
          std::vector<std::int32_t> offsets;
          for (std::int64_t d = 0; d <= docs / microbatches; ++d)
            offsets.push_back(static_cast<std::int32_t>(d * length));
          const std::int64_t size = tokens / microbatches;
          const AuxResult one = run(ctx, {.kind = kind, .coefficient = 0.3, .scale = &scale}, r, m * size,
                                    (m + 1) * size, offsets);
          all.loss += one.loss;
          all.dlogits.insert(all.dlogits.end(), one.dlogits.begin(), one.dlogits.end());
        }
        results.push_back(all);
      }
    });
    for (const AuxResult& one : results) {
      EXPECT_NEAR(one.loss, results[0].loss, 1e-6 * results[0].loss);
      for (std::size_t i = 0; i < one.dlogits.size(); ++i)
        ASSERT_NEAR(one.dlogits[i], results[0].dlogits[i], 1e-5 * std::fabs(results[0].dlogits[i]) + 1e-12);
    }
  }
}

// Value, gradient of the reference and of the kernel against central differences in double.
void expect_gradients(const RouterOptions& o, RouterAuxLoss a, std::int64_t tokens,
                      const std::vector<std::int32_t>& docs, std::uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(a.kind) << " E " << o.num_experts
                                    << " seed " << seed);
  const Routing r = routed(o, random_logits(tokens * o.num_experts, seed));
  std::vector<std::int64_t> joined = r.counts;
  for (std::size_t e = 0; e < joined.size(); ++e) joined[e] += r.counts[joined.size() - 1 - e];
  const double scale = 0.25;
  a.options = o;
  a.coefficient = 3.0;
  a.scale = &scale;
  a.ids = r.ids.data();
  a.counts = r.counts.data();
  a.joined_counts = joined.data();
  a.joined_layers = 2;
  a.doc_offsets = docs.data();
  a.num_docs = {.capacity = static_cast<std::int64_t>(docs.size()) - 1};
  a.tokens = {.capacity = tokens};
  std::vector<double> logits(r.logits.begin(), r.logits.end()), want;
  const double value = reference::router_aux_loss_value(a, logits);
  for (double& l : logits) {
    const double at = l, step = 1e-4;
    l = at + step;
    const double above = reference::router_aux_loss_value(a, logits);
    l = at - step;
    want.push_back((above - reference::router_aux_loss_value(a, logits)) / (2.0 * step));
    l = at;
  }
  double largest = 0.0;
  for (const double g : want) largest = std::max(largest, std::fabs(g));
  ASSERT_GT(largest, 0.0);
  const auto expect = [&](double loss, const std::vector<float>& dlogits, double start) {
    EXPECT_NEAR(loss - start, value, 1e-6 * value);
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(static_cast<double>(dlogits[i]), want[i], 2e-5 * largest) << "at " << i;
  };
  double loss = 0.0;
  std::vector<float> dlogits(r.logits.size(), 0.0F), first;
  a.logits = r.logits.data();
  a.scores = r.scores.data();
  a.loss = &loss;
  a.dlogits = dlogits.data();
  reference::router_aux_loss(a);
  expect(loss, dlogits, 0.0);
  double first_loss = 0.0;
  for_each_context([&](const ExecContext& ctx) {
    HostMatrix space = scratch(kernels::router_aux_loss_workspace_bytes(o, tokens));
    a.workspace = workspace(space);
    loss = 5.0;
    std::fill(dlogits.begin(), dlogits.end(), 0.0F);
    kernels::router_aux_loss(ctx, a);
    expect(loss, dlogits, 5.0);
    if (first.empty()) first_loss = loss;
    if (first.empty()) first = dlogits;
    EXPECT_EQ(loss, first_loss);
    EXPECT_EQ(dlogits, first);
  });
}

TEST(RouterAux, GradientsAgainstDifferenceQuotients) {
  const RouterOptions soft{.num_experts = 12, .top_k = 3},
      sigmoid{.num_experts = 19, .top_k = 4, .score = RouterScore::sigmoid};
  for (const AuxLossKind kind :
       {AuxLossKind::sequence, AuxLossKind::microbatch, AuxLossKind::joined, AuxLossKind::z}) {
    expect_gradients(soft, {.kind = kind}, 11, {0, 3, 3, 11}, 21);
    expect_gradients(sigmoid, {.kind = kind}, 9, {0, 9}, 22);
  }
}

TEST(RouterAux, DocumentsOfEveryLengthAcrossTheBlocks) {
  const RouterOptions o{.num_experts = 5, .top_k = 2, .score = RouterScore::sigmoid};
  // shorter than a block of 64, across one end, over several blocks, empty, ending on a block, and tokens of no document
  expect_gradients(o, {.kind = AuxLossKind::sequence}, 300, {0, 5, 5, 60, 70, 210, 256, 256, 290}, 31);
  expect_gradients(o, {.kind = AuxLossKind::sequence}, 130, {0, 64, 128}, 32);
  expect_gradients(o, {.kind = AuxLossKind::sequence}, 200, {3, 197}, 33);
}

TEST(RouterAux, GradientIsAddedAndNothingIsAddedWithoutTokens) {
  const Routing r = routed({.num_experts = 4, .top_k = 2}, random_logits(8, 4));
  for_each_context([&](const ExecContext& ctx) {
    for (const AuxLossKind kind :
         {AuxLossKind::sequence, AuxLossKind::microbatch, AuxLossKind::joined, AuxLossKind::z}) {
      const std::vector<std::int64_t> none(4, 0);
      const RouterAuxLoss a{
          .kind = kind, .coefficient = 1.0, .counts = none.data(), .joined_counts = none.data()};
      EXPECT_EQ(run(ctx, a, r, 0, 0, {0}).loss, 0.0);
      if (kind == AuxLossKind::z) continue;
      const AuxResult result = run(ctx, a, r, 0, 2, {0, 0});  // counts of zero, or no document with a token
      EXPECT_EQ(result.loss, 0.0);
      EXPECT_EQ(result.dlogits, std::vector<float>(8, 0.0F));
    }
  });
}

TEST(RouterAux, WrongArgumentsAreNamed) {
  ThreadPool pool(1);
  const ExecContext ctx{&pool, &kernels::kernel_table(kernels::available_isas().front())};
  const Routing r = routed({.num_experts = 4, .top_k = 2}, random_logits(8, 4));
  const std::vector<std::int64_t> joined = {1, 2, 0, 0};
  using ::planalto::testing::expect_error;
  expect_error(ErrorKind::internal, {"doc_offsets[2]", "3"}, [&] {
    run(ctx, {.kind = AuxLossKind::sequence}, r, 0, 2, {0, 1, 3});
  });
  expect_error(ErrorKind::internal, {"3 joined routes", "1 layers", "top_k 2"},
               [&] { run(ctx, {.kind = AuxLossKind::joined, .joined_counts = joined.data()}, r, 0, 2); });
  expect_error(ErrorKind::internal, {"joined_counts"},
               [&] { run(ctx, {.kind = AuxLossKind::joined}, r, 0, 2); });
}

}  // namespace
}  // namespace planalto::test
