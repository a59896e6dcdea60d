// SPDX-License-Identifier: Apache-2.0
// training_run_test.cpp: what a run does with bad steps, with decay, schedule and experts that nobody chooses, and with routes that
// are recorded and replayed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "kernels/isa.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"
#include "train/setup.h"
#include "train/tiny_training.h"

namespace planalto {
namespace {

using testing::Finished;
using ::testing::HasSubstr;
using testing::MemoryTokens;
using testing::random_document;
using testing::Recorder;
using testing::tiny_model;
using testing::tiny_options;
using testing::weight_of;

constexpr std::int32_t kBadToken = 511;

// Eight documents, one a step; those of bad_steps hold the token whose embedding is NaN.
MemoryTokens eight_documents(const std::vector<std::size_t>& bad_steps, bool leave_out = false) {
  std::vector<std::vector<std::int32_t>> documents;
  for (std::size_t step = 1; step <= 8; ++step) {
    const bool bad = std::find(bad_steps.begin(), bad_steps.end(), step) != bad_steps.end();
    if (bad && leave_out) continue;
    documents.push_back(random_document(30, step));
    if (bad) documents.back()[7] = kBadToken;
  }
  return MemoryTokens(documents);
}

TrainerOptions one_document_a_step(const ModelConfig& model, std::int64_t steps) {
  return tiny_options(model, {.steps = steps, .shuffle = false, .pack = false});
}

void spoil_embedding(Trainer& trainer) {
  const Parameter& p = trainer.programs().parameters.at("embed_tokens");
  trainer.launch().data<float>(p.weight)[kBadToken * 64 + 3] = std::numeric_limits<float>::quiet_NaN();
}

TEST(BadSteps, C052ASkippedStepIsAsIfItHadNotBeen) {
  const ModelConfig model = tiny_model("glm4_moe");
  const MemoryTokens with = eight_documents({4}), without = eight_documents({4}, true);
  Recorder eight, seven;
  TrainerOptions options = one_document_a_step(model, 8);
  options.on_nonfinite = NonFinite::skip;
  options.schedule = {.kind = ScheduleKind::cosine, .learning_rate = 1e-2, .steps = 8, .warmup_steps = 5};
  Trainer a(model, options, with, nullptr, eight);
  options.steps = 7;
  Trainer b(model, options, without, nullptr, seven);
  for (Trainer* t : {&a, &b}) {
    t->start_from_random(0.05);
    spoil_embedding(*t);
    t->run();
  }
  EXPECT_EQ(testing::first_difference(a, b), "");
  EXPECT_EQ(a.state().updates, 7);
  EXPECT_EQ(a.state().skipped, 1);
  EXPECT_EQ(a.state().skipped_in_row, 0);
  EXPECT_TRUE(eight.steps[3].skipped);
  EXPECT_THAT(eight.steps[3].skip_reason, HasSubstr("embed_tokens"));
  EXPECT_TRUE(std::isfinite(eight.steps[4].loss));
  // C051: the schedule did not move on either.
  EXPECT_EQ(eight.steps[4].learning_rate, seven.steps[3].learning_rate);
}

TEST(BadSteps, C047ANanStopsTheRunAndGoodCheckpointsSurvive) {
  const ModelConfig model = tiny_model("glm4_moe");
  const MemoryTokens data = eight_documents({5});
  const testing::TempFolder folder;
  TrainerOptions options = one_document_a_step(model, 12);
  options.checkpoint_dir = folder.file("checkpoints");
  options.save_every = 1;
  options.keep = 2;
  options.config_text = "{}";
  Recorder recorder;
  Trainer trainer(model, options, data, nullptr, recorder);
  trainer.start_from_random(0.05);
  spoil_embedding(trainer);
  testing::expect_error(ErrorKind::data, {"step 5", "embed_tokens", "no parameter"}, [&] { trainer.run(); });
  EXPECT_EQ(trainer.state().updates, 4);
  EXPECT_EQ(trainer.state().skipped, 1);
  const auto kept = list_checkpoints(options.checkpoint_dir);
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].step, 3);
  EXPECT_EQ(kept[1].step, 4);
  // Nothing moved in step 5: the state is that of a run of four steps.
  options.checkpoint_dir.clear();
  options.steps = 4;
  Trainer four(model, options, data, nullptr, recorder);
  four.start_from_random(0.05);
  spoil_embedding(four);
  four.run();
  EXPECT_EQ(testing::first_difference(trainer, four), "");
}

