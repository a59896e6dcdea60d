// SPDX-License-Identifier: Apache-2.0
// session.h: what every benchmark begins with: its options, worker pool, kernels of an instruction set, meter and report.
// Options     --threads, --isa, --seconds, --rounds, --clock, --json, --peers, and those of the benchmark
// Errors      as those of its parts; run_benchmark prints them and returns the exit code
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/harness/arguments.h"
#include "bench/harness/report.h"
#include "bench/harness/shapes.h"
#include "cluster/measurement.h"

namespace planalto::bench {

class Session {
 public:
  explicit Session(Arguments arguments);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Arguments& arguments() const { return arguments_; }
  const ExecContext& ctx() const { return ctx_; }
  Meter& meter() { return meter_; }
  bool with_peers() const { return arguments_.yes("--peers"); }

  Report& report() { return report_; }
  // One entry a contender; the first is compared with the second when there is one.
  struct Contender {
    std::string name, by;
    Meter::Body body;
  };
  void measure(Bound bound, double flops, double bytes, const std::vector<Contender>& contenders);
  void finish() const;

 private:
  Arguments arguments_;
  ThreadPool pool_;
  ExecContext ctx_;
  Meter meter_;
  Report report_;
};

// body for each shape of the kind and each dtype that --shapes, --only and --dtype (f32, bf16 or both) name.
void for_each_shape(const Session& session, Shape::Kind kind,
                    const std::function<void(const Shape&, DType)>& body);

int run_benchmark(int argc, char** argv, const std::vector<Arguments::Option>& options,
                  void (*run)(Session&));

}  // namespace planalto::bench
