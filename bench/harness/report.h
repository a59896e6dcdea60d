// SPDX-License-Identifier: Apache-2.0
// report.h: the results of a benchmark as lines of a table while it runs, and as one JSON file at its end.
// JSON        program, command, commit (of the tree that was built), date (UTC), cpu, isa, threads, clock, peaks (the best probe
//             of each kind), entries: name, by (who did it), bound, flops, bytes, seconds and of_peak (one an accepted round),
//             dropped, steady, peer and ratio (the peer's time over this one, median of the rounds); facts: name, by, values
// Units       flops and bytes of one call; bytes is the least traffic: every operand once
// Errors      io: the file cannot be written
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cluster/measurement.h"

namespace planalto::bench {

struct Entry {
  std::string name, by;
  Bound bound = Bound::f32;
  double flops = 0.0, bytes = 0.0;
  Series series;
  int dropped = 0;
  bool steady = true;
  std::string peer;
  std::optional<double> ratio;  // above 1: faster than the peer

  double work() const { return bound == Bound::update ? bytes : flops; }
  std::vector<double> of_peak() const;
};

// The peer's time over ours, round by round.
std::vector<double> ratios(const Series& peer, const Series& ours);

struct RunFacts {
  std::string program, command, isa, clock;
  int threads = 1;
};

class Report {
 public:
  explicit Report(RunFacts facts);
  void add(const Entry& entry);
  // Numbers beside the entries; text: the line that is printed.
  void add_fact(const std::string& name, const std::string& by, const std::vector<double>& values,
                const std::string& text);
  void write(const std::string& path, const Meter& meter) const;
  bool empty() const { return entries_.empty(); }

 private:
  RunFacts facts_;
  std::string date_, cpu_;
  JsonArray entries_, facts_found_;
};

}  // namespace planalto::bench