TEST(BadSteps, C047ASetNumberInARowStopsTheRun) {
  const ModelConfig model = tiny_model("glm4_moe");
  const MemoryTokens data = eight_documents({2, 5, 6, 7});
  TrainerOptions options = one_document_a_step(model, 8);
  options.on_nonfinite = NonFinite::skip;
  options.max_bad_steps = 3;
  Recorder recorder;
  Trainer trainer(model, options, data, nullptr, recorder);
  trainer.start_from_random(0.05);
  spoil_embedding(trainer);
  testing::expect_error(ErrorKind::data, {"step 7", "3 steps in a row", "max_bad_steps"},
                        [&] { trainer.run(); });
  EXPECT_EQ(trainer.state().skipped, 4);
}

// The last of these layers holds the value that is not finite; every gradient is bad then, the weight alone tells.
TEST(BadSteps, C008TheWeightThatIsNotFiniteIsNamed) {
  const ModelConfig model = tiny_model("glm4_moe");
  const MemoryTokens data = eight_documents({});
  for (const char* name : {"layers.1.experts.down", "layers.0.router", "layers.1.input_layernorm"}) {
    Recorder recorder;
    Trainer trainer(model, one_document_a_step(model, 8), data, nullptr, recorder);
    trainer.start_from_random(0.05);
    float* w = weight_of(trainer, name);
    const std::int64_t n = trainer.programs().parameters.at(name).spec.elements();
    std::fill_n(w, n, std::numeric_limits<float>::infinity());
    testing::expect_error(ErrorKind::data, {"step 1", name}, [&] { trainer.run(); });
  }
}

// All weights are finite; the sums of one layer are not.
TEST(BadSteps, C008TheLayerAndTheOpThatOverflowAreNamed) {
  const ModelConfig model = tiny_model("glm4_moe");
  const MemoryTokens data = eight_documents({});
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    TrainerOptions options = tiny_options(
        model, {.num_microbatches = 4, .precision = precision, .steps = 2, .shuffle = false, .pack = false});
    options.on_nonfinite = NonFinite::skip;
    Recorder recorder;
    Trainer trainer(model, options, data, nullptr, recorder);
    trainer.start_from_random(0.05);
    const Parameter& down = trainer.programs().parameters.at("layers.1.experts.down");
    if (precision == Precision::fp32) {
      std::fill_n(trainer.launch().data<float>(down.weight), down.spec.elements(), 3e38F);
    } else {
      const std::int64_t n = trainer.programs().table[down.packed_forward].elements();
      std::fill_n(trainer.launch().data<bf16>(down.packed_forward), n, to_bf16(3e38F));
    }
    const auto before = testing::training_state(trainer);
    trainer.run();
    EXPECT_EQ(testing::training_state(trainer), before);
    for (const StepReport& step : recorder.steps) {
      EXPECT_TRUE(step.skipped);
      EXPECT_THAT(step.skip_reason, HasSubstr("op first.layers.1.experts.down wrote"));
    }
  }
}

TEST(Optimizer, C051TheLearningRateDoesNotSeeMicrobatches) {
  const ModelConfig model = tiny_model("glm4_moe");
  const auto data = testing::random_documents(std::vector<std::int64_t>(8, 8));
  std::vector<std::vector<double>> rates;
  for (const std::int64_t microbatches : {1, 8}) {
    TrainerOptions options =
        tiny_options(model, {.seq_len = 8, .num_microbatches = microbatches, .steps = 100});
    options.schedule = {
        .kind = ScheduleKind::cosine, .learning_rate = 0.01, .steps = 100, .warmup_steps = 10};
    const Finished run(model, options, data);
    rates.emplace_back();
    for (const StepReport& r : run.recorder.steps) rates.back().push_back(r.learning_rate);
  }
  EXPECT_EQ(rates[0], rates[1]);
  EXPECT_DOUBLE_EQ(rates[0][0], 0.001);
  EXPECT_DOUBLE_EQ(rates[0][9], 0.01);
}

