// SPDX-License-Identifier: Apache-2.0
// mxfp8_bench.cpp: times MXFP8 quantization by rows, by columns and both at once, and dequantization, beside a plain copy.
// Units       median of the repeats (and the best); GB/s of all bytes that must be read and written; % of the bandwidth
//             of memcpy between arrays of the size of x, the best of those timed before and after each line
// usage: mxfp8_bench [--threads N] [--isa NAME] [--rows R] [--cols C] [--seconds S] [--clock wall|cpu]
#include <fmt/core.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/exec_context.h"
#include "kernels/elementwise.h"
#include "kernels/mxfp8.h"
#include "kernels/table.h"

namespace {

using namespace planalto;
using namespace planalto::kernels;

constexpr std::size_t kHugePage = std::size_t{2} << 20;

class Array {
 public:
  Array(DType dtype, std::int64_t rows, std::int64_t cols)
      : bytes_(static_cast<std::size_t>(rows * cols * dtype_bytes(dtype))),
        data_(std::aligned_alloc(kHugePage, (bytes_ + kHugePage) / kHugePage * kHugePage), &std::free),
        view_{data_.get(), dtype, rows, cols, cols} {
    madvise(data_.get(), (bytes_ + kHugePage) / kHugePage * kHugePage, MADV_HUGEPAGE);
    std::memset(data_.get(), 0, bytes_);
  }
  Matrix view() const { return view_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }

 private:
  std::size_t bytes_;
  std::unique_ptr<void, void (*)(void*)> data_;
  Matrix view_;
};

void fill_normal(const Array& array) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const Matrix m = array.view();
  std::vector<float> values(1 << 16);
  for (float& v : values) v = normal(random);
  for (std::int64_t i = 0; i < m.rows * m.cols; ++i) {
    const float v = values[static_cast<std::size_t>(i * 7 + i / 65521) % values.size()];
    if (m.dtype == DType::f32) static_cast<float*>(m.data)[i] = v;
    if (m.dtype == DType::bf16) static_cast<bf16*>(m.data)[i] = to_bf16(v);
  }
}

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

struct Line {
  const char* name;
  std::int64_t bytes;
};

class Bench {
 public:
  Bench(const ExecContext& ctx, DType dtype, std::int64_t rows, std::int64_t cols, double seconds)
      : ctx_(ctx),
        seconds_(seconds),
        x_(dtype, rows, cols),
        y_(dtype, rows, cols),
        row_codes_(DType::u8, rows, cols),
        row_scales_(DType::u8, rows, mxfp8_blocks(cols)),
        column_codes_(DType::u8, mxfp8_blocks(rows) * kMxfp8Block, cols),
        column_scales_(DType::u8, mxfp8_blocks(rows), cols) {
    fill_normal(x_);
  }

  void run() const {
    const std::int64_t by_rows = row_codes_.bytes() + row_scales_.bytes();
    const std::int64_t by_columns = column_codes_.bytes() + column_scales_.bytes();
    const RowCount rows{nullptr, x_.view().rows, 1};
    for (const Mxfp8Format format : {Mxfp8Format::e4m3, Mxfp8Format::e5m2}) {
      const char* format_name = format == Mxfp8Format::e4m3 ? "e4m3" : "e5m2";
      Mxfp8Quantize q{.x = x_.view(), .format = format, .rows = rows};
      q.row_codes = row_codes_.view();
      q.row_scales = row_scales_.view();
      line("quantize by rows", format_name, x_.bytes() + by_rows, [&] { mxfp8_quantize(ctx_, q); });
      q.column_codes = column_codes_.view();
      q.column_scales = column_scales_.view();
      line("quantize both ways", format_name, x_.bytes() + by_rows + by_columns,
           [&] { mxfp8_quantize(ctx_, q); });
      q.row_codes = q.row_scales = {};
      line("quantize by columns", format_name, x_.bytes() + by_columns, [&] { mxfp8_quantize(ctx_, q); });
      Mxfp8Dequantize d{.codes = row_codes_.view(),
                        .scales = row_scales_.view(),
                        .y = y_.view(),
                        .format = format,
                        .rows = rows};
      line("dequantize by rows", format_name, y_.bytes() + by_rows, [&] { mxfp8_dequantize(ctx_, d); });
      d = {.codes = column_codes_.view(),
           .scales = column_scales_.view(),
           .y = y_.view(),
           .axis = Mxfp8Axis::column,
           .format = format,
           .rows = rows};
      line("dequantize by columns", format_name, y_.bytes() + by_columns, [&] { mxfp8_dequantize(ctx_, d); });
    }
  }

 private:
  double copy_bandwidth() const {
    const Times t = time_of(seconds_ / 4, [&] {
      add_rows(ctx_, {.a = x_.view(), .y = y_.view(), .rows = {.capacity = x_.view().rows}});
    });
    return 2.0 * static_cast<double>(x_.bytes()) / t.best;
  }

  template <class Body>
  void line(const char* name, const char* format, std::int64_t bytes, const Body& body) const {
    double copy = copy_bandwidth();
    const Times t = time_of(seconds_, body);
    copy = std::max(copy, copy_bandwidth());
    const double median = static_cast<double>(bytes) / t.median, best = static_cast<double>(bytes) / t.best;
    fmt::print("{:4} {} {:22} {:8.3f} ms {:7.2f} GB/s {:6.1f}% of copy (best {:5.1f}%, copy {:.2f} GB/s)\n",
               to_string(x_.view().dtype), format, name, t.median * 1e3, median * 1e-9, median / copy * 100.0,
               best / copy * 100.0, copy * 1e-9);
  }

  const ExecContext& ctx_;
  double seconds_;
  Array x_, y_, row_codes_, row_scales_, column_codes_, column_scales_;
};

int run(int argc, char** argv) {
  std::map<std::string, std::string> options{{"--threads", "1"},   {"--isa", to_string(choose_isa().isa)},
                                             {"--rows", "16384"},  {"--cols", "2048"},
                                             {"--seconds", "0.2"}, {"--clock", "wall"}};
  for (int i = 1; i < argc; i += 2) {
    const auto option = options.find(argv[i]);
    if (option == options.end()) {
      fail(ErrorKind::config, "{} is unknown; legal: --threads, --isa, --rows, --cols, --seconds, --clock",
           argv[i]);
    }
    if (i + 1 == argc) fail(ErrorKind::config, "{} needs a value", argv[i]);
    option->second = argv[i + 1];
  }
  const int threads = std::max(1, std::atoi(options["--threads"].c_str()));
  const std::int64_t rows = std::atoll(options["--rows"].c_str()),
                     cols = std::atoll(options["--cols"].c_str());
  if (rows < 1 || cols < 1) fail(ErrorKind::config, "--rows {} and --cols {} must be at least 1", rows, cols);
  if (options["--clock"] == "cpu") timing_clock = CLOCK_THREAD_CPUTIME_ID;
  ThreadPool pool(threads);
  const ExecContext ctx{&pool, &kernel_table(isa_from_name(options["--isa"]))};
  fmt::print("{}, {} threads, {} x {}\n", to_string(ctx.kernels->isa), threads, rows, cols);
  for (const DType dtype : {DType::bf16, DType::f32})
    Bench(ctx, dtype, rows, cols, std::atof(options["--seconds"].c_str())).run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const planalto::Error& e) {
    fmt::print(stderr, "mxfp8_bench: {}\n", e.what());
    return planalto::exit_code(e.kind());
  }
}
