// SPDX-License-Identifier: Apache-2.0
// moe_cases_test.cpp: a whole MoE layer, from its config.json on, against figures by hand: what reaches the sum of the experts' outputs
// and the router's gradient. Expert e of four gives the unit vector e, so that the layer's output is the route weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json.h"
#include "kernels/isa.h"
#include "model/moe.h"
#include "model/rope_table.h"
#include "runtime/launch.h"

namespace planalto {
namespace {

using Four = std::array<float, 4>;

struct LayerRun {
  ModelConfig config;
  BufferTable table;
  ParameterSet parameters;
  ops::Batch batch;
  ModelContext m;
  Buffer x, y, dy, dx;
  Target target{kernels::choose_isa().isa, 1};

  explicit LayerRun(const std::string& router_keys)
      : config(read_model_config(
            parse_json(R"({"model_type": "deepseek_v3", "hidden_size": 4, "num_hidden_layers": 1,
          "vocab_size": 8, "num_attention_heads": 1, "q_lora_rank": null, "kv_lora_rank": 2, "qk_nope_head_dim": 2,
          "qk_rope_head_dim": 2, "v_head_dim": 2, "first_k_dense_replace": 0, "intermediate_size": 4, "n_routed_experts": 4,
          "num_experts_per_tok": 2, "moe_intermediate_size": 1, "n_shared_experts": 0, "n_group": 1, "topk_group": 1, )" +
                           router_keys + "}",
                       "config"),
            "config")),
        parameters(table, config, {.training = true}) {
    const auto input = [&](const char* name, DType dtype, std::int64_t rows, std::int64_t cols) {
      return table.add({.name = name,
                        .dtype = dtype,
                        .rows = rows,
                        .cols = cols,
                        .role = Role::input,
                        .persistent = true});
    };
    batch.ids = input("ids", DType::i32, 1, 1);
    batch.labels = input("labels", DType::i32, 1, 1);
    batch.positions = input("positions", DType::i32, 1, 1);
    batch.doc_offsets = input("doc_offsets", DType::i32, 2, 1);
    batch.counts = input("counts", DType::i64, ops::kNumCounts, 1);
    batch.aux_scale = input("aux_scale", DType::f64, ops::kNumScales, 1);
    batch.max_tokens = 1;
    x = input("x", DType::f32, 1, 4);
    y = input("y", DType::f32, 1, 4);
    dy = input("dy", DType::f32, 1, 4);
    dx = input("dx", DType::f32, 1, 4);
    m.config = &config;
    m.parameters = &parameters;
    m.loss_sums = input("loss_sums", DType::f64, 1, 1);
  }