// The final norm's gains in bf16: steps of 1e-4 are far below half a step of bf16 at 1.0 (0.00195), and still add up. A gain whose
// gradient keeps its sign moves by the learning rate a step, less where the gradient varies.
TEST(Optimizer, C050NormGainsMoveThroughTheirMasters) {
  const ModelConfig model = tiny_model("glm4_moe");
  const MemoryTokens data({random_document(60, 3)});
  TrainerOptions options = tiny_options(model, {.precision = Precision::bf16, .steps = 100});
  options.schedule.learning_rate = 1e-4;
  struct Signs final : TrainerObserver {
    const Trainer* trainer = nullptr;
    std::vector<int> positive = std::vector<int>(64, 0);
    void on_step(const StepReport&) override {
      const std::vector<float> g = testing::gradient_of(*trainer, "norm");
      for (std::size_t i = 0; i < g.size(); ++i) positive[i] += g[i] > 0.0F ? 1 : 0;
    }
  } signs;
  Trainer trainer(model, options, data, nullptr, signs);
  signs.trainer = &trainer;
  trainer.start_from_random(0.05);
  trainer.run();
  const float* master = weight_of(trainer, "norm");
  const auto* copy = trainer.launch().data<bf16>(trainer.programs().parameters.at("norm").weight);
  int moved = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(to_float(copy[i]), to_float(to_bf16(master[i]))) << i;
    if (signs.positive[i] != 0 && signs.positive[i] != 100) continue;
    const double way = signs.positive[i] == 100 ? 1.0 - master[i] : master[i] - 1.0;
    EXPECT_GT(way, 0.003) << i;
    EXPECT_LT(way, 0.0105) << i;
    EXPECT_NE(to_float(copy[i]), 1.0F) << i;
    ++moved;
  }
  EXPECT_GT(moved, 3);
}

// C106 at the level of a run: bf16 training sums microbatches into fp32 gradients, each of them.
TEST(Optimizer, C106GradientsOfABf16RunAreFp32) {
  const ModelConfig model = tiny_model("deepseek_v3");
  const TrainerOptions options = tiny_options(model, {.num_microbatches = 4, .precision = Precision::bf16});
  const TrainingPrograms programs(model, options.step, options.target);
  for (const Parameter& p : programs.parameters.all()) {
    if (!p.spec.trainable) continue;
    EXPECT_EQ(programs.table[p.gradient].dtype, DType::f32) << p.spec.name;
  }
}

// Expert 7 and an unused embedding row have gradient zero: lr 0.1 and decay 0.1 make 0.99 of them. Vectors do not decay.
TEST(Optimizer, C049DecayIsOnMatricesAlone) {
  const ModelConfig model = tiny_model("glm4_moe");
  const MemoryTokens data = eight_documents({});
  const auto run = [&](float decay) {
    TrainerOptions options = one_document_a_step(model, 1);
    options.schedule.learning_rate = 0.1;
    options.step.weight_decay = decay;
    options.step.router_bias_rate = 0.0F;
    auto recorder = std::make_unique<Recorder>();
    auto trainer = std::make_unique<Trainer>(model, options, data, nullptr, *recorder);
    trainer->start_from_random(0.05);
    for (const char* layer : {"layers.0.router.correction_bias", "layers.1.router.correction_bias"})
      weight_of(*trainer, layer)[7] = -1e9F;
    std::vector<std::vector<float>> before;
    for (const char* name : {"layers.1.experts.down", "embed_tokens"}) {
      const float* w = weight_of(*trainer, name);
      before.emplace_back(w, w + trainer->programs().parameters.at(name).spec.elements());
    }
    trainer->run();
    return std::tuple(std::move(recorder), std::move(trainer), before);
  };
  const auto [r0, plain, before] = run(0.0F);
  const auto [r1, decayed, same] = run(0.1F);
  const std::int64_t expert = 7 * 64 * 96, row = kBadToken * 64;
  for (std::int64_t i = 0; i < 64; ++i) {
    const float down = before[0][static_cast<std::size_t>(expert + i)];
    const float token = before[1][static_cast<std::size_t>(row + i)];
    EXPECT_FLOAT_EQ(weight_of(*decayed, "layers.1.experts.down")[expert + i], 0.99F * down);
    EXPECT_FLOAT_EQ(weight_of(*decayed, "embed_tokens")[row + i], 0.99F * token);
    EXPECT_EQ(weight_of(*plain, "layers.1.experts.down")[expert + i], down);
  }
  for (const Parameter& p : decayed->programs().parameters.all()) {
    const std::int64_t n = p.spec.elements();
    const bool equal = std::equal(weight_of(*plain, p.spec.name), weight_of(*plain, p.spec.name) + n,
                                  weight_of(*decayed, p.spec.name));
    EXPECT_EQ(equal, p.spec.kind == ParameterKind::vector) << p.spec.name;
  }
}

