// SPDX-License-Identifier: Apache-2.0
// checkpoint_test.cpp: a resumed run is the same run; rotation; damaged, incomplete, foreign and other models' checkpoints; full disks.
#include "train/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <set>

#include "formats/hf_folder.h"
#include "formats/manifest.h"
#include "support/expect_error.h"
#include "support/random_seed.h"
#include "support/temp_folder.h"
#include "tiny_run.h"
#include "train/metrics.h"

namespace planalto {
namespace {

using testing::expect_error;
using testing::golden;
using testing::read_all;
using testing::TempFolder;
using testing::tiny_options;
using testing::TinyRun;

const std::string kMtpConfig = golden("deepseek_v3_mtp-a/config.json");
const std::string kGqaConfig = golden("glm4_moe-a/config.json");

void expect_same_folders(const std::string& a, const std::string& b) {
  ASSERT_EQ(list_folder(a), list_folder(b));
  EXPECT_GE(list_folder(a).size(), 4U);
  for (const std::string& name : list_folder(a))
    EXPECT_TRUE(read_all(join_path(a, name)) == read_all(join_path(b, name))) << name << " differs";
}

// The whole run against the same run cut at random steps: every report and every byte of the last checkpoint.
void expect_exact_resume(const std::string& config, TrainerOptions options, int cuts) {
  const int seed = testing::random_seed();
  std::mt19937_64 engine(static_cast<std::uint64_t>(seed));
  SCOPED_TRACE(testing::rerun(seed));
  TempFolder folder;
  const std::string whole_dir = folder.file("whole"), cut_dir = folder.file("cut");
  options.checkpoint_dir = whole_dir;
  TinyRun whole(config, options);
  whole.trainer->start_from_random(0.05);
  ASSERT_EQ(whole.trainer->run(), StopReason::finished);

  std::set<std::int64_t> stops;
  while (static_cast<int>(stops.size()) < cuts)
    stops.insert(1 + static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(options.steps - 1)));
  std::vector<double> losses, norms, rates;
  std::vector<std::int64_t> steps;
  options.checkpoint_dir = cut_dir;
  bool first = true, finished = false;
  while (!finished) {
    TinyRun part(config, options);
    part.recorder.at_step = [&](std::int64_t step) {
      if (stops.contains(step)) part.trainer->request_stop();
    };
    if (std::exchange(first, false)) {
      part.trainer->start_from_random(0.05);
    } else {
      const LatestCheckpoint latest = find_latest_checkpoint(cut_dir);
      ASSERT_TRUE(latest.checkpoint && latest.notices.empty());
      part.trainer->resume(latest.checkpoint->path);
      EXPECT_EQ(part.recorder.notices, std::vector<std::string>{});
    }
    finished = part.trainer->run() == StopReason::finished;
    auto join = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    join(steps, part.recorder.steps);
    join(losses, part.recorder.losses);
    join(norms, part.recorder.grad_norms);
    join(rates, part.recorder.learning_rates);
  }
  EXPECT_EQ(steps, whole.recorder.steps);
  EXPECT_EQ(losses, whole.recorder.losses);
  EXPECT_EQ(norms, whole.recorder.grad_norms);
  EXPECT_EQ(rates, whole.recorder.learning_rates);
  const std::string last = checkpoint_name(options.steps);
  expect_same_folders(join_path(whole_dir, last), join_path(cut_dir, last));
  EXPECT_EQ(list_checkpoints(cut_dir).size(), 2U);
}

// Router bias, MTP, recompute, accumulation, clipping, decay, auxiliary loss, a schedule: all on.
TEST(Resume, C095ExactInFp32) {
  expect_exact_resume(kMtpConfig, tiny_options(Precision::fp32, 60, ""), 4);
}
// The masters are saved; rebuilt from bf16 they would differ at once.
TEST(Resume, C095ExactInBf16) {
  expect_exact_resume(kMtpConfig, tiny_options(Precision::bf16, 60, ""), 4);
}
TEST(Resume, C095ExactForGroupedQueriesAndShortRows) {
  TrainerOptions o = tiny_options(Precision::bf16, 20, "");
  o.pack = false;
  o.step.recompute = false;
  o.step.num_microbatches = 1;
  expect_exact_resume(kGqaConfig, o, 3);
}

TEST(Resume, ThreadsDoNotMatter) {
  TempFolder folder;
  TrainerOptions o = tiny_options(Precision::bf16, 8, folder.file("c"));
  o.save_every = 4;
  o.keep = 0;
  o.target.num_threads = 2;
  TinyRun a(kMtpConfig, o);
  a.trainer->start_from_random(0.05);
  a.trainer->run();
  o.target.num_threads = 1;
  o.checkpoint_dir = folder.file("d");
  TinyRun b(kMtpConfig, o);
  b.trainer->resume(join_path(folder.file("c"), checkpoint_name(4)));
  b.trainer->run();
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_TRUE(read_all(join_path(folder.file("c/step-00000008"), file)) ==
                read_all(join_path(folder.file("d/step-00000008"), file)))
        << file;
  }
}

