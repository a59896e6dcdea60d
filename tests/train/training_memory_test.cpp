// SPDX-License-Identifier: Apache-2.0
// training_memory_test.cpp: what a training run does to memory: no allocation in a step, planned = written, flat over steps; and
// that nothing of it (recompute, evaluation, poison) changes a bit.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "support/allocation_counter.h"
#include "support/temp_folder.h"
#include "train/run_plan.h"
#include "train/tiny_training.h"

namespace planalto {
namespace {

using kernels::AuxLossKind;
using testing::aux_loss;
using testing::Finished;
using testing::Recorder;
using testing::tiny_model;
using testing::tiny_options;

struct Case {
  const char* name;
  const char* family;
  Precision precision;
  bool recompute;
  std::int64_t microbatches;
  bool short_documents;  // of 1 to 100 tokens instead of whole rows
  bool mtp;
  std::vector<ops::AuxLoss> aux;
};

const Case kCases[] = {
    {"fp32", "glm4_moe", Precision::fp32, false, 1, false, false, {}},
    {"bf16 recompute", "glm4_moe", Precision::bf16, true, 1, false, false, {}},
    {"fp32 recompute packed MTP", "deepseek_v3", Precision::fp32, true, 2, true, true, {}},
    {"bf16 packed MTP accumulation",
     "deepseek_v3",
     Precision::bf16,
     false,
     5,
     true,
     true,
     {aux_loss(AuxLossKind::sequence, 0.01)}},
    {"fp32 packed accumulation",
     "qwen3_moe",
     Precision::fp32,
     false,
     5,
     true,
     false,
     {aux_loss(AuxLossKind::joined, 0.01), aux_loss(AuxLossKind::z, 0.001)}},
    {"bf16 recompute packed accumulation",
     "qwen3_moe",
     Precision::bf16,
     true,
     2,
     true,
     false,
     {aux_loss(AuxLossKind::microbatch, 0.01), aux_loss(AuxLossKind::z, 0.001)}},
};

ModelConfig model_of(const Case& c) {
  JsonObject more;
  if (c.mtp) more.set("num_nextn_predict_layers", 1);
  return tiny_model(c.family, more);
}

TrainerOptions options_of(const Case& c, const ModelConfig& model, std::int64_t steps) {
  TrainerOptions o = tiny_options(
      model,
      {.micro_batch = 2, .num_microbatches = c.microbatches, .precision = c.precision, .steps = steps});
  o.step.recompute = c.recompute;
  o.step.aux_losses = c.aux;
  o.eval_every = 3;
  return o;
}

testing::MemoryTokens data_of(const Case& c) {
  return c.short_documents ? testing::random_lengths(60) : testing::random_documents({640, 640, 640});
}

TEST(TrainingMemory, StepsAndEvaluationsAllocateNothing) {
  if (!testing::allocations_can_be_counted()) GTEST_SKIP() << "a sanitizer has its own allocator";
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const ModelConfig model = model_of(c);
    const auto data = data_of(c), eval = testing::random_lengths(5, 11);
    Recorder silent(false);
    Trainer trainer(model, options_of(c, model, 20), data, &eval, silent);
    trainer.start_from_random(0.05);
    testing::AllocationCounter counter;
    trainer.run();
    EXPECT_EQ(counter.stop(), 0);
    EXPECT_EQ(trainer.state().updates, 20);
  }
}

// Buffers whose length a step learns when it runs: documents and the rows of MTP, which every document gives one less of.
bool may_be_underfilled(const BufferInfo& info) {
  if (info.role == Role::workspace) return true;
  return info.name.find("doc_offsets") != std::string::npos || info.name.find("mtp.") != std::string::npos;
}

TEST(TrainingMemory, WrittenIsPlanned) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const ModelConfig model = model_of(c);
    TrainerOptions options = options_of(c, model, 4);
    options.executor.measure = true;
    const auto data = data_of(c), eval = testing::random_lengths(5, 11);
    const Finished run(model, options, data, &eval);
    const MemoryReport report = run.trainer.launch().executor().memory_report();
    const MemoryPlan& plan = run.trainer.launch().plan();
    const BufferTable& table = run.trainer.programs().table;
    for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
      const auto i = static_cast<std::size_t>(tier);
      EXPECT_EQ(report.persistent[i].written, report.persistent[i].planned) << to_string(tier);
      EXPECT_EQ(report.transient[i].written, report.transient[i].planned) << to_string(tier);
    }
    EXPECT_EQ(report.persistent[1].planned + report.persistent[2].planned, 0);
    // The arena ends with the last planned byte, but for what rounds it up.
    EXPECT_LT(plan.arena_bytes[0] - report.transient[0].planned, 4096);
    for (const MemoryReport::Underfilled& u : report.underfilled) {
      EXPECT_TRUE(may_be_underfilled(table[u.buffer]))
          << table[u.buffer].name << ": " << u.filled << " of " << u.capacity << " bytes";
    }
  }
}

