// SPDX-License-Identifier: Apache-2.0
// gemm_bench.cpp: times the three passes of the grouped matrix product on the shapes of bench/shapes/gemm.txt.
// Units       median of the repeats (and the best); GFLOP/s; % of the multiply-add peak of the same dtype, ISA and threads,
//             measured just before and after the shape (the higher of the two)
//             with --clock cpu the time is the calling thread's own, for a machine that is shared: use it with 1 thread
// usage: gemm_bench [--threads N] [--isa NAME] [--shapes FILE] [--only PART_OF_NAME] [--seconds S] [--clock wall|cpu]
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/exec_context.h"
#include "kernels/grouped_gemm.h"
#include "kernels/packed_weight.h"
#include "kernels/peak.h"
#include "kernels/table.h"

namespace {

using namespace planalto;
using namespace planalto::kernels;

struct Shape {
  std::string name;
  std::int64_t experts = 0, n = 0, k = 0, rows = 0;
};

std::vector<Shape> read_shapes(const std::string& path, const std::string& only) {
  std::ifstream file(path);
  if (!file) fail(ErrorKind::io, "{}: cannot be read", path);
  std::vector<Shape> shapes;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Shape s;
    if (!(words >> s.name >> s.experts >> s.n >> s.k >> s.rows)) {
      fail(ErrorKind::data, "{}: \"{}\" is not: name, E, N, K, rows", path, line);
    }
    if (s.name.find(only) != std::string::npos) shapes.push_back(s);
  }
  return shapes;
}

class Array {
 public:
  Array(DType dtype, std::int64_t rows, std::int64_t cols, unsigned seed)
      : storage_(static_cast<std::size_t>(rows * cols * dtype_bytes(dtype) + 64)),
        view_{nullptr, dtype, rows, cols, cols} {
    view_.data = storage_.data() + (64 - reinterpret_cast<std::uintptr_t>(storage_.data()) % 64);
    std::minstd_rand random(seed);
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const float v = static_cast<float>(random() % 2048) / 1024.0F - 1.0F;
      if (dtype == DType::f32) static_cast<float*>(view_.data)[i] = v;
      if (dtype == DType::bf16) static_cast<bf16*>(view_.data)[i] = to_bf16(v);
    }
  }
  Matrix view() const { return view_; }

 private:
  std::vector<char> storage_;
  Matrix view_;
};

clockid_t timing_clock = CLOCK_MONOTONIC;