// After 100 updates the corrections of update 101 are 1 - 0.9^101 and 1 - 0.95^101; restarted ones would be 0.1 and 0.05.
TEST(Resume, C096BiasCorrectionGoesOn) {
  TempFolder folder;
  TrainerOptions o = tiny_options(Precision::fp32, 110, folder.file("c"));
  TinyRun first(kMtpConfig, o);
  first.trainer->start_from_random(0.05);
  const std::string path = first.trainer->save();
  TrainState state;
  state.step = 103;
  state.updates = 100;
  const RunIdentity identity =
      load_checkpoint(path, first.model, first.trainer->programs().parameters,
                      first.trainer->programs().table, first.trainer->launch().address_of())
          .identity;
  save_checkpoint(o.checkpoint_dir, first.trainer->checkpoint_source(), state, identity, 0);
  TinyRun second(kMtpConfig, o);
  second.recorder.at_step = [&](std::int64_t) { second.trainer->request_stop(); };
  second.trainer->resume(join_path(o.checkpoint_dir, checkpoint_name(103)));
  EXPECT_EQ(second.trainer->run(), StopReason::requested);
  EXPECT_EQ(second.trainer->state().updates, 101);
  const auto& scalars =
      *second.trainer->launch().data<kernels::AdamWScalars>(second.trainer->programs().buffers.scalars);
  EXPECT_NEAR(scalars.correction1, 1.0 - std::pow(0.9, 101), 1e-6);
  EXPECT_NEAR(scalars.correction2, 1.0 - std::pow(0.95, 101), 1e-6);
}

// A run that is asked to stop while it saves returns after that save, with one checkpoint.
TEST(Resume, C094StopDuringASave) {
  TempFolder folder;
  TrainerOptions o = tiny_options(Precision::fp32, 10, folder.file("c"));
  o.save_every = 4;
  TinyRun run(kMtpConfig, o);
  struct StopInSave final : TrainerObserver {
    Trainer* trainer = nullptr;
    int saves = 0;
    void on_save_begin() override { trainer->request_stop(); }
    void on_save(const std::string&, double) override { ++saves; }
  } observer;
  Trainer trainer(run.model, o, run.data, nullptr, observer);
  observer.trainer = &trainer;
  trainer.start_from_random(0.05);
  EXPECT_EQ(trainer.run(), StopReason::requested);
  EXPECT_EQ(trainer.state().step, 4);
  EXPECT_EQ(observer.saves, 1);
  EXPECT_EQ(list_checkpoints(o.checkpoint_dir).size(), 1U);
}

// One tiny model whose state is saved under any step.
class Saves : public ::testing::Test {
 protected:
  Saves() : run_(kGqaConfig, tiny_options(Precision::fp32, 10, folder_.file("c"))), dir_(folder_.file("c")) {
    run_.trainer->start_from_random(0.05);
    identity_ = {.precision = "fp32",
                 .isa = kernels::to_string(kernels::choose_isa().isa),
                 .threads = 2,
                 .seed = 5,
                 .seq_len = 16,
                 .batch_rows = 6};
  }
  std::string save(std::int64_t step, std::int64_t keep) {
    TrainState state;
    state.step = step;
    return save_checkpoint(dir_, run_.trainer->checkpoint_source(), state, identity_, keep);
  }
  LoadedCheckpoint load(const std::string& path) {
    const TrainingPrograms& p = run_.trainer->programs();
    return load_checkpoint(path, run_.model, p.parameters, p.table, run_.trainer->launch().address_of());
  }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    for (const CheckpointInfo& c : list_checkpoints(dir_)) found.push_back(c.step);
    return found;
  }
  void flip_byte(const std::string& path) {
    std::string text = read_all(path);
    text[text.size() - 5] = static_cast<char>(text[text.size() - 5] ^ 1);
    write_file_atomically(path, text);
  }

  TempFolder folder_;
  TinyRun run_;
  std::string dir_;
  RunIdentity identity_;
};

