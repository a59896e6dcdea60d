// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "app/commands.h"
#include "base/error.h"
#include "base/file.h"
#include "base/left_behind.h"
#include "cluster/hardware_profile.h"
#include "kernels/peak.h"
#include "train/metrics.h"
#include "train/setup.h"

namespace planalto {

namespace {

// What the signal handler touches: the first signal asks for a stop after the step, the second stops at once unless a save is
// being written, which then completes.
std::atomic<Trainer*> running_trainer{nullptr};
std::atomic<bool> saving{false};
std::atomic<int> signals_seen{0};

void on_signal(int number) {
  Trainer* trainer = running_trainer.load();
  if (signals_seen.fetch_add(1) > 0 && !saving.load()) ::_exit(128 + number);
  if (trainer != nullptr) trainer->request_stop();
}

class SignalScope {
 public:
  explicit SignalScope(Trainer& trainer) {
    running_trainer = &trainer;
    struct sigaction action {};
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    for (const int number : {SIGINT, SIGTERM, SIGUSR1}) sigaction(number, &action, nullptr);
  }
  ~SignalScope() {
    for (const int number : {SIGINT, SIGTERM, SIGUSR1}) std::signal(number, SIG_DFL);
    running_trainer = nullptr;
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;
};

// Progress on the terminal (one line, redrawn) or in a log (plain lines), and metrics.jsonl.
class Reporter final : public TrainerObserver {
 public:
  explicit Reporter(const RunConfig& config)
      : log_every_(config.train.log_every), terminal_(::isatty(STDOUT_FILENO) == 1) {
    progress_.steps = config.train.steps;
  }
  void open_metrics(const std::string& path) { metrics_.emplace(path); }
  // measure: the machine's multiply-add peak now. On a shared machine a first look may find it low.
  void set_peak(std::function<double()> measure) {
    measure_peak_ = std::move(measure);
    progress_.peak_flops = measure_peak_();
  }

  bool wants_report(std::int64_t step) override {
    return step == 1 || step % log_every_ == 0 || step == progress_.steps || terminal_;
  }
  void on_step(const StepReport& r) override {
    progress_.seconds_per_step =
        progress_.seconds_per_step == 0.0 ? r.seconds : 0.9 * progress_.seconds_per_step + 0.1 * r.seconds;
    const bool logged = r.skipped || r.step == 1 || r.step % log_every_ == 0 || r.step == progress_.steps;
    if (logged) record(r);
    if (logged && r.model_flops > kDoubtfulShare * progress_.peak_flops * r.seconds) {
      progress_.peak_flops = std::max(progress_.peak_flops, measure_peak_());
    }
    const std::string line = progress_line(r, progress_);
    if (terminal_) {
      std::printf("\r\033[K%s%s", line.c_str(), logged ? "\n" : "");
    } else if (logged) {
      std::printf("%s\n", line.c_str());
    }
    warn_dead_experts(r);
    std::fflush(stdout);
  }
  void on_eval(const EvalReport& r) override {
    record(r);
    say(fmt::format("step {} | held-out loss {:.4f} ({} labels, {:.1f} s)", r.step, r.loss, r.labels,
                    r.seconds));
    last_eval_ = r;
  }
  void on_save_begin() override { saving = true; }
  void on_save(const std::string& path, double seconds) override {
    saving = false;
    say(fmt::format("saved {} ({:.1f} s)", path, seconds));
  }
  void on_save_failed(const std::string&) override { saving = false; }
  void on_notice(const std::string& text) override { say("notice: " + text); }
  const std::optional<EvalReport>& last_eval() const { return last_eval_; }

  void say(const std::string& text) const {
    std::printf("%s%s\n", terminal_ ? "\r\033[K" : "", text.c_str());
    std::fflush(stdout);
  }