TEST(TrainingMemory, C103C013RecomputeChangesNoBit) {
  for (const char* family : {"glm4_moe", "deepseek_v3"}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      SCOPED_TRACE(std::string(family) + (precision == Precision::fp32 ? " fp32" : " bf16"));
      JsonObject more;
      if (std::string(family) == "deepseek_v3") more.set("num_nextn_predict_layers", 1);
      const ModelConfig model = tiny_model(family, more);
      TrainerOptions options =
          tiny_options(model, {.micro_batch = 2, .num_microbatches = 3, .precision = precision, .steps = 10});
      options.step.aux_losses = {aux_loss(AuxLossKind::sequence, 0.01)};
      // Three quarters of the tokens are one id: near ties, which a second choice could decide otherwise.
      std::vector<std::vector<std::int32_t>> documents;
      for (std::uint64_t d = 0; d < 20; ++d) {
        documents.push_back(testing::random_document(50, d));
        for (std::size_t i = 0; i < documents.back().size(); ++i) {
          if (i % 4 != 0) documents.back()[i] = 5;
        }
      }
      const testing::MemoryTokens data(documents);
      const Finished kept(model, options, data);
      options.step.recompute = true;
      const Finished recomputed(model, options, data);
      EXPECT_EQ(testing::first_difference(kept.trainer, recomputed.trainer), "");
      EXPECT_LT(recomputed.trainer.launch().plan().arena_bytes[0],
                kept.trainer.launch().plan().arena_bytes[0]);
      for (std::size_t i = 0; i < 10; ++i) {
        EXPECT_EQ(kept.recorder.steps[i].loss, recomputed.recorder.steps[i].loss);
        EXPECT_EQ(kept.recorder.steps[i].grad_norm, recomputed.recorder.steps[i].grad_norm);
      }
      // Routes are counted once: tokens x K in each main layer.
      const auto* totals =
          recomputed.trainer.launch().data<std::int64_t>(recomputed.trainer.programs().buffers.route_totals);
      for (std::int64_t layer = 0; layer < 2; ++layer) {
        std::int64_t sum = 0;
        for (std::int64_t e = 0; e < 8; ++e) sum += totals[layer * 8 + e];
        EXPECT_EQ(sum, recomputed.recorder.steps.back().tokens * 2);
      }
    }
  }
}

TEST(TrainingMemory, EvaluationChangesNeitherABitNorTheArena) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const ModelConfig model = model_of(c);
    TrainerOptions options = options_of(c, model, 6);
    const auto data = data_of(c), eval = testing::random_lengths(7, 11);
    options.eval_every = 0;
    const Finished without(model, options, data);
    options.eval_every = 1;
    const Finished with(model, options, data, &eval);
    EXPECT_EQ(with.recorder.evals.size(), 7U);
    EXPECT_EQ(testing::first_difference(without.trainer, with.trainer), "");
    EXPECT_EQ(without.trainer.launch().plan().arena_bytes[0], with.trainer.launch().plan().arena_bytes[0]);
    for (std::size_t i = 0; i < without.recorder.steps.size(); ++i)
      EXPECT_EQ(without.recorder.steps[i].loss, with.recorder.steps[i].loss);
  }
}

// Five experts that no token chooses, and arenas of signalling NaN before each step: rows that nobody wrote would show.
TEST(TrainingMemory, C017PoisonChangesNoBit) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const ModelConfig model = model_of(c);
    TrainerOptions options = options_of(c, model, 3);
    options.step.router_bias_rate = 0.0F;
    const auto data = data_of(c);
    const auto run = [&](Recorder& recorder) {
      auto trainer = std::make_unique<Trainer>(model, options, data, nullptr, recorder);
      trainer->start_from_random(0.05);
      for (const Parameter& p : trainer->programs().parameters.all()) {
        if (p.spec.role != ParameterRole::router_bias) continue;
        for (std::int64_t e = 3; e < 8; ++e) trainer->launch().data<float>(p.weight)[e] = -1e9F;
      }
      trainer->run();
      return trainer;
    };
    Recorder plain, poisoned, measured;
    const auto a = run(plain);
    options.executor.poison = true;
    const auto b = run(poisoned);
    options.executor.poison = false;
    options.executor.measure = true;  // poisons every transient buffer before its first use, in each step
    const auto m = run(measured);
    EXPECT_EQ(testing::first_difference(*a, *b), "");
    EXPECT_EQ(testing::first_difference(*a, *m), "");
    EXPECT_EQ(plain.steps.back().loss, measured.steps.back().loss);
    if (model.moe.correction_bias) {
      EXPECT_EQ(plain.steps.back().balance[0].dead_share, 5.0 / 8.0);
    }
  }
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/status");
  std::int64_t sum = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t kib = 0;
    words >> key >> kib;
    if (key == "RssAnon:" || key == "RssShmem:") sum += kib * 1024;
  }
  return sum;
}

class ResidentRecorder final : public TrainerObserver {
 public:
  void on_step(const StepReport& report) override {
    if (report.step == 10) after_10 = resident_bytes();
    most = std::max(most, resident_bytes());
  }
  std::int64_t after_10 = 0, most = 0;
};

// Short here; 1000 steps with PLANALTO_SOAK.
TEST(TrainingMemory, C042ResidentSizeIsFlatAndWithinThePlan) {
  if (!testing::allocations_can_be_counted()) GTEST_SKIP() << "a sanitizer keeps memory of its own";
  const ModelConfig model = tiny_model("glm4_moe");
  TrainerOptions options =
      tiny_options(model, {.micro_batch = 4, .steps = std::getenv("PLANALTO_SOAK") != nullptr ? 1000 : 150});
  options.eval_every = 50;
  const testing::TempFolder folder;
  options.checkpoint_dir = folder.file("checkpoints");
  options.save_every = 100;
  options.config_text = "{}";
  const auto data = testing::random_lengths(200), eval = testing::random_lengths(20, 11);
  ResidentRecorder recorder;
  Trainer trainer(model, options, data, &eval, recorder);
  trainer.start_from_random(0.05);
  trainer.run();
  EXPECT_LT(static_cast<double>(recorder.most), 1.01 * static_cast<double>(recorder.after_10));
  EXPECT_LT(recorder.most, trainer.launch().plan().arena_bytes[0] + kProcessOverheadBytes);
}

}  // namespace
}  // namespace planalto
