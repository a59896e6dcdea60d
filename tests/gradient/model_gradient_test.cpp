// SPDX-License-Identifier: Apache-2.0
// model_gradient_test.cpp: losses, choices and the gradient of every parameter of whole models, as a training step makes them,
// against the same model in double and its central differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "gradient/differences.h"
#include "gradient/variants.h"
#include "kernels/isa.h"
#include "model/rope_table.h"
#include "runtime/launch.h"
#include "train/step_program.h"

namespace planalto {
namespace {

class ModelRun {
 public:
  explicit ModelRun(const Variant& v)
      : config_(v.config()),
        target_{kernels::choose_isa().isa, 1},
        programs_(config_, options(v), target_),
        launch_(programs_.table, programs_.all(), {.target = target_, .executor = {.measure = true}}),
        model_(sample_model(v, config_, programs_.parameters, programs_.table, launch_.address_of())) {
    const StepBuffers& s = programs_.buffers;
    fill_rope_table(config_.attention.rope, kCapacity, launch_.data<float>(s.rope_table));
    const double_model::Batch batch = sample_batch(config_);
    write_batch(batch, {launch_.data<std::int32_t>(s.ids), launch_.data<std::int32_t>(s.labels),
                        launch_.data<std::int32_t>(s.positions), launch_.data<std::int32_t>(s.doc_offsets),
                        launch_.data<std::int64_t>(s.counts)});
    double_model::Batch at_depth = batch;
    for (std::int64_t i = 0; i <= config_.num_mtp; ++i, at_depth = double_model::shifted(at_depth)) {
      launch_.data<std::int64_t>(s.trained)[i] = at_depth.num_trained();
      launch_.data<double>(s.loss_weights)[i] = loss_weight(i);
    }
    *launch_.data<kernels::AdamWScalars>(s.scalars) = {};  // learning rate 0: the parameters stay
    std::copy(model_.aux_scale.begin(), model_.aux_scale.end(), launch_.data<double>(s.aux_scale));
    launch_.run(programs_.step);
  }

  // Of the engine: main, MTP, auxiliary.
  std::vector<double> losses() const {
    const double* sums = launch_.data<double>(programs_.buffers.loss_sums);
    return {sums, sums + programs_.table[programs_.buffers.loss_sums].elements()};
  }
  // Of the engine, for the tokens that a block sees.
  std::vector<std::int32_t> choice(std::int64_t moe_idx, std::size_t n) const {
    const std::int32_t* ids =
        launch_.data<std::int32_t>(programs_.buffers.recorded_ids) + moe_idx * kCapacity * config_.moe.top_k;
    return {ids, ids + n};
  }
  std::vector<float> gradient(const Parameter& p) const {
    const float* g = launch_.data<float>(p.gradient);
    return {g, g + p.spec.elements()};
  }
  const ParameterSet& parameters() const { return programs_.parameters; }
  double_model::Model& model() { return model_; }

 private:
  static StepOptions options(const Variant& v) {
    StepOptions o;
    o.max_tokens = kCapacity;
    o.max_positions = kCapacity;
    o.recompute = v.recompute;
    o.loss_tile_rows = 8;
    o.aux_losses = v.aux;
    o.record_routes = true;
    return o;
  }

  ModelConfig config_;
  Target target_;
  TrainingPrograms programs_;
  Launch launch_;
  double_model::Model model_;
};

// What the gradient is of: weighted means of the main and the MTP losses, and the auxiliary losses.
double total_loss(double_model::Model& model, double_model::Batch batch) {
  const std::vector<double> losses = double_model::losses(model, batch);
  double total = 0.0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(losses.size()); ++i) {
    const double loss = losses[static_cast<std::size_t>(i)];
    const bool of_labels = i <= model.config.num_mtp;
    total += of_labels ? loss_weight(i) * loss / static_cast<double>(batch.num_trained()) : loss;
    if (of_labels) batch = double_model::shifted(batch);
  }
  return total;
}

class ModelGradient : public ::testing::TestWithParam<std::size_t> {};

TEST_P(ModelGradient, LossesAndChoicesAreThoseInDouble) {
  ModelRun run(variants()[GetParam()]);
  double_model::Model& model = run.model();
  const std::vector<double> expected = double_model::losses(model, sample_batch(model.config)),
                            losses = run.losses();
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], expected[i], 2e-6 * expected[i]) << "loss " << i;
  }
  std::int64_t moe_idx = 0;
  for (const auto& [block, ids] : model.choice) {
    EXPECT_EQ(run.choice(moe_idx++, ids.size()), ids) << "experts of block " << block;
  }
}

TEST_P(ModelGradient, EqualsCentralDifferences) {
  ModelRun run(variants()[GetParam()]);
  double_model::Model& model = run.model();
  const double_model::Batch batch = sample_batch(model.config);
  for (const Parameter& p : run.parameters().all()) {
    if (!p.gradient.valid()) continue;
    expect_central_differences(p.spec.name, run.gradient(p), model.weights.at(p.spec.name),
                               [&] { return total_loss(model, batch); });
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, ModelGradient, ::testing::Range<std::size_t>(0, variants().size()),
                         [](const auto& variant) { return std::string(variants()[variant.param].name); });

}  // namespace
}  // namespace planalto