// An expert without a token has moments in the file, and a resume goes on as if nothing had been.
TEST(Optimizer, C053StateExistsForEveryParameter) {
  const ModelConfig model = tiny_model("glm4_moe");
  const MemoryTokens data = eight_documents({});
  const testing::TempFolder folder;
  TrainerOptions options = one_document_a_step(model, 6);
  options.step.router_bias_rate = 0.0F;
  options.config_text = "{}";
  const auto block = [](Trainer& t, float bias) {
    weight_of(t, "layers.1.router.correction_bias")[7] = bias;
  };
  Recorder recorder;
  options.steps = 1;
  options.checkpoint_dir = folder.file("checkpoints");
  Trainer first(model, options, data, nullptr, recorder);
  first.start_from_random(0.05);
  block(first, -1e9F);
  first.run();
  const auto saved = list_checkpoints(options.checkpoint_dir);
  ASSERT_EQ(saved.size(), 1U);
  options.checkpoint_dir.clear();
  options.steps = 6;
  Trainer resumed(model, options, data, nullptr, recorder);
  resumed.resume(saved[0].path);
  EXPECT_EQ(testing::first_difference(first, resumed), "");
  block(resumed, 0.0F);
  resumed.run();
  // The same six steps without a stop: unblocked after the first, by an observer that is told of it.
  class Unblocker final : public TrainerObserver {
   public:
    void on_step(const StepReport& report) override {
      if (report.step == 1) weight_of(*trainer, "layers.1.router.correction_bias")[7] = 0.0F;
    }
    Trainer* trainer = nullptr;
  } unblocker;
  Trainer whole(model, options, data, nullptr, unblocker);
  unblocker.trainer = &whole;
  whole.start_from_random(0.05);
  block(whole, -1e9F);
  whole.run();
  EXPECT_EQ(testing::first_difference(resumed, whole), "");
}

// All tokens to expert 0 of layer 1.
TEST(Balance, C100DeadExpertsAreSeen) {
  JsonObject more;
  more.set("num_experts_per_tok", 1);
  const ModelConfig model = tiny_model("glm4_moe", more);
  const auto data = testing::random_lengths(20);
  for (const bool recompute : {false, true}) {
    TrainerOptions options = tiny_options(model, {.num_microbatches = 2, .steps = 2});
    options.step.recompute = recompute;
    Recorder recorder;
    Trainer trainer(model, options, data, nullptr, recorder);
    trainer.start_from_random(0.05);
    weight_of(trainer, "layers.1.router.correction_bias")[0] = 1e6F;
    trainer.run();
    ASSERT_EQ(recorder.steps[0].balance.size(), 2U);
    const LayerBalance& b = recorder.steps[0].balance[1];
    EXPECT_EQ(b.block, 1);
    EXPECT_EQ(b.max_over_mean, 8.0);
    EXPECT_EQ(b.min_over_mean, 0.0);
    EXPECT_EQ(b.dead_share, 7.0 / 8.0);
    EXPECT_EQ(b.entropy, 0.0);
    EXPECT_EQ(b.bias_max, 1e6);  // - 0.01 is lost in fp32
    EXPECT_FLOAT_EQ(static_cast<float>(b.bias_min), 0.01F);
    EXPECT_LT(recorder.steps[0].balance[0].max_over_mean, 8.0);
  }
}

