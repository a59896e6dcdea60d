// SPDX-License-Identifier: Apache-2.0
#include "bench/harness/report.h"

#include <fmt/core.h>
#include <time.h>

#include <cstdio>
#include <fstream>

#include "base/error.h"
#include "bench_commit.h"

namespace planalto::bench {

namespace {

std::string utc_now() {
  const time_t now = time(nullptr);
  tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// The model's name says little on virtual machines, so family and model go with it.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string name = "unknown", family, model;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) {
      name = value;
    } else if (line.starts_with("cpu family")) {
      family = value;
    } else if (line.starts_with("model\t")) {
      model = value;
    }
  }
  return fmt::format("{} (family {}, model {})", name, family, model);
}

JsonArray array_of(const std::vector<double>& values) {
  JsonArray array;
  for (const double v : values) array.emplace_back(v);
  return array;
}

JsonObject to_json(const Entry& e) {
  JsonObject o;
  o.set("name", e.name);
  o.set("by", e.by);
  o.set("bound", to_string(e.bound));
  o.set("flops", e.flops);
  o.set("bytes", e.bytes);
  o.set("median_seconds", median(e.series.seconds));
  o.set("median_of_peak", median(e.of_peak()));
  o.set("dropped", e.dropped);
  o.set("steady", e.steady);
  if (e.ratio) {
    o.set("peer", e.peer);
    o.set("ratio", *e.ratio);
  }
  o.set("seconds", array_of(e.series.seconds));
  o.set("of_peak", array_of(e.of_peak()));
  return o;
}

}  // namespace

std::vector<double> Entry::of_peak() const {
  std::vector<double> shares;
  for (std::size_t i = 0; i < series.seconds.size(); ++i) {
    shares.push_back(work() / series.seconds[i] / series.probe[i]);
  }
  return shares;
}

std::vector<double> ratios(const Series& peer, const Series& ours) {
  PLANALTO_CHECK(peer.seconds.size() == ours.seconds.size(), "rounds of two runs: {} and {}",
                 peer.seconds.size(), ours.seconds.size());
  std::vector<double> r;
  for (std::size_t i = 0; i < ours.seconds.size(); ++i) r.push_back(peer.seconds[i] / ours.seconds[i]);
  return r;
}

Report::Report(RunFacts facts) : facts_(std::move(facts)), date_(utc_now()), cpu_(cpu_name()) {
  fmt::print("{}, {}, {} threads, {} clock, commit {}, {}\n", cpu_, facts_.isa, facts_.threads, facts_.clock,
             kCommit, date_);
  fmt::print("{}\n", facts_.command);
  fmt::print("{:<48} {:<18} {:>10} {:>21} {:>9}      {:>6}  {:>7}\n", "name", "by", "median ms", "quartiles",
             "rate", "of peak", "rounds");
}

void Report::add(const Entry& e) {
  const std::vector<double>& s = e.series.seconds;
  const double scale = 1e-9;
  fmt::print("{:<48} {:<18} {:>10.3f} {:>21} {:>9.1f} {} {:>5.1f}%  {:>7}", e.name, e.by, median(s) * 1e3,
             fmt::format("{:.3f}-{:.3f}", quantile(s, 0.25) * 1e3, quantile(s, 0.75) * 1e3),
             e.work() / median(s) * scale, e.bound == Bound::update ? "GB/s" : "GF/s",
             median(e.of_peak()) * 100.0,
             e.steady ? fmt::format("{}-{}", s.size(), e.dropped) : fmt::format("{}, unsteady", s.size()));
  if (e.ratio) fmt::print("  {:.2f}x {}", *e.ratio, e.peer);
  fmt::print("\n");
  std::fflush(stdout);
  entries_.emplace_back(to_json(e));
}

void Report::add_fact(const std::string& name, const std::string& by, const std::vector<double>& values,
                      const std::string& text) {
  fmt::print("  {}\n", text);
  JsonObject o;
  o.set("name", name);
  o.set("by", by);
  o.set("values", array_of(values));
  facts_found_.emplace_back(std::move(o));
}

void Report::write(const std::string& path, const Meter& meter) const {
  JsonObject o;
  o.set("program", facts_.program);
  o.set("command", facts_.command);
  o.set("commit", kCommit);
  o.set("date", date_);
  o.set("cpu", cpu_);
  o.set("isa", facts_.isa);
  o.set("threads", facts_.threads);
  o.set("clock", facts_.clock);
  JsonObject peaks;
  for (const Bound b : {Bound::f32, Bound::bf16, Bound::update}) {
    if (meter.best(b) > 0.0) peaks.set(to_string(b), meter.best(b));
  }
  o.set("peaks", std::move(peaks));
  o.set("entries", entries_);
  if (!facts_found_.empty()) o.set("facts", facts_found_);
  std::ofstream file(path);
  file << write_json(o, JsonStyle::pretty) << "\n";
  file.close();
  if (!file) fail(ErrorKind::io, "{}: cannot be written", path);
}

}  // namespace planalto::bench
