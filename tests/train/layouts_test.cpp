// SPDX-License-Identifier: Apache-2.0
// layouts_test.cpp: the same tokens in other microbatches, threads or rows give the same step.
#include <gtest/gtest.h>

#include <algorithm>

#include "train/tiny_training.h"

namespace planalto {
namespace {

using kernels::AuxLossKind;
using testing::aux_loss;
using testing::Finished;
using testing::gradient_of;
using testing::MemoryTokens;
using testing::random_document;
using testing::tiny_model;
using testing::tiny_options;
using testing::TinyRun;

ModelConfig with_mtp_module(const char* family) {
  JsonObject more;
  more.set("num_nextn_predict_layers", 1);
  return tiny_model(family, more);
}

TEST(Layouts, OneThreadEqualsTwoInEveryBitAfter50Steps) {
  struct Case {
    ModelConfig model;
    TinyRun run;
    bool recompute;
  };
  const Case cases[] = {
      {with_mtp_module("deepseek_v3"),
       {.seq_len = 32, .num_microbatches = 2, .precision = Precision::bf16, .steps = 50},
       true},
      {tiny_model("glm4_moe"), {.seq_len = 48, .micro_batch = 2, .steps = 50}, false},
  };
  for (const Case& c : cases) {
    TinyRun run = c.run;
    TrainerOptions options = tiny_options(c.model, run);
    options.step.recompute = c.recompute;
    options.step.aux_losses = {aux_loss(AuxLossKind::sequence, 0.01), aux_loss(AuxLossKind::z, 0.001)};
    const auto data = testing::random_lengths(40);
    const Finished one(c.model, options, data);
    options.target.num_threads = 2;
    const Finished two(c.model, options, data);
    EXPECT_EQ(testing::first_difference(one.trainer, two.trainer), "");
    EXPECT_EQ(one.trainer.state().updates, 50);
    for (std::size_t i = 0; i < 50; ++i) {
      EXPECT_EQ(one.recorder.steps[i].loss, two.recorder.steps[i].loss) << "step " << i + 1;
      EXPECT_EQ(one.recorder.steps[i].grad_norm, two.recorder.steps[i].grad_norm) << "step " << i + 1;
    }
  }
}

TEST(Layouts, PackedWeightsChangeNoBit) {
  for (const ModelConfig& model : {with_mtp_module("deepseek_v3"), tiny_model("qwen3_moe")}) {
    TrainerOptions options =
        tiny_options(model, {.seq_len = 32, .num_microbatches = 3, .precision = Precision::bf16, .steps = 6});
    const auto data = testing::random_lengths(40);
    const Finished packed(model, options, data);
    options.step.packed_weights = false;
    const Finished plain(model, options, data);
    int num_packed = 0;
    for (const Parameter& p : packed.trainer.programs().parameters.all()) {
      num_packed += p.packed() ? 1 : 0;
      EXPECT_FALSE(plain.trainer.programs().parameters.at(p.spec.name).packed());
      const float* a = testing::weight_of(packed.trainer, p.spec.name);
      const float* b = testing::weight_of(plain.trainer, p.spec.name);
      EXPECT_TRUE(std::equal(a, a + p.spec.elements(), b)) << p.spec.name;
    }
    EXPECT_GT(num_packed, 6);
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_EQ(packed.recorder.steps[i].loss, plain.recorder.steps[i].loss) << "step " << i + 1;
  }
}

// One step over the same eight rows. The gradients are what plain SGD would subtract, so a wrong factor shows.
TEST(Layouts, C020C048C057C058MicrobatchesAreOneBatch) {
  for (const ModelConfig& model :
       {tiny_model("glm4_moe"), tiny_model("qwen3_moe"), with_mtp_module("deepseek_v3")}) {
    for (const bool packed : {false, true}) {
      const auto data =
          packed ? testing::random_lengths(60) : testing::random_documents(std::vector<std::int64_t>(8, 64));
      const auto run = [&](std::int64_t microbatches) {
        TrainerOptions o = tiny_options(
            model, {.micro_batch = 8 / microbatches, .num_microbatches = microbatches, .steps = 1});
        // As large as the main loss, so that a factor on them would not drown in it.
        o.step.aux_losses = {aux_loss(AuxLossKind::sequence, 1.0), aux_loss(AuxLossKind::z, 0.1)};
        return Finished(model, o, data);
      };
      const Finished whole = run(1);
      const StepReport& expected = whole.recorder.steps[0];
      for (const std::int64_t microbatches : {2, 4, 8}) {
        SCOPED_TRACE(model.attention.kind == AttentionKind::mla ? "latent attention" : "grouped attention");
        SCOPED_TRACE(std::to_string(microbatches) + (packed ? " packed" : " whole rows"));
        const Finished parts = run(microbatches);
        const StepReport& got = parts.recorder.steps[0];
        const auto [error, where] = testing::worst_gradient_error(parts.trainer, whole.trainer);
        EXPECT_LT(error, 1e-5) << where;
        EXPECT_NEAR(got.loss, expected.loss, 1e-6 * expected.loss);
        EXPECT_NEAR(got.aux_loss, expected.aux_loss, 1e-6 * expected.aux_loss);
        // Clipped once, by the norm of the sum: that of a microbatch alone is another.
        EXPECT_NEAR(got.grad_norm, expected.grad_norm, 1e-5 * expected.grad_norm);
        EXPECT_EQ(got.trained, expected.trained);
      }
    }
  }
}

struct Alone {
  double loss;
  std::vector<float> gate_up, head;
};

Alone step_on(const std::vector<std::vector<std::int32_t>>& documents, StepReport* report = nullptr,
              std::int64_t rows = 1) {
  const ModelConfig model = tiny_model("glm4_moe");
  const MemoryTokens data(documents);
  const auto microbatches = static_cast<std::int64_t>(documents.size()) / rows;
  const Finished run(model,
                     tiny_options(model, {.micro_batch = rows,
                                          .num_microbatches = microbatches,
                                          .steps = 1,
                                          .shuffle = false,
                                          .pack = false}),
                     data);
  if (report != nullptr) *report = run.recorder.steps[0];
  return {run.recorder.steps[0].loss, gradient_of(run.trainer, "layers.1.experts.gate_up"),
          gradient_of(run.trainer, "lm_head")};
}

std::vector<float> mixed(const std::vector<float>& a, double of_a, const std::vector<float>& b, double of_b) {
  std::vector<float> sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = static_cast<float>(of_a * a[i] + of_b * b[i]);
  return sum;
}

// Three labels and one: their mean weighs 3 to 1. The gradient is the sum of what each microbatch alone has, so weighted.
TEST(Layouts, C056TheMeanIsOverLabels) {
  const auto a = random_document(4, 1), b = random_document(2, 2);
  const Alone both = step_on({a, b}), first = step_on({a}), second = step_on({b});
  EXPECT_NEAR(both.loss, (3.0 * first.loss + second.loss) / 4.0, 1e-6);
  EXPECT_LT(testing::relative_error(both.gate_up, mixed(first.gate_up, 0.75, second.gate_up, 0.25)), 1e-5);
  EXPECT_LT(testing::relative_error(both.head, mixed(first.head, 0.75, second.head, 0.25)), 1e-5);
  const Alone rows = step_on({a, b}, nullptr, 2);
  EXPECT_NEAR(both.loss, rows.loss, 1e-6);
}

TEST(Layouts, C054AMicrobatchWithoutLabelAddsNothing) {
  const auto a = random_document(20, 1), b = random_document(9, 2), c = random_document(33, 3);
  const auto no_label = random_document(1, 4);
  StepReport report;
  const Alone with = step_on({a, b, no_label, c}, &report), without = step_on({a, b, c});
  EXPECT_EQ(report.trained, 19 + 8 + 32);
  EXPECT_EQ(report.tokens, 20 + 9 + 1 + 33);
  EXPECT_NEAR(with.loss, without.loss, 1e-12);
  EXPECT_EQ(with.head, without.head);
  EXPECT_EQ(with.gate_up, without.gate_up);
}

TEST(Layouts, C054AStepWithoutAnyLabelIsSkippedAndCounted) {
  const ModelConfig model = tiny_model("glm4_moe");
  const MemoryTokens data({random_document(1, 1), random_document(1, 2), random_document(1, 3)});
  testing::Recorder recorder;
  Trainer trainer(model,
                  tiny_options(model, {.num_microbatches = 4, .steps = 2, .shuffle = false, .pack = false}),
                  data, nullptr, recorder);
  trainer.start_from_random(0.05);
  const auto before = testing::training_state(trainer);
  trainer.run();
  EXPECT_EQ(testing::training_state(trainer), before);
  EXPECT_EQ(trainer.state().skipped, 2);
  EXPECT_EQ(trainer.state().updates, 0);
  EXPECT_EQ(trainer.state().tokens, 8);
  EXPECT_TRUE(recorder.steps[0].skipped);
  EXPECT_EQ(recorder.steps[0].skip_reason, "no trained label");
  EXPECT_EQ(recorder.steps[0].loss, 0.0);
}

// Four documents in one row against each in a row of its own: loss, gradients and routes do not see the neighbour.
TEST(Layouts, C062PackedDocumentsEqualDocumentsAlone) {
  const MemoryTokens data({{1, 2, 3}, {4, 5, 6, 7, 8}, {9}, random_document(55, 4)});
  for (const ModelConfig& model :
       {tiny_model("glm4_moe"), tiny_model("qwen3_moe"), with_mtp_module("deepseek_v3")}) {
    const Finished packed(model, tiny_options(model, {.steps = 1, .shuffle = false}), data);
    const Finished alone(
        model, tiny_options(model, {.num_microbatches = 4, .steps = 1, .shuffle = false, .pack = false}),
        data);
    EXPECT_EQ(packed.recorder.steps[0].trained, 2 + 4 + 0 + 54);
    EXPECT_NEAR(packed.recorder.steps[0].loss, alone.recorder.steps[0].loss, 1e-6);
    const auto [error, where] = testing::worst_gradient_error(packed.trainer, alone.trainer);
    EXPECT_LT(error, 1e-5) << where;
  }
}

// Lengths from one token to a full row, in an arena of NaN: what a step needs is fixed by the config, not by the first batch.
TEST(Layouts, C043TheFirstBatchSizesNothing) {
  const ModelConfig model = tiny_model("glm4_moe");
  const MemoryTokens data({random_document(16, 1), random_document(64, 2), random_document(1, 3),
                           random_document(2, 4), random_document(64, 5)});
  const auto eval = testing::random_documents({64, 3, 64, 64, 1}, 9);
  TrainerOptions options = tiny_options(model, {.steps = 5, .shuffle = false, .pack = false});
  options.eval_every = 1;
  const Finished plain(model, options, data, &eval);
  options.executor.poison = true;
  const Finished poisoned(model, options, data, &eval);
  EXPECT_EQ(poisoned.trainer.state().updates, 4);
  EXPECT_EQ(poisoned.trainer.state().skipped, 1);
  EXPECT_EQ(testing::first_difference(plain.trainer, poisoned.trainer), "");
  EXPECT_EQ(plain.recorder.evals.back().loss, poisoned.recorder.evals.back().loss);
  EXPECT_EQ(plain.recorder.evals.back().labels, 63 + 2 + 63 + 63);
}

// 100 labels and 10: the loss is the mean over 110, however they fall into batches.
TEST(Layouts, C060EvaluationIsTheMeanOverLabels) {
  const ModelConfig model = tiny_model("glm4_moe");
  const auto a = random_document(101, 1), b = random_document(11, 2);
  const auto evaluate = [&](const std::vector<std::vector<std::int32_t>>& documents, std::int64_t rows) {
    const MemoryTokens eval(documents), data({a});
    testing::Recorder recorder;
    Trainer trainer(model, tiny_options(model, {.seq_len = 128, .micro_batch = rows, .pack = false}), data,
                    &eval, recorder);
    trainer.start_from_random(0.3);
    return trainer.evaluate();
  };
  const EvalReport first = evaluate({a}, 1), second = evaluate({b}, 1);
  EXPECT_EQ(first.labels, 100);
  EXPECT_EQ(second.labels, 10);
  const double expected = (100.0 * first.loss + 10.0 * second.loss) / 110.0;
  EXPECT_GT(std::abs(first.loss - second.loss), 0.01);  // a mean of means would differ
  for (const std::int64_t rows : {1, 3, 8}) EXPECT_NEAR(evaluate({a, b}, rows).loss, expected, 1e-6);
}

// The weight of the only expert is exactly 1: the layer is the dense block of the same weights, to the bit.
TEST(Layouts, C009OneExpertIsTheDenseBlock) {
  JsonObject one, dense;
  for (const auto& [key, value] : {std::pair{"n_routed_experts", 1}, std::pair{"num_experts_per_tok", 1},
                                   std::pair{"n_group", 1}, std::pair{"n_shared_experts", 0}}) {
    one.set(key, value);
  }
  one.set("routed_scaling_factor", 1.0);
  dense.set("first_k_dense_replace", 2);
  const ModelConfig moe_model = tiny_model("glm4_moe", one), dense_model = tiny_model("glm4_moe", dense);
  const auto data = testing::random_lengths(20);
  testing::Recorder recorder;
  Trainer moe(moe_model, tiny_options(moe_model, {.micro_batch = 2, .steps = 1}), data, nullptr, recorder);
  Trainer mlp(dense_model, tiny_options(dense_model, {.micro_batch = 2, .steps = 1}), data, nullptr,
              recorder);
  moe.start_from_random(0.1);
  mlp.start_from_random(0.1);
  const auto pairs = {std::pair{"experts.gate_up", "mlp.gate_up"}, std::pair{"experts.down", "mlp.down"}};
  for (const char* layer : {"layers.0.", "layers.1."}) {
    for (const auto& [from, to] : pairs) {
      const auto n =
          static_cast<std::size_t>(mlp.programs().parameters.at(layer + std::string(to)).spec.elements());
      std::copy_n(testing::weight_of(moe, layer + std::string(from)), n,
                  testing::weight_of(mlp, layer + std::string(to)));
    }
  }
  moe.run();
  mlp.run();
  EXPECT_EQ(recorder.steps[0].loss, recorder.steps[1].loss);
  for (const Parameter& p : mlp.programs().parameters.all()) {
    std::string name = p.spec.name;
    for (const auto& [ours, theirs] : pairs) {
      const std::size_t at = name.find(theirs);
      if (at != std::string::npos) name.replace(at, std::string::npos, ours);
    }
    EXPECT_EQ(gradient_of(moe, name), gradient_of(mlp, p.spec.name)) << name;
  }
}

}  // namespace
}  // namespace planalto