// The bias moves by the rate towards an even load, each step by the sign of what that step counted.
TEST(Balance, C014TheBiasFollowsTheCountsOfEachStep) {
  class Follower final : public TrainerObserver {
   public:
    void on_step(const StepReport&) override {
      const auto* totals = trainer->launch().data<std::int64_t>(trainer->programs().buffers.route_totals);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        std::int64_t sum = 0;
        for (std::size_t e = 0; e < 8; ++e) sum += totals[i / 8 * 8 + e];
        const std::int64_t above = 8 * totals[i] - sum;  // 8 times the distance from the mean
        if (above != 0) expected[i] += above < 0 ? 0.01F : -0.01F;
      }
    }
    Trainer* trainer = nullptr;
    std::vector<float> expected = std::vector<float>(16, 0.0F);
  } follower;
  const ModelConfig model = tiny_model("glm4_moe");
  const auto data = testing::random_lengths(30);
  Trainer trainer(model, tiny_options(model, {.num_microbatches = 3, .steps = 20}), data, nullptr, follower);
  follower.trainer = &trainer;
  trainer.start_from_random(0.05);
  trainer.run();
  for (std::size_t layer = 0; layer < 2; ++layer) {
    const float* bias = weight_of(trainer, "layers." + std::to_string(layer) + ".router.correction_bias");
    for (std::size_t e = 0; e < 8; ++e)
      EXPECT_EQ(bias[e], follower.expected[layer * 8 + e]) << layer << " " << e;
  }
}

// debug.router

TEST(RouterDebug, TheSettingReachesTheTrainer) {
  const std::string text = R"([model]
model_type = "qwen3_moe"
hidden_size = 64
num_hidden_layers = 2
vocab_size = 512
num_attention_heads = 4
num_key_value_heads = 2
head_dim = 16
intermediate_size = 96
num_experts = 8
num_experts_per_tok = 2
moe_intermediate_size = 96
[train]
seq_len = 32
)";
  const auto options = [&](const std::string& router) {
    const RunConfig config = parse_run_config(text, "run.toml", {"debug.router=" + router}, {.data = false});
    return setup_model(config, {.isa = kernels::choose_isa().isa, .num_threads = 1}).options;
  };
  const TrainerOptions none = options("none"), record = options("record:a/b"), replay = options("replay:c");
  EXPECT_FALSE(none.step.record_routes || none.step.replay_routes);
  EXPECT_TRUE(record.step.record_routes && !record.step.replay_routes);
  EXPECT_EQ(record.record_path, "a/b");
  EXPECT_TRUE(replay.step.replay_routes && !replay.step.record_routes);
  EXPECT_EQ(replay.replay_path, "c");
  EXPECT_EQ(options("balanced").forced_routes, moe::ForcedPattern::balanced);
  EXPECT_EQ(options("all_to_one").forced_routes, moe::ForcedPattern::all_to_one);
  EXPECT_TRUE(options("all_to_one").step.replay_routes);
}