TEST_F(Saves, C087NamesSortByNumber) {
  make_folders(join_path(dir_, "old"));
  make_folders(join_path(dir_, "step-x"));
  make_folders(join_path(dir_, "step-7"));  // without a manifest
  write_file_atomically(join_path(dir_, "old/note"), "keep me");
  for (std::int64_t step = 8000; step <= 10100; step += 100) {
    const std::string path = save(step, 10);
    // Another program's padding for some.
    if (step % 300 == 0) {
      ASSERT_EQ(std::rename(path.c_str(), join_path(dir_, "step-" + std::to_string(step)).c_str()), 0);
    }
  }
  std::vector<std::int64_t> expected;
  for (std::int64_t step = 9200; step <= 10100; step += 100) expected.push_back(step);
  EXPECT_EQ(steps(), expected);
  EXPECT_EQ(find_latest_checkpoint(dir_).checkpoint->step, 10100);
  EXPECT_EQ(read_all(join_path(dir_, "old/note")), "keep me");
  EXPECT_TRUE(is_folder(join_path(dir_, "step-x")) && is_folder(join_path(dir_, "step-7")));
}

TEST_F(Saves, C088EndsOfRotation) {
  for (const std::int64_t step : {10, 20, 30}) save(step, step == 30 ? -1 : 0);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{10, 20, 30}));
  // A save that fails removes nothing: a file stands where the folder should.
  write_file_atomically(join_path(dir_, checkpoint_name(40)), "in the way");
  expect_error(ErrorKind::io, {"step-00000040", "not a folder"}, [&] { save(40, 1); });
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{10, 20, 30}));
  save(50, 1);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{50}));
  // Later steps are not this run's: they are neither counted nor removed.
  save(20, 1);
  save(30, 1);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{30, 50}));
}

TEST_F(Saves, SavingAStepAgainReplacesIt) {
  save(10, 2);
  flip_byte(join_path(dir_, "step-00000010/model.safetensors"));
  save(10, 2);
  EXPECT_TRUE(find_latest_checkpoint(dir_).notices.empty());
  EXPECT_EQ(list_folder(dir_), (std::vector<std::string>{"step-00000010"}));
}

// What a killed save leaves is passed over and goes with the next save, unless its process still lives.
TEST_F(Saves, C085LeftOversOfAKilledSave) {
  save(10, 2);
  std::string temporary;
  {
    const AtomicFolder probe(join_path(dir_, checkpoint_name(20)));
    temporary = file_name(probe.folder());
  }
  const std::string pid = "." + std::to_string(getpid()) + ".";
  ASSERT_NE(temporary.find(pid), std::string::npos);
  auto with_pid = [&](std::int64_t other) {
    std::string name = temporary;
    return name.replace(name.find(pid), pid.size(), "." + std::to_string(other) + ".");
  };
  const std::string dead = with_pid(2147483000), alive = with_pid(getppid());
  for (const std::string& name : {dead, alive}) {
    make_folders(join_path(dir_, name));
    write_file_atomically(join_path(join_path(dir_, name), "model.safetensors"), "half");
  }
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{10}));
  EXPECT_EQ(find_latest_checkpoint(dir_).checkpoint->step, 10);
  save(20, 2);
  EXPECT_FALSE(path_exists(join_path(dir_, dead)));
  EXPECT_TRUE(path_exists(join_path(dir_, alive)));
}

TEST_F(Saves, DamagedNewestIsPassedOverAndNamed) {
  for (const std::int64_t step : {10, 20, 30, 40}) save(step, 0);
  flip_byte(join_path(dir_, "step-00000040/optimizer.safetensors"));
  remove_all(join_path(dir_, "step-00000030/config.json"));
  const LatestCheckpoint latest = find_latest_checkpoint(dir_);
  ASSERT_TRUE(latest.checkpoint.has_value());
  EXPECT_EQ(latest.checkpoint->step, 20);
  ASSERT_EQ(latest.notices.size(), 2U);
  for (const char* part : {"step-00000040", "passed over", "optimizer.safetensors is damaged"})
    EXPECT_NE(latest.notices[0].find(part), std::string::npos) << latest.notices[0];
  EXPECT_NE(latest.notices[1].find("config.json is missing"), std::string::npos) << latest.notices[1];
  expect_error(ErrorKind::data, {"step-00000040", "optimizer.safetensors is damaged"},
               [&] { load(join_path(dir_, checkpoint_name(40))); });
  // Rotation does not count on what stands later and is damaged.
  save(35, 1);
  EXPECT_EQ(find_latest_checkpoint(dir_).checkpoint->step, 35);
}

