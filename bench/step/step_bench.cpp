// SPDX-License-Identifier: Apache-2.0
// step_bench.cpp: tokens per second, resident and planned memory of whole training steps of the tiny step
//                 (step/tiny_step.h).
// usage: step_bench [--threads N] [--precision fp32|bf16] [--steps N] [--ops] [--recompute]
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "bench/step/tiny_step.h"
#include "cluster/hardware_profile.h"
#include "kernels/peak.h"
#include "train/run_plan.h"
#include "train/trainer.h"

namespace planalto {
namespace {

struct Arguments {
  int threads = 0;
  std::int64_t steps = 5;
  Precision precision = Precision::bf16;
  bool ops = false, recompute = false;
};

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) fail(ErrorKind::config, "{} needs a value", name);
      return std::string(argv[++i]);
    };
    if (name == "--threads") {
      a.threads = std::stoi(value());
    } else if (name == "--steps") {
      a.steps = std::stoll(value());
    } else if (name == "--precision") {
      a.precision = value() == "fp32" ? Precision::fp32 : Precision::bf16;
    } else if (name == "--ops") {
      a.ops = true;
    } else if (name == "--recompute") {
      a.recompute = true;
    } else {
      fail(ErrorKind::config, "{} is unknown; legal: --threads, --steps, --precision, --ops, --recompute",
           name);
    }
  }
  return a;
}

class Timings final : public TrainerObserver {
 public:
  void on_step(const StepReport& r) override { reports.push_back(r); }
  std::vector<StepReport> reports;
};

std::int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

// Where the time of the last step went, by kind of op and phase.
void print_ops(const Trainer& trainer) {
  struct Sum {
    double seconds = 0.0, flops = 0.0, bytes = 0.0;
    int calls = 0;
  };
  std::map<std::string, Sum> sums;
  const Program& step = trainer.programs().step;
  RunCounts counts;
  counts.tokens = 4096;
  counts.attention_pairs = 8 * 512 * 513 / 2.0;
  double total = 0.0;
  for (int i = 0; i < static_cast<int>(step.ops.size()); ++i) {
    const Op& op = step.ops[static_cast<std::size_t>(i)];
    const auto times = trainer.launch().executor().op_times(0, i);
    if (times.empty()) continue;
    const double seconds = static_cast<double>(times[0].end_ns - times[0].start_ns) * 1e-9;
    Sum& s = sums[op.kind];
    s.seconds += seconds;
    total += seconds;
    ++s.calls;
    if (op.cost) {
      s.flops += op.cost(counts).flops;
      s.bytes += op.cost(counts).bytes;
    }
  }
  std::vector<std::pair<std::string, Sum>> sorted(sums.begin(), sums.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& x, const auto& y) { return x.second.seconds > y.second.seconds; });
  std::printf("%-28s %6s %9s %7s %9s %9s\n", "op", "calls", "ms", "share", "GFLOP/s", "GB/s");
  for (const auto& [kind, s] : sorted) {
    std::printf("%-28s %6d %9.2f %6.1f%% %9.1f %9.1f\n", kind.c_str(), s.calls, s.seconds * 1e3,
                100.0 * s.seconds / total, s.flops / s.seconds * 1e-9, s.bytes / s.seconds * 1e-9);
  }
}

int run(const Arguments& a) {
  const HardwareProfile machine = detect_hardware();
  const Target target = machine.target(a.threads);
  TrainerOptions o = bench::tiny_step_options(target, a.precision, a.steps + 1);
  o.executor.time_ops = a.ops;
  o.step.recompute = a.recompute;
  Timings timings;
  bench::TinyStep tiny(o, timings);
  const RunPlan plan = make_run_plan(tiny.model(), o.step, o.target);
  Trainer& trainer = tiny.trainer();
  const DType dtype = compute_dtype(a.precision);
  const double before = kernels::measure_multiply_add_peak(trainer.launch().context(), dtype);
  trainer.run();
  const double peak = std::max(before, kernels::measure_multiply_add_peak(trainer.launch().context(), dtype));
  std::vector<StepReport> reports(timings.reports.begin() + 1,
                                  timings.reports.end());  // the first touches the memory
  std::sort(reports.begin(), reports.end(),
            [](const auto& x, const auto& y) { return x.seconds < y.seconds; });
  const StepReport& median = reports[reports.size() / 2];
  const double rate = static_cast<double>(median.tokens) / median.seconds;
  std::printf("%s, %s, %d threads, %s\n", machine.name.c_str(), kernels::to_string(machine.isa),
              o.target.num_threads, a.precision == Precision::fp32 ? "fp32" : "bf16");
  std::printf(
      "step %.1f ms (median of %zu, %.1f to %.1f): %.0f tokens/s, %.1f GFLOP/s = %.1f%% of %.1f GFLOP/s\n",
      median.seconds * 1e3, reports.size(), reports.front().seconds * 1e3, reports.back().seconds * 1e3, rate,
      median.model_flops / median.seconds * 1e-9, 100.0 * median.model_flops / median.seconds / peak,
      peak * 1e-9);
  std::printf("resident peak %s, planned %s (buffers %s)\n", format_bytes(peak_resident_bytes()).c_str(),
              format_bytes(plan.total_bytes()).c_str(), format_bytes(plan.device_bytes()).c_str());
  if (a.ops) print_ops(trainer);
  return 0;
}

}  // namespace
}  // namespace planalto

int main(int argc, char** argv) {
  try {
    return planalto::run(planalto::parse(argc, argv));
  } catch (const planalto::Error& e) {
    std::fprintf(stderr, "step_bench: %s error: %s\n", planalto::to_string(e.kind()), e.what());
    return planalto::exit_code(e.kind());
  }
}