  struct Result {
    Four y{}, router_gradient{};
  };
  // One token x = (1, 0, 0, 0), whose logits are the first column of the router; dy = (1, 0, 0, 0), so dL/dy is that of expert 0's weight.
  Result run(const Four& logits, const Four& bias) {
    Builder b(table, target, "layer", 0);
    MoeLayer moe(m, 0, 0);
    moe.forward(b, batch, x, y, Pass::first);
    moe.backward(b, batch, dy, dx);
    const Program program = b.finish();
    Launch launch(table, {&program}, {.target = target});
    const auto fill = [&](const std::string& name, const auto& value) {
      const Parameter& p = parameters.at("layers.0." + name);
      float* w = launch.data<float>(p.weight);
      for (std::int64_t i = 0; i < p.spec.elements(); ++i) w[i] = value(i / p.spec.cols, i % p.spec.cols);
    };
    fill("router",
         [&](std::int64_t e, std::int64_t d) { return d == 0 ? logits[static_cast<std::size_t>(e)] : 0.0F; });
    if (parameters.has("layers.0.router.correction_bias"))
      fill("router.correction_bias",
           [&](std::int64_t, std::int64_t e) { return bias[static_cast<std::size_t>(e)]; });
    // silu(4) * up = 1
    const float up = static_cast<float>((1.0 + std::exp(-4.0)) / 4.0);
    fill("experts.gate_up", [&](std::int64_t row, std::int64_t d) {
      return d != 0 ? 0.0F : row % 2 == 0 ? 4.0F : up;
    });
    fill("experts.down", [&](std::int64_t row, std::int64_t) { return row % 4 == row / 4 ? 1.0F : 0.0F; });
    launch.data<std::int32_t>(batch.ids)[0] = launch.data<std::int32_t>(batch.positions)[0] = 0;
    launch.data<std::int32_t>(batch.labels)[0] = 1;
    launch.data<std::int32_t>(batch.doc_offsets)[0] = 0;
    launch.data<std::int32_t>(batch.doc_offsets)[1] = 1;
    std::fill_n(launch.data<std::int64_t>(batch.counts), ops::kNumCounts, std::int64_t{1});
    std::fill_n(launch.data<double>(m.loss_sums), 1, 0.0);
    for (const Buffer v : {x, dy}) {
      std::fill_n(launch.data<float>(v), 4, 0.0F);
      launch.data<float>(v)[0] = 1.0F;
    }
    launch.run(program);
    Result result;
    std::copy_n(launch.data<float>(y), 4, result.y.begin());
    const float* g = launch.data<float>(parameters.at("layers.0.router").gradient);
    for (std::size_t e = 0; e < 4; ++e) result.router_gradient[e] = g[e * 4];
    return result;
  }
};

void expect_near(const Four& actual, const Four& expected) {
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(actual[i], expected[i], 2e-6) << i;
}

std::string keys(const char* score, const char* method, bool normalize, const char* scaling) {
  return std::string(R"("scoring_func": ")") + score + R"(", "topk_method": ")" + method +
         R"(", "norm_topk_prob": )" + (normalize ? "true" : "false") + R"(, "routed_scaling_factor": )" +
         scaling;
}

// The figures of the case, once in the output: a factor that is lost, or applied again in the sum, shows.
TEST(MoeCases, C001C002TheFactorReachesTheOutputOnce) {
  const Four logits{2, 1, 0, -1}, none{};
  const auto output = [&](const char* score, const char* method, bool normalize, const char* scaling) {
    return LayerRun(keys(score, method, normalize, scaling)).run(logits, none).y;
  };
  expect_near(output("softmax", "greedy", false, "1.0"), {0.643914F, 0.236883F, 0, 0});
  expect_near(output("softmax", "greedy", true, "1.0"), {0.731059F, 0.268941F, 0, 0});
  expect_near(output("softmax", "greedy", false, "2.5"), {1.609786F, 0.592207F, 0, 0});
  expect_near(output("softmax", "greedy", true, "2.5"), {1.827646F, 0.672354F, 0, 0});
  expect_near(output("sigmoid", "noaux_tc", false, "2.5"), {2.201993F, 1.827646F, 0, 0});
  expect_near(output("sigmoid", "noaux_tc", true, "2.5"), {1.366123F, 1.133877F, 0, 0});
}

// Scores .6, .5, .4, .3 and bias 1 for expert 2: experts 0 and 2 with weights .6 and .4. With w0 = s0 / (s0 + s2), dw0/dl0 =
// s0 (1 - s0) s2 / (s0 + s2)^2 = .096 and dw0/dl2 = -s0 s2 (1 - s2) / (s0 + s2)^2 = -.144.
TEST(MoeCases, C003TheBiasIsInNoWeightAndInNoGradient) {
  const auto logit = [](double score) { return static_cast<float>(std::log(score / (1.0 - score))); };
  LayerRun run(keys("sigmoid", "noaux_tc", true, "1.0"));
  const LayerRun::Result r = run.run({logit(.6), logit(.5), logit(.4), logit(.3)}, {0, 0, 1, 0});
  expect_near(r.y, {.6F, 0, .4F, 0});
  expect_near(r.router_gradient, {.096F, 0, -.144F, 0});
  EXPECT_FALSE(run.parameters.at("layers.0.router.correction_bias").gradient.valid());
}

}  // namespace
}  // namespace planalto