TEST_F(Saves, C091FullResumeWithoutMoments) {
  const std::string path = save(10, 0);
  remove_all(join_path(path, "optimizer.safetensors"));
  expect_error(ErrorKind::data, {path, "optimizer.safetensors is missing"}, [&] { load(path); });
  // Weights alone start; the moments are zero.
  TinyRun fresh(kGqaConfig, tiny_options(Precision::fp32, 10, folder_.file("d")));
  fresh.trainer->start_from_weights(HfFolder::open(path));
  for (std::size_t i = 0; i < fresh.trainer->programs().parameters.all().size(); ++i) {
    const Parameter& p = fresh.trainer->programs().parameters.all()[i];
    EXPECT_EQ(fresh.values(p.weight), run_.values(run_.trainer->programs().parameters.all()[i].weight))
        << p.spec.name;
    if (p.m.valid()) {
      EXPECT_EQ(fresh.values(p.m), std::vector<float>(static_cast<std::size_t>(p.spec.elements()), 0.0F));
    }
  }
}

TEST_F(Saves, C092WhatIsNoCheckpoint) {
  expect_error(ErrorKind::data, {"nowhere", "not a folder"}, [&] { load(folder_.file("nowhere")); });
  make_folders(folder_.file("empty"));
  expect_error(ErrorKind::data, {"empty", "manifest.json"}, [&] { load(folder_.file("empty")); });
  EXPECT_FALSE(find_latest_checkpoint(folder_.file("nowhere")).checkpoint.has_value());
  save(10, 0);
  expect_error(ErrorKind::data, {"folder of checkpoints", "step-00000010"}, [&] { load(dir_); });
}

TEST_F(Saves, C097StateOfAnotherShape) {
  const std::string path = save(10, 0);
  std::string other = read_all(kGqaConfig);
  const JsonValue config = parse_json(other, "config");
  const std::int64_t width = config.at("moe_intermediate_size", "config").as_int64("config");
  JsonObject wider = config.as_object("config");
  wider.set("moe_intermediate_size", width + 8);
  TinyRun wide("wide", write_json(wider), tiny_options(Precision::fp32, 10, folder_.file("d")));
  expect_error(ErrorKind::data,
               {"experts.0.gate_proj.weight", fmt::format("shape [{}, 44]", width),
                fmt::format("needs [{}, 44]", width + 8)},
               [&] { wide.trainer->resume(path); });
}

// Two tensors of one shape under each other's names: the file's checksum tells.
TEST_F(Saves, C097SwappedTensors) {
  const std::string path = save(10, 0), file = join_path(path, "optimizer.safetensors");
  std::string text = read_all(file);
  const std::string a = "m.layers.0.self_attn.k_proj", b = "m.layers.0.self_attn.v_proj";
  const std::size_t at_a = text.find("\"" + a + "\""), at_b = text.find("\"" + b + "\"");
  ASSERT_TRUE(at_a != text.npos && at_b != text.npos);
  text.replace(at_a + 1, a.size(), b);
  text.replace(at_b + 1, b.size(), a);
  write_file_atomically(file, text);
  expect_error(ErrorKind::data, {"optimizer.safetensors is damaged"}, [&] { load(path); });
}

