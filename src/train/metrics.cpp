// SPDX-License-Identifier: Apache-2.0
#include "train/metrics.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace planalto {

namespace {

// JSON has no NaN: a value that is not finite becomes null.
JsonValue number(double v) {
  return std::isfinite(v) ? JsonValue(v) : JsonValue();
}

double rate(std::int64_t n, double seconds) {
  return seconds > 0.0 ? static_cast<double>(n) / seconds : 0.0;
}

JsonObject balance_to_json(const LayerBalance& b) {
  JsonObject o;
  o.set("layer", b.block);
  o.set("max_over_mean", number(b.max_over_mean));
  o.set("min_over_mean", number(b.min_over_mean));
  o.set("dead_share", number(b.dead_share));
  o.set("entropy", number(b.entropy));
  o.set("bias_min", number(b.bias_min));
  o.set("bias_max", number(b.bias_max));
  return o;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path) : path_(path) {
  make_folders(parent_path(path));
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) fail(ErrorKind::io, "{}: cannot be opened for appending: {}", path, std::strerror(errno));
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsFile::line(const std::string& json) {
  const std::string text = json + "\n";
  const off_t begin = ::lseek(fd_, 0, SEEK_END);
  try {
    write_all(fd_, std::as_bytes(std::span(text.data(), text.size())), path_);
  } catch (const Error&) {
    // A half line would swallow the next one.
    if (begin >= 0) (void)!::ftruncate(fd_, begin);
    throw;
  }
}

void keep_metrics_until(const std::string& path, std::int64_t step) {
  if (!is_regular_file(path)) return;
  std::string kept;
  std::int64_t size = 0;
  {
    const MappedFile file(path);
    std::string_view rest = file.text();
    size = file.size();
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      if (end == rest.npos) break;  // the half line of a killed run
      const std::string_view text = rest.substr(0, end);
      rest.remove_prefix(end + 1);
      try {
        const JsonValue value = parse_json(text, path);
        const JsonValue* at = value.find("step");
        if (at != nullptr && at->is_integer() && at->as_int64("step") <= step) kept.append(text).append("\n");
      } catch (const Error&) {
        continue;
      }
    }
  }
  if (static_cast<std::int64_t>(kept.size()) != size) write_file_atomically(path, kept);
}

void MetricsFile::write(const StepReport& r) {
  JsonObject o;
  o.set("step", r.step);
  o.set("updates", r.updates);
  o.set("loss", number(r.loss));
  JsonArray mtp;
  for (const double loss : r.mtp_losses) mtp.push_back(number(loss));
  if (!mtp.empty()) o.set("mtp_losses", std::move(mtp));
  o.set("aux_loss", number(r.aux_loss));
  o.set("grad_norm", number(r.grad_norm));
  o.set("learning_rate", number(r.learning_rate));
  o.set("skipped", r.skipped);
  if (r.skipped) o.set("skip_reason", r.skip_reason);
  o.set("positions", r.positions);
  o.set("tokens", r.tokens);
  o.set("trained", r.trained);
  o.set("seconds", number(r.seconds));
  o.set("positions_per_second", number(rate(r.positions, r.seconds)));
  o.set("tokens_per_second", number(rate(r.tokens, r.seconds)));
  o.set("trained_per_second", number(rate(r.trained, r.seconds)));
  o.set("model_flops_per_second", number(r.seconds > 0.0 ? r.model_flops / r.seconds : 0.0));
  JsonArray balance;
  for (const LayerBalance& b : r.balance) balance.push_back(balance_to_json(b));
  o.set("balance", std::move(balance));
  line(write_json(o));
}

void MetricsFile::write(const EvalReport& r) {
  JsonObject o;
  o.set("step", r.step);
  o.set("eval_loss", number(r.loss));
  o.set("eval_labels", r.labels);
  o.set("seconds", number(r.seconds));
  line(write_json(o));
}

std::string format_duration(double seconds) {
  const auto s = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

std::string progress_line(const StepReport& r, const ProgressContext& c) {
  const double flops = r.seconds > 0.0 ? r.model_flops / r.seconds : 0.0;
  std::string text = fmt::format("step {}/{} | loss {:.4f}", r.step, c.steps, r.loss);
  if (r.skipped) text = fmt::format("step {}/{} | skipped: {}", r.step, c.steps, r.skip_reason);
  text += fmt::format(" | {:.0f} tok/s | {:.3f} TFLOP/s", rate(r.tokens, r.seconds), flops * 1e-12);
  if (c.peak_flops > 0.0) text += fmt::format(" | MFU {:.1f}%", 100.0 * flops / c.peak_flops);
  text += fmt::format(" | lr {:.2e} | grad {:.3f}", r.learning_rate, r.grad_norm);
  double worst = 0.0, dead = 0.0;
  for (const LayerBalance& b : r.balance) {
    worst = std::max(worst, b.max_over_mean);
    dead = std::max(dead, b.dead_share);
  }
  if (!r.balance.empty())
    text += fmt::format(" | experts max/mean {:.2f}, dead {:.0f}%", worst, 100.0 * dead);
  if (c.seconds_per_step > 0.0) {
    text += fmt::format(" | {} left",
                        format_duration(c.seconds_per_step * static_cast<double>(c.steps - r.step)));
  }
  return text;
}

}  // namespace planalto