TEST(RouterDebug, ARecordingReplaysToTheSameBits) {
  for (const bool recompute : {false, true}) {
    JsonObject more;
    more.set("num_nextn_predict_layers", 1);
    const ModelConfig model = tiny_model("deepseek_v3", more);
    const auto data = testing::random_lengths(30);
    const testing::TempFolder folder;
    TrainerOptions options = tiny_options(model, {.num_microbatches = 4, .steps = 4});
    options.step.recompute = recompute;
    const Finished plain(model, options, data);
    options.step.record_routes = true;
    options.record_path = folder.file("routes");
    const Finished recorded(model, options, data);
    EXPECT_EQ(testing::first_difference(plain.trainer, recorded.trainer), "");
    options.step.record_routes = false;
    options.step.replay_routes = true;
    options.replay_path = options.record_path;
    options.record_path.clear();
    const Finished replayed(model, options, data);
    EXPECT_EQ(testing::first_difference(plain.trainer, replayed.trainer), "");
    // Another precision takes the same routes: the counts of every expert are those of the recording.
    options.step.precision = Precision::bf16;
    const Finished other(model, options, data);
    const auto totals = [](const Trainer& t) {
      const auto* p = t.launch().data<std::int64_t>(t.programs().buffers.route_totals);
      return std::vector<std::int64_t>(p, p + 3 * 8);
    };
    EXPECT_EQ(totals(other.trainer), totals(plain.trainer));
    // A fifth step is not in the file.
    options.steps = 5;
    testing::expect_error(ErrorKind::config, {"steps 1 to 4", "not step 5"},
                          [&] { const Finished more_steps(model, options, data); });
  }
}

// Looks at the recording after every step, as whoever comes after a kill would.
class RecordingReader final : public TrainerObserver {
 public:
  RecordingReader(std::string path, const RouteShape& shape) : path_(std::move(path)), shape_(shape) {}
  void on_step(const StepReport& report) override {
    const RouteReplay recording(path_, shape_);
    seen.push_back(recording.first_step() + recording.num_steps() - 1 - report.step);
  }
  std::vector<std::int64_t> seen;

 private:
  std::string path_;
  RouteShape shape_;
};

TEST(RouterDebug, ARunThatFailsLeavesItsRecording) {
  const ModelConfig model = tiny_model("glm4_moe");
  const MemoryTokens data = eight_documents({5});
  const testing::TempFolder folder;
  TrainerOptions options = one_document_a_step(model, 8);
  options.step.record_routes = true;
  options.record_path = folder.file("routes");
  const RouteShape shape{.moe_blocks = 2, .microbatches = 1, .tokens = 64, .top_k = 2, .num_experts = 8};
  RecordingReader reader(options.record_path, shape);
  {
    Trainer trainer(model, options, data, nullptr, reader);
    trainer.start_from_random(0.05);
    spoil_embedding(trainer);
    testing::expect_error(ErrorKind::data, {"step 5"}, [&] { trainer.run(); });
  }
  EXPECT_EQ(reader.seen, (std::vector<std::int64_t>{0, 0, 0, 0}));
  const RouteReplay recording(options.record_path, shape);
  EXPECT_EQ(recording.first_step(), 1);
  EXPECT_EQ(recording.num_steps(), 5);
  // What it holds replays to the same bits; the step that failed is there to be looked at.
  options.steps = 4;
  options.step.record_routes = false;
  const std::string path = std::exchange(options.record_path, "");
  const Finished plain(model, options, data);
  options.step.replay_routes = true;
  options.replay_path = path;
  const Finished replayed(model, options, data);
  EXPECT_EQ(testing::first_difference(plain.trainer, replayed.trainer), "");
}