TEST_F(Saves, AnotherRunIsRefusedByName) {
  const std::string path = save(10, 0);
  auto refused = [&](std::initializer_list<std::string_view> pieces,
                     const std::function<void(TrainerOptions&)>& change) {
    TrainerOptions o = tiny_options(Precision::fp32, 20, folder_.file("d"));
    change(o);
    TinyRun other(kGqaConfig, o);
    expect_error(ErrorKind::config, pieces, [&] { other.trainer->resume(path); });
    EXPECT_EQ(other.trainer->state().step, 0);
  };
  refused({"train.seed 5", "has 6"}, [](TrainerOptions& o) { o.seed = 6; });
  refused({"train.precision fp32", "bf16"}, [](TrainerOptions& o) { o.step.precision = Precision::bf16; });
  refused({"train.seq_len 16", "has 8"}, [](TrainerOptions& o) { o.seq_len = 8; });
  refused({"train.packing documents", "none"}, [](TrainerOptions& o) { o.pack = false; });
  refused({"data.shuffle true", "false"}, [](TrainerOptions& o) { o.shuffle = false; });
  refused({"data 0000000000000000", "0000000000000001"}, [](TrainerOptions& o) { o.data_hash = 1; });
  TrainerOptions longer = tiny_options(Precision::fp32, 20, folder_.file("d"));
  longer.step.num_microbatches = 1;
  TinyRun same(kGqaConfig, longer);
  same.trainer->resume(path);  // longer, with other batches: legal, and said
  ASSERT_EQ(same.recorder.notices.size(), 1U);
  EXPECT_NE(same.recorder.notices[0].find("6 sequences a step, this run has 2"), std::string::npos);
}

// A limit on the size of files stands for a disk that fills up in the middle of a save.
class FileLimit {
 public:
  FileLimit() {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~FileLimit() {
    set(before_.rlim_cur);
    std::signal(SIGXFSZ, handler_);
  }
  void set(rlim_t bytes) {
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  void lift() { set(before_.rlim_cur); }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(Saves, C086NoRoomInTheMiddleOfASave) {
  save(10, 1);
  {
    FileLimit limit;
    limit.set(100'000);
    expect_error(ErrorKind::io, {"model.safetensors", "bytes more were needed", "are free there"},
                 [&] { save(20, 1); });
  }
  EXPECT_EQ(list_folder(dir_), (std::vector<std::string>{"step-00000010"}));
  EXPECT_EQ(load(find_latest_checkpoint(dir_).checkpoint->path).state.step, 10);
}

TEST(Resume, C086TheRunGoesOnOrStopsAsSet) {
  for (const FailedSave choice : {FailedSave::go_on, FailedSave::stop}) {
    TempFolder folder;
    TrainerOptions o = tiny_options(Precision::fp32, 8, folder.file("c"));
    o.save_every = 2;
    o.on_failed_save = choice;
    TinyRun run(kGqaConfig, o);
    run.trainer->start_from_random(0.05);
    FileLimit limit;
    run.recorder.at_step = [&](std::int64_t step) {
      if (step == 4) limit.set(100'000);
      if (step == 6) limit.lift();
    };
    if (choice == FailedSave::stop) {
      expect_error(ErrorKind::io, {"step-00000004"}, [&] { run.trainer->run(); });
      EXPECT_EQ(find_latest_checkpoint(o.checkpoint_dir).checkpoint->step, 2);
      continue;
    }
    EXPECT_EQ(run.trainer->run(), StopReason::finished);
    EXPECT_EQ(run.recorder.failures.size(), 1U);
    ASSERT_EQ(run.recorder.notices.size(), 1U);
    for (const char* part : {"step 4", "goes on", "step-00000004", "of step 2 stays"})
      EXPECT_NE(run.recorder.notices[0].find(part), std::string::npos) << run.recorder.notices[0];
    EXPECT_EQ(run.recorder.saves.size(), 3U);  // 2, 6, 8
    EXPECT_EQ(find_latest_checkpoint(o.checkpoint_dir).checkpoint->step, 8);
  }
}

TEST(Metrics, AResumeDropsTheLinesBehindItsCheckpoint) {
  TempFolder folder;
  const std::string path = folder.write("metrics.jsonl",
                                        "{\"step\":1,\"loss\":3.0}\n{\"step\":2,\"loss\":2.5}\n{\"step\":2,"
                                        "\"eval_loss\":2.0}\nnot json\n{\"step\":3}\n"
                                        "{\"step\":2,\"lo");
  keep_metrics_until(path, 2);
  const std::string kept =
      "{\"step\":1,\"loss\":3.0}\n{\"step\":2,\"loss\":2.5}\n{\"step\":2,\"eval_loss\":2.0}\n";
  EXPECT_EQ(read_all(path), kept);
  keep_metrics_until(path, 2);
  EXPECT_EQ(read_all(path), kept);
  keep_metrics_until(path, 0);
  EXPECT_EQ(read_all(path), "");
  keep_metrics_until(folder.file("none"), 5);
  EXPECT_FALSE(path_exists(folder.file("none")));
}

}  // namespace
}  // namespace planalto
