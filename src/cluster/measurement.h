// SPDX-License-Identifier: Apache-2.0
// measurement.h: times contenders in turn, each call between two probes of what the machine can do at that moment.
// A round     probe, contender 0, probe, contender 1, ..., probe. A round whose probes disagree by more than a tenth, or of
//             which one is below four fifths of the best of its kind so far, is dropped and followed by a nap
// Probes      the register-resident multiply-adds of a dtype; the update a = a x + 1 of arrays larger than caches; on AMX
//             also a product that lives in L1, since tile loads slow down for seconds while registers do not
// Clock       wall; or cpu, the processor time of this process, for a machine that is shared: use it with 1 thread
// Memory      the update probe maps two arrays of 256 MiB when it is first used
// Units       seconds of one call; flop/s or bytes/s of a probe
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/exec_context.h"
#include "runtime/arena.h"

namespace planalto {

enum class Clock { wall, cpu };
enum class Bound { f32, bf16, update };  // the probe that work is held against
const char* to_string(Bound bound);

double quantile(std::vector<double> values, double share);
inline double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

struct Series {                 // of one contender, one entry a round that counts
  std::vector<double> seconds;  // of one call
  std::vector<double> probe;    // the mean of the two around it
};
struct Rounds {
  std::vector<Series> series;
  int dropped = 0;
  bool steady = true;  // false: too few rounds passed, all of them are here
};

class Meter {
 public:
  struct Options {
    Clock clock = Clock::wall;
    double seconds = 0.3;  // to spend inside each contender
    int min_rounds = 5;
  };
  Meter(const ExecContext& ctx, const Options& options);

  using Body = std::function<void()>;
  // Each body runs once before the first round, to touch its memory.
  Rounds measure(Bound bound, const std::vector<Body>& bodies);

  double now() const;
  double probe(Bound bound);
  // Whether two probes that followed each other count as one state of the machine.
  bool agree(Bound bound, double before, double after) const;
  double best(Bound bound) const;  // of all probes so far; 0: none
  int min_rounds() const { return options_.min_rounds; }

 private:
  double time_of(const Body& body, std::int64_t calls) const;
  double probe_multiply_add(Bound bound);
  double probe_update();
  double probe_fed_tiles();
  bool run_round(Bound bound, const std::vector<Body>& bodies, const std::vector<std::int64_t>& calls,
                 Rounds* all);

  const ExecContext& ctx_;
  Options options_;
  double best_[3] = {0.0, 0.0, 0.0};
  std::int64_t iterations_[2] = {0, 0};
  Arena a_, x_;  // of the update
  std::int64_t next_ = 0;
  struct FedTiles;
  std::shared_ptr<FedTiles> tiles_;
};

}  // namespace planalto
