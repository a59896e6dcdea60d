// SPDX-License-Identifier: Apache-2.0
#include "bench/harness/session.h"

#include <fmt/core.h>

#include "base/error.h"
#include "kernels/table.h"

namespace planalto::bench {

namespace {

using Option = Arguments::Option;

Clock clock_of(const Arguments& a) {
  const std::string& name = a.text("--clock");
  if (name != "wall" && name != "cpu") fail(ErrorKind::config, "--clock is \"{}\"; legal: wall, cpu", name);
  if (name == "cpu" && a.integer("--threads") != 1) {
    fail(ErrorKind::config, "--clock cpu adds up the time of all threads: use it with --threads 1");
  }
  return name == "cpu" ? Clock::cpu : Clock::wall;
}

int count_of(const Arguments& a, const char* option) {
  const std::int64_t n = a.integer(option);
  if (n < 1 || n > 1024) fail(ErrorKind::config, "{} is {}; legal: 1 to 1024", option, n);
  return static_cast<int>(n);
}

std::vector<Option> all_options(const std::vector<Option>& own) {
  std::vector<Option> options{
      {"--threads", "1", "worker threads"},
      {"--isa", to_string(kernels::choose_isa().isa), "instruction set of the kernels"},
      {"--seconds", "0.3", "to spend inside each contender of an entry"},
      {"--rounds", "5", "at least so many rounds, however long they take"},
      {"--clock", "wall", "wall, or cpu: processor time, for a machine that is shared"},
      {"--json", "", "file for the results"},
      {"--peers", "yes", "yes: oneDNN in the same rounds, when it was built in"}};
  options.insert(options.end(), own.begin(), own.end());
  return options;
}

}  // namespace

Session::Session(Arguments arguments)
    : arguments_(std::move(arguments)),
      pool_(count_of(arguments_, "--threads")),
      ctx_{&pool_, &kernels::kernel_table(kernels::isa_from_name(arguments_.text("--isa")))},
      meter_(ctx_, {clock_of(arguments_), arguments_.number("--seconds"), count_of(arguments_, "--rounds")}),
      report_({arguments_.program(), arguments_.command(), arguments_.text("--isa"),
               arguments_.text("--clock"), pool_.num_threads()}) {}

void Session::measure(Bound bound, double flops, double bytes, const std::vector<Contender>& contenders) {
  std::vector<Meter::Body> bodies;
  bodies.reserve(contenders.size());
  for (const Contender& c : contenders) bodies.push_back(c.body);
  const Rounds rounds = meter_.measure(bound, bodies);
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    Entry e{contenders[i].name, contenders[i].by, bound,         flops, bytes,
            rounds.series[i],   rounds.dropped,   rounds.steady, {},    {}};
    if (i == 0 && contenders.size() > 1) {
      e.peer = contenders[1].by;
      e.ratio = median(ratios(rounds.series[1], rounds.series[0]));
    }
    report_.add(e);
  }
}

void Session::finish() const {
  if (report_.empty()) fail(ErrorKind::config, "nothing was measured: no shape has that name");
  if (!arguments_.text("--json").empty()) report_.write(arguments_.text("--json"), meter_);
}

void for_each_shape(const Session& session, Shape::Kind kind,
                    const std::function<void(const Shape&, DType)>& body) {
  const Arguments& a = session.arguments();
  for (const Shape& s : read_shapes(a.text("--shapes"), kind, a.text("--only"))) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (a.text("--dtype") == "both" || a.text("--dtype") == to_string(dtype)) body(s, dtype);
    }
  }
}

int run_benchmark(int argc, char** argv, const std::vector<Option>& options, void (*run)(Session&)) {
  try {
    Session session(Arguments(argc, argv, all_options(options)));
    run(session);
    session.finish();
    return 0;
  } catch (const Error& e) {
    fmt::print(stderr, "{}: {}\n", argv[0], e.what());
    return exit_code(e.kind());
  }
}

}  // namespace planalto::bench
