// SPDX-License-Identifier: Apache-2.0
// metrics.h: one JSON object a line for every reported step and evaluation, and the progress line of a terminal.
// Invariants  the file reads as one run: a resume drops the lines of steps behind its checkpoint, which will be written again
// Errors      io: the file cannot be written; a line stands in it whole or not at all
// Units       seconds, tokens per second, flop/s; three token rates: positions computed, real tokens, trained labels
#pragma once

#include <cstdio>
#include <string>

#include "train/trainer.h"

namespace planalto {

// Appends to a JSON lines file; each line is handed to the system at once.
class MetricsFile {
 public:
  explicit MetricsFile(const std::string& path);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  void write(const StepReport& report);
  void write(const EvalReport& report);

 private:
  void line(const std::string& json);
  std::string path_;
  int fd_ = -1;
};

// Drops, atomically, the lines of steps after `step` and what is no line of a step. Nothing happens when there is no file.
void keep_metrics_until(const std::string& path, std::int64_t step);

struct ProgressContext {
  std::int64_t steps = 0;       // of the whole run
  double peak_flops = 0.0;      // of this machine, measured; 0: unknown
  double seconds_per_step = 0;  // smoothed, for the time left
};
// "step 20/1000 | loss 5.1234 | ..."
std::string progress_line(const StepReport& report, const ProgressContext& context);
std::string format_duration(double seconds);

}  // namespace planalto