TEST(RouterDebug, ARecordingThatWasCutOffEndsWithItsLastWholeStep) {
  const testing::TempFolder folder;
  const std::string path = folder.file("routes");
  const RouteShape shape{.moe_blocks = 1, .microbatches = 1, .tokens = 1, .top_k = 2, .num_experts = 8};
  constexpr std::int64_t kHeader = 56, kStep = 16;
  const auto write = [&](std::int64_t steps_done, std::int64_t from, std::int64_t to) {
    RouteRecorder recorder(path, shape, steps_done);
    for (std::int64_t step = from; step <= to; ++step)
      recorder.add(step, std::vector<std::int32_t>{0, static_cast<std::int32_t>(step)});
  };
  const auto second_ids = [&] {
    std::vector<std::int32_t> found, ids(2);
    const RouteReplay replay(path, shape);
    for (std::int64_t i = 0; i < replay.num_steps(); ++i) {
      replay.read(replay.first_step() + i, ids);
      found.push_back(ids[1]);
    }
    return found;
  };
  write(0, 1, 3);
  for (std::int64_t bytes = kHeader + 2 * kStep; bytes < kHeader + 3 * kStep; ++bytes) {
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(bytes));
    EXPECT_EQ(second_ids(), (std::vector<std::int32_t>{1, 2}));
  }
  std::vector<std::int32_t> ids(2);
  testing::expect_error(ErrorKind::config, {"steps 1 to 2", "cut off", "not step 3"},
                        [&] { RouteReplay(path, shape).read(3, ids); });
  // A resumed run goes on behind its last step, and drops what an abandoned continuation left.
  write(2, 3, 5);
  EXPECT_EQ(second_ids(), (std::vector<std::int32_t>{1, 2, 3, 4, 5}));
  write(3, 4, 4);
  EXPECT_EQ(second_ids(), (std::vector<std::int32_t>{1, 2, 3, 4}));
  // A file that does not hold the steps before is another run's.
  write(6, 7, 7);
  EXPECT_EQ(RouteReplay(path, shape).first_step(), 7);
  EXPECT_EQ(second_ids(), (std::vector<std::int32_t>{7}));
  std::filesystem::resize_file(path, kHeader + kStep - 1);
  testing::expect_error(ErrorKind::data, {"not one whole step"}, [&] { RouteReplay(path, shape); });
  testing::expect_error(ErrorKind::io, {"debug.router", folder.path()},
                        [&] { RouteRecorder(folder.path(), shape, 0); });
}

TEST(RouterDebug, BalancedAndAllToOne) {
  const ModelConfig model = tiny_model("glm4_moe");
  const auto data = testing::random_documents({64, 64, 64, 64});
  TrainerOptions options = tiny_options(model, {.num_microbatches = 2, .steps = 1});
  options.step.replay_routes = true;
  options.forced_routes = moe::ForcedPattern::balanced;
  const Finished balanced(model, options, data);
  options.forced_routes = moe::ForcedPattern::all_to_one;
  const Finished one(model, options, data);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(balanced.recorder.steps[0].balance[layer].max_over_mean, 1.0);
    EXPECT_EQ(one.recorder.steps[0].balance[layer].max_over_mean, 4.0);  // two of eight have all
    EXPECT_EQ(one.recorder.steps[0].balance[layer].dead_share, 0.75);
  }
}

TEST(RouterDebug, C010IdsOfAFileThatAreNoExpertAreRefused) {
  const testing::TempFolder folder;
  const RouteShape shape{.moe_blocks = 1, .microbatches = 1, .tokens = 2, .top_k = 2, .num_experts = 8};
  const auto replay = [&](std::vector<std::int32_t> ids) {
    RouteRecorder(folder.file("routes"), shape, 0).add(1, ids);
    RouteReplay(folder.file("routes"), shape).read(1, ids);
    return ids;
  };
  EXPECT_EQ(replay({7, 0, -1, -1}), (std::vector<std::int32_t>{0, 7, -1, -1}));
  testing::expect_error(ErrorKind::data, {"step 1", "expert id 8"}, [&] { replay({0, 1, 3, 8}); });
  testing::expect_error(ErrorKind::data, {"expert id -1"}, [&] { replay({0, 1, -1, 3}); });
  testing::expect_error(ErrorKind::data, {"expert id 2 twice"}, [&] { replay({2, 2, 0, 1}); });
  RouteShape other = shape;
  other.num_experts = 16;
  testing::expect_error(ErrorKind::data, {"2 of 8 experts", "2 of 16 experts"},
                        [&] { RouteReplay(folder.file("routes"), other); });
  const std::string torn = folder.write("torn", "PLROUTES");
  testing::expect_error(ErrorKind::data, {torn}, [&] { RouteReplay(torn, shape); });
  const std::string foreign = folder.write("foreign", "something else that is long enough");
  testing::expect_error(ErrorKind::data, {"not a recording"}, [&] { RouteReplay(foreign, shape); });
}

}  // namespace
}  // namespace planalto