double now() {
  timespec t{};
  clock_gettime(timing_clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Times {
  double median = 0.0, best = 0.0;
};

template <class Body>
Times time_of(double seconds, const Body& body) {
  std::vector<double> times;
  body();
  for (double total = 0.0; (total < seconds && times.size() < 1000) || times.size() < 3;) {
    const double start = now();
    body();
    times.push_back(now() - start);
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[0]};
}

// One shape's operands, and each pass over them.
class Problem {
 public:
  Problem(const ExecContext& ctx, const Shape& shape, DType dtype)
      : ctx_(ctx),
        s_(shape),
        dtype_(dtype),
        rows_(shape.experts * shape.rows),
        x_(dtype, rows_, shape.k, 1),
        w_(dtype, shape.experts * shape.n, shape.k, 2),
        dy_(dtype, rows_, shape.n, 3),
        y_(dtype, rows_, shape.n, 4),
        dx_(dtype, rows_, shape.k, 5),
        dw_(DType::f32, shape.experts * shape.n, shape.k, 6),
        forward_(DType::u8, 1, packed_weight_bytes(shape.experts, shape.n, shape.k, ctx.kernels->isa), 8),
        backward_(DType::u8, 1, packed_weight_bytes(shape.experts, shape.k, shape.n, ctx.kernels->isa), 9) {
    for (std::int64_t e = 0; e <= s_.experts; ++e) offsets_.push_back(e * s_.rows);
    const PackedCopies copies{s_.experts, s_.n, s_.k, forward_.view().data, backward_.view().data};
    pack_weight(ctx, {.source = static_cast<const float*>(dw_.view().data), .copies = copies});
  }
  double flops() const { return 2.0 * static_cast<double>(rows_ * s_.n) * static_cast<double>(s_.k); }

  Times time(GemmPass pass, bool packed, double seconds) const {
    const std::int64_t bytes = grouped_gemm_workspace_bytes({pass, dtype_, rows_, s_.n, s_.k, s_.experts},
                                                            ctx_.kernels->isa, ctx_.pool->num_threads());
    const Array scratch(DType::u8, 1, bytes, 7);
    const Workspace workspace{scratch.view().data, bytes};
    const RowCount count{nullptr, rows_, 1};
    const Segments segments{s_.experts, offsets_.data()};
    const GroupedGemmForward forward{.x = x_.view(),
                                     .w = w_.view(),
                                     .packed = packed ? forward_.view().data : nullptr,
                                     .y = y_.view(),
                                     .segments = segments,
                                     .rows = count,
                                     .workspace = workspace};
    const GroupedGemmGradInput grad_input{.dy = dy_.view(),
                                          .w = w_.view(),
                                          .packed = packed ? backward_.view().data : nullptr,
                                          .dx = dx_.view(),
                                          .segments = segments,
                                          .rows = count,
                                          .workspace = workspace};
    const GroupedGemmGradWeight grad_weight{.dy = dy_.view(),
                                            .x = x_.view(),
                                            .dw = dw_.view(),
                                            .segments = segments,
                                            .rows = count,
                                            .workspace = workspace};
    return time_of(seconds, [&] {
      if (pass == GemmPass::forward) grouped_gemm_forward(ctx_, forward);
      if (pass == GemmPass::grad_input) grouped_gemm_grad_input(ctx_, grad_input);
      if (pass == GemmPass::grad_weight) grouped_gemm_grad_weight(ctx_, grad_weight);
    });
  }

 private:
  const ExecContext& ctx_;
  Shape s_;
  DType dtype_;
  std::int64_t rows_;
  Array x_, w_, dy_, y_, dx_, dw_, forward_, backward_;
  std::vector<std::int64_t> offsets_;
};

void bench(const ExecContext& ctx, const Shape& s, DType dtype, double seconds) {
  const Problem problem(ctx, s, dtype);
  struct Case {
    GemmPass pass;
    bool packed;
    const char* name;
  };
  for (const Case& c :
       {Case{GemmPass::forward, false, "forward"}, Case{GemmPass::forward, true, "forward, packed"},
        Case{GemmPass::grad_input, false, "grad_input"},
        Case{GemmPass::grad_input, true, "grad_input, packed"},
        Case{GemmPass::grad_weight, false, "grad_weight"}}) {
    if (c.packed && dtype != DType::bf16) continue;
    double peak = measure_multiply_add_peak(ctx, dtype);
    const Times t = problem.time(c.pass, c.packed, seconds);
    peak = std::max(peak, measure_multiply_add_peak(ctx, dtype));
    const double flops = problem.flops();
    fmt::print(
        "{:22} {:>3} x {:>5} x {:>4}, {:>5} rows  {:4} {:18} {:9.3f} ms {:7.1f} GFLOP/s {:5.1f}% (best "
        "{:5.1f}%)\n",
        s.name, s.experts, s.n, s.k, s.rows, to_string(dtype), c.name, t.median * 1e3,
        flops / t.median * 1e-9, flops / t.median / peak * 100.0, flops / t.best / peak * 100.0);
  }
}

int run(int argc, char** argv) {
  std::map<std::string, std::string> options{{"--threads", "1"},
                                             {"--isa", to_string(choose_isa().isa)},
                                             {"--shapes", PLANALTO_BENCH_SHAPES "/gemm.txt"},
                                             {"--only", ""},
                                             {"--seconds", "0.2"},
                                             {"--clock", "wall"}};
  for (int i = 1; i < argc; i += 2) {
    const auto option = options.find(argv[i]);
    if (option == options.end()) {
      fail(ErrorKind::config, "{} is unknown; legal: --threads, --isa, --shapes, --only, --seconds, --clock",
           argv[i]);
    }
    if (i + 1 == argc) fail(ErrorKind::config, "{} needs a value", argv[i]);
    option->second = argv[i + 1];
  }
  const int threads = std::max(1, std::atoi(options["--threads"].c_str()));
  const double seconds = std::atof(options["--seconds"].c_str());
  const Isa isa = isa_from_name(options["--isa"]);
  if (options["--clock"] == "cpu") timing_clock = CLOCK_THREAD_CPUTIME_ID;
  ThreadPool pool(threads);
  const ExecContext ctx{&pool, &kernel_table(isa)};
  fmt::print("{}, {} threads, peak fp32 {:.1f}, bf16 {:.1f} GFLOP/s\n", to_string(isa), threads,
             measure_multiply_add_peak(ctx, DType::f32) * 1e-9,
             measure_multiply_add_peak(ctx, DType::bf16) * 1e-9);
  for (const Shape& s : read_shapes(options["--shapes"], options["--only"])) {
    for (const DType dtype : {DType::f32, DType::bf16}) bench(ctx, s, dtype, seconds);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const planalto::Error& e) {
    fmt::print(stderr, "gemm_bench: {}\n", e.what());
    return planalto::exit_code(e.kind());
  }
}