 private:
  static constexpr double kDoubtfulShare = 0.7;  // of the peak: more than a whole step reaches
  static constexpr std::int64_t kDeadReports = 20;
  void warn_dead_experts(const StepReport& r) {
    for (const LayerBalance& b : r.balance) {
      if (b.dead_share == 0.0) continue;
      if (++dead_reports_ == kDeadReports) {
        say(
            fmt::format("warning: experts without a token in {} reports so far; layer {} has {:.0f}% of them "
                        "now (see metrics.jsonl; "
                        "router.bias_update_rate and router.aux_loss balance)",
                        dead_reports_, b.block, 100.0 * b.dead_share));
      }
      return;
    }
  }

  // A full disk costs lines of the metrics, not the run.
  template <class Report>
  void record(const Report& r) {
    if (!metrics_) return;
    try {
      metrics_->write(r);
    } catch (const Error& e) {
      if (!std::exchange(metrics_failed_, true))
        say(fmt::format("notice: lines of metrics are lost: {}", e.what()));
    }
  }

  std::optional<MetricsFile> metrics_;
  bool metrics_failed_ = false;
  std::int64_t log_every_;
  bool terminal_;
  ProgressContext progress_;
  std::function<double()> measure_peak_;
  std::int64_t dead_reports_ = 0;
  std::optional<EvalReport> last_eval_;
};

struct TrainArguments {
  std::string config, resume;
  std::vector<std::string> set;
  bool print_config = false, config_reference = false;
};

// A fresh run in a folder that holds another run's checkpoints would mix the two and, in time, rotate them away.
void refuse_foreign_checkpoints(const RunConfig& config) {
  const std::vector<CheckpointInfo> found = list_checkpoints(config.checkpoint_dir());
  if (found.empty()) return;
  fail(ErrorKind::config,
       "{} already holds checkpoints (the newest is of step {}): --resume latest continues them; for a new "
       "run "
       "choose another output.dir or checkpoint.dir, or remove them",
       config.checkpoint_dir(), found.back().step);
}

// An older checkpoint of this run's own folder: the newer ones would later be taken for its continuation.
void refuse_newer_checkpoints(const RunConfig& config, const std::string& chosen) {
  const std::vector<CheckpointInfo> found = list_checkpoints(config.checkpoint_dir());
  for (const CheckpointInfo& c : found) {
    std::error_code ignored;
    if (!std::filesystem::equivalent(c.path, chosen, ignored) || c.step == found.back().step) continue;
    fail(ErrorKind::config,
         "--resume {}: {} is newer and would later be taken for what follows; remove it, or choose another "
         "checkpoint.dir",
         chosen, found.back().path);
  }
}

// Where a run begins.
struct StartChoice {
  std::optional<std::string> checkpoint;
  std::vector<std::string> notices;
  bool by_name = false;
};

// Refuses what was asked for and is not there, before any data is read.
StartChoice choose_start(const TrainArguments& a, const RunConfig& config) {
  const std::string dir = config.checkpoint_dir();
  const bool automatic = a.resume.empty() && config.checkpoint.resume == Resume::automatic;
  if (a.resume.empty() && !automatic) {
    refuse_foreign_checkpoints(config);
    return {};
  }
  if (!automatic && a.resume != "latest") {
    if (!is_folder(a.resume))
      fail(ErrorKind::config, "--resume {}: there is no such folder; legal: latest, or a checkpoint folder",
           a.resume);
    return {a.resume, {}, true};
  }
  LatestCheckpoint latest = find_latest_checkpoint(dir);
  if (latest.checkpoint) return {latest.checkpoint->path, std::move(latest.notices), false};
  if (!latest.notices.empty()) {
    std::string all;
    for (const std::string& notice : latest.notices) all += "\n  " + notice;
    fail(ErrorKind::data, "{} holds no checkpoint that is whole:{}", dir, all);
  }
  if (automatic) return {};
  fail(ErrorKind::config,
       "--resume latest: {} holds no complete checkpoint (checkpoint.resume = \"auto\" would start afresh)",
       dir);
}

// A run that could not save is refused now, not at its first checkpoint.
void require_checkpoint_room(const RunConfig& config, const ParameterSet& parameters) {
  const std::string dir = config.checkpoint_dir();
  make_folders(dir);
  if (::access(dir.c_str(), W_OK | X_OK) != 0)
    fail(ErrorKind::io, "checkpoint.dir: {} cannot be written: {}", dir, std::strerror(errno));
  require_free_bytes(dir, checkpoint_bytes(parameters));
}

// What debug.measure_memory found: planned against written bytes.
void print_memory(const Trainer& trainer, const Reporter& reporter) {
  const MemoryReport report = trainer.launch().executor().memory_report();
  for (const Tier tier : {Tier::device, Tier::host}) {
    const auto t = static_cast<std::size_t>(tier);
    if (report.persistent[t].planned + report.transient[t].planned == 0) continue;
    reporter.say(fmt::format("measured {} memory: persistent {} of {} planned bytes, transient {} of {}",
                             to_string(tier), report.persistent[t].written, report.persistent[t].planned,
                             report.transient[t].written, report.transient[t].planned));
  }
  for (const MemoryReport::Underfilled& u : report.underfilled) {
    reporter.say(fmt::format("never filled: {} ({} of {} bytes)", trainer.programs().table[u.buffer].name,
                             u.filled, u.capacity));
  }
}

void print_start(const RunSetup& s, const RunPlan& plan, const HardwareProfile& machine, std::int64_t budget,
                 const std::string& source) {
  const ParameterSet& parameters = plan.programs->parameters;
  std::int64_t total = 0;
  for (const Parameter& p : parameters.all()) total += p.spec.trainable ? p.spec.elements() : 0;
  std::printf("model: %.2fM parameters, %lld layers, %lld experts top-%lld\n",
              static_cast<double>(total) * 1e-6, static_cast<long long>(s.model.num_layers),
              static_cast<long long>(s.model.moe.num_experts), static_cast<long long>(s.model.moe.top_k));
  std::printf("data: %lld training tokens in %lld documents", static_cast<long long>(s.train->num_tokens()),
              static_cast<long long>(s.train->num_documents()));
  if (s.data.split > 0) std::printf(" (%lld longer than a row: split)", static_cast<long long>(s.data.split));
  if (s.eval) std::printf(", %lld held out", static_cast<long long>(s.eval->num_tokens()));
  std::printf("; the first document reads %s", sample_ids(*s.train).c_str());
  std::printf("\nmachine: %s, %s, %d threads (%s)\n", machine.name.c_str(), kernels::to_string(machine.isa),
              s.options.target.num_threads, machine.cores_source.c_str());
  std::printf("memory: plan %s of buffers + %s for the process, budget %s (%s)\n",
              format_bytes(plan.total_bytes() - kProcessOverheadBytes).c_str(),
              format_bytes(kProcessOverheadBytes).c_str(), format_bytes(budget).c_str(), source.c_str());
}

void start(Trainer& trainer, const StartChoice& choice, const RunSetup& s, Reporter& reporter) {
  const std::string metrics = s.config.metrics_path();
  if (is_folder(s.config.output.dir)) remove_left_behind(s.config.output.dir);
  for (const std::string& notice : choice.notices) reporter.on_notice(notice);
  if (choice.checkpoint) {
    trainer.resume(*choice.checkpoint);
    if (choice.by_name) refuse_newer_checkpoints(s.config, *choice.checkpoint);
    reporter.say(fmt::format("resumed {} at step {}", *choice.checkpoint, trainer.state().step));
  } else if (s.config.model.init == ModelInit::weights) {
    trainer.start_from_weights(HfFolder::open(s.config.model.hf));
    reporter.say(fmt::format("started from the weights of {}; moments begin at 0", s.config.model.hf));
  } else {
    trainer.start_from_random(s.model.initializer_range);
    reporter.say(
        s.config.checkpoint.resume == Resume::automatic
            ? fmt::format("started from random weights: {} holds no checkpoint", s.config.checkpoint_dir())
            : std::string("started from random weights"));
  }
  // Lines of a run that left no checkpoint stand under another name, as nothing continues them.
  if (choice.checkpoint) {
    keep_metrics_until(metrics, trainer.state().step);
  } else if (is_regular_file(metrics) && file_bytes(metrics) > 0) {
    const std::string aside = metrics + ".previous";
    if (std::rename(metrics.c_str(), aside.c_str()) == 0)
      reporter.on_notice(fmt::format("{} of an earlier run is now {}", metrics, aside));
  }
  reporter.open_metrics(metrics);
}

int run_train(const TrainArguments& a) {
  const RunConfig config = load_run_config(a.config, a.set, {.data = !a.print_config});
  if (a.print_config) {
    std::printf("%s", print_config(config).c_str());
    return 0;
  }
  const HardwareProfile machine = detect_hardware();
  RunSetup setup = setup_model(config, machine.target(static_cast<int>(config.train.threads)));
  const RunPlan plan = make_run_plan(setup.model, setup.options.step, setup.options.target);
  const bool automatic = config.memory.device_budget.automatic();
  const std::int64_t budget = automatic ? machine.memory_bytes : config.memory.device_budget.bytes;
  const std::string budget_source = automatic ? machine.memory_source : "memory.device_budget";
  if (budget > machine.memory_bytes) {
    fail(ErrorKind::memory, "memory.device_budget = {} is more than {} allows ({})", format_bytes(budget),
         machine.memory_source, format_bytes(machine.memory_bytes));
  }
  require_budget(plan, plan_request(setup), budget, budget_source);
  const StartChoice choice = choose_start(a, config);
  require_checkpoint_room(config, plan.programs->parameters);
  setup_data(setup);
  Reporter reporter(config);
  print_start(setup, plan, machine, budget, budget_source);
  for (const std::string& notice : setup.notices) reporter.on_notice(notice);
  Trainer trainer(setup.model, setup.options, *setup.train, setup.eval.get(), reporter);
  start(trainer, choice, setup, reporter);
  const SignalScope signals(trainer);
  const double unigram = setup.eval ? unigram_loss(*setup.train, *setup.eval, setup.model.vocab_size) : 0.0;
  if (setup.eval) reporter.say(fmt::format("a unigram model reaches a held-out loss of {:.4f}", unigram));
  reporter.set_peak([&] {
    return kernels::measure_multiply_add_peak(trainer.launch().context(),
                                              compute_dtype(config.train.precision));
  });
  const StopReason reason = trainer.run();
  if (reporter.last_eval() && setup.eval) {
    const double gain = unigram - reporter.last_eval()->loss;
    reporter.say(fmt::format("held-out loss {:.4f}, {:.4f} nats a token {} the unigram model's {:.4f}",
                             reporter.last_eval()->loss, std::abs(gain), gain >= 0.0 ? "under" : "above",
                             unigram));
  }
  if (config.debug.measure_memory) print_memory(trainer, reporter);
  reporter.say(fmt::format("checkpoints: {}\nmetrics: {}", config.checkpoint_dir(), config.metrics_path()));
  if (reason == StopReason::requested) {
    reporter.say("stopped by a signal after a save; --resume latest continues");
    return kExitInterrupted;
  }
  return 0;
}

}  // namespace

void add_train_command(CLI::App& app, int* status) {
  auto a = std::make_shared<TrainArguments>();
  CLI::App* c = app.add_subcommand("train", "train a model as a TOML file says");
  c->add_option("config", a->config, "run config (docs/config.md)");
  c->add_option("--set", a->set, "section.key=value, over what the file says; may be repeated")
      ->allow_extra_args(false);
  c->add_option("--resume", a->resume, "latest, or a checkpoint folder");
  c->add_flag("--print-config", a->print_config, "print every setting with where it came from, and stop");
  c->add_flag("--config-reference", a->config_reference,
              "print docs/config.md: every key, legal values, default");
  c->footer("Example: planalto train examples/quickstart.toml --set train.steps=100");
  c->callback([a, status] {
    if (a->config_reference) {
      std::printf("%s", config_reference().c_str());
      *status = 0;
      return;
    }
    if (a->config.empty()) throw CLI::RequiredError("config");
    *status = run_train(*a);
  });
}

}  // namespace planalto
