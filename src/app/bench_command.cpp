// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <vector>

#include "app/commands.h"
#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "cluster/hardware_profile.h"
#include "cluster/measurement.h"
#include "kernels/grouped_gemm.h"
#include "kernels/peak.h"
#include "kernels/table.h"
#include "runtime/arena.h"

namespace planalto {

namespace {

struct BenchArguments {
  int threads = 0, repeats = 5;
  bool json = false;
};

struct Row {
  std::string name;
  double value = 0.0;            // flop/s or bytes/s: the median, or the peak itself
  double low = 0.0, high = 0.0;  // quartiles
  double of_peak = 0.0;          // median share of the peak probed around each run
  bool is_flops = true;
  bool steady = true;
};

void fill(void* data, DType dtype, std::int64_t n) {
  const Random random(7);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto v = static_cast<float>(random.uniform(static_cast<std::uint64_t>(i)) - 0.5);
    if (dtype == DType::f32) {
      static_cast<float*>(data)[i] = v;
    } else {
      static_cast<bf16*>(data)[i] = to_bf16(v);
    }
  }
}

// Expert products: 16 experts of 128 rows, [512 -> 1024].
class GroupedProducts {
 public:
  GroupedProducts(const ExecContext& ctx, kernels::Isa isa, DType dtype) : ctx_(ctx), dtype_(dtype) {
    const std::int64_t element = dtype_bytes(dtype);
    auto bytes = [&](kernels::GemmPass pass) {
      return kernels::grouped_gemm_workspace_bytes({pass, dtype, kRows, kN, kK, kExperts}, isa,
                                                   ctx.pool->num_threads());
    };
    workspace_bytes_ = std::max({bytes(kernels::GemmPass::forward), bytes(kernels::GemmPass::grad_input),
                                 bytes(kernels::GemmPass::grad_weight)});
    x_ = Arena(kRows * kK * element, Tier::device);
    w_ = Arena(kExperts * kN * kK * element, Tier::device);
    y_ = Arena(kRows * kN * element, Tier::device);
    dw_ = Arena(kExperts * kN * kK * 4, Tier::device);
    scratch_ = Arena(std::max<std::int64_t>(workspace_bytes_, 64), Tier::device);
    fill(x_.data(), dtype, kRows * kK);
    fill(w_.data(), dtype, kExperts * kN * kK);
    fill(y_.data(), dtype, kRows * kN);
    for (std::int64_t e = 0; e <= kExperts; ++e) offsets_[static_cast<std::size_t>(e)] = e * kRows / kExperts;
  }

  void forward() {
    kernels::grouped_gemm_forward(
        ctx_,
        {.x = x(), .w = w(), .y = y(), .segments = segments(), .rows = rows(), .workspace = workspace()});
  }
  void grad_input() {
    kernels::grouped_gemm_grad_input(
        ctx_,
        {.dy = y(), .w = w(), .dx = x(), .segments = segments(), .rows = rows(), .workspace = workspace()});
  }
  void grad_weight() {
    kernels::grouped_gemm_grad_weight(ctx_, {.dy = y(),
                                             .x = x(),
                                             .dw = {dw_.data(), DType::f32, kExperts * kN, kK, kK},
                                             .segments = segments(),
                                             .rows = rows(),
                                             .workspace = workspace()});
  }

  static double flops() { return 2.0 * static_cast<double>(kRows * kN * kK); }

 private:
  static constexpr std::int64_t kExperts = 16, kRows = 2048, kN = 1024, kK = 512;
  Matrix x() const { return {x_.data(), dtype_, kRows, kK, kK}; }
  Matrix w() const { return {w_.data(), dtype_, kExperts * kN, kK, kK}; }
  Matrix y() const { return {y_.data(), dtype_, kRows, kN, kN}; }
  kernels::Segments segments() const { return {kExperts, offsets_.data()}; }
  static RowCount rows() { return {nullptr, kRows, 1}; }
  Workspace workspace() const { return {scratch_.data(), workspace_bytes_}; }

  ExecContext ctx_;
  DType dtype_;
  std::int64_t workspace_bytes_ = 0;
  Arena x_, w_, y_, dw_, scratch_;
  std::vector<std::int64_t> offsets_ = std::vector<std::int64_t>(kExperts + 1);
};

Row product_row(Meter& meter, Bound bound, const std::string& name, const Meter::Body& body) {
  const Rounds rounds = meter.measure(bound, {body});
  std::vector<double> rates, shares;
  for (std::size_t i = 0; i < rounds.series[0].seconds.size(); ++i) {
    rates.push_back(GroupedProducts::flops() / rounds.series[0].seconds[i]);
    shares.push_back(rates.back() / rounds.series[0].probe[i]);
  }
  return {name,           median(rates), quantile(rates, 0.25), quantile(rates, 0.75),
          median(shares), true,          rounds.steady};
}

std::vector<Row> measure(const Target& target, int repeats) {
  ThreadPool pool(target.num_threads);
  const ExecContext ctx{&pool, &kernels::kernel_table(target.isa)};
  Meter meter(ctx, {.clock = Clock::wall, .seconds = 0.0, .min_rounds = repeats});
  std::vector<Row> rows;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::string name = to_string(dtype);
    const Bound bound = dtype == DType::f32 ? Bound::f32 : Bound::bf16;
    GroupedProducts p(ctx, target.isa, dtype);
    const Row products[] = {
        product_row(meter, bound, "grouped product forward " + name, [&] { p.forward(); }),
        product_row(meter, bound, "grouped product grad_input " + name, [&] { p.grad_input(); }),
        product_row(meter, bound, "grouped product grad_weight " + name, [&] { p.grad_weight(); })};
    const double peak = meter.best(bound);
    rows.push_back({"multiply-add peak " + name, peak, peak, peak, 1.0});
    rows.insert(rows.end(), std::begin(products), std::end(products));
  }
  constexpr std::int64_t kFloats = std::int64_t{64} << 20;
  const Arena a(kFloats * 4, Tier::device);
  fill(a.data(), DType::f32, kFloats);
  const double read = kernels::measure_read_bandwidth(ctx, reinterpret_cast<const float*>(a.data()), kFloats);
  rows.push_back({"memory read", read, read, read, 0.0, false});
  std::vector<double> updates(16);
  for (double& rate : updates) rate = meter.probe(Bound::update);
  rows.push_back({"memory update (12 B an element)", median(updates), quantile(updates, 0.25),
                  quantile(updates, 0.75), 0.0, false});
  return rows;
}

int run_bench(const BenchArguments& a) {
  const HardwareProfile machine = detect_hardware();
  const Target target = machine.target(a.threads);
  const std::vector<Row> rows = measure(target, a.repeats);
  if (a.json) {
    JsonObject o;
    o.set("profile", to_json(machine));
    o.set("threads", target.num_threads);
    JsonArray array;
    for (const Row& r : rows) {
      JsonObject row;
      row.set("name", r.name);
      row.set(r.is_flops ? "flops_per_second" : "bytes_per_second", r.value);
      row.set("quartiles", JsonArray{r.low, r.high});
      if (r.is_flops) row.set("of_peak", r.of_peak);
      row.set("steady", r.steady);
      array.push_back(std::move(row));
    }
    o.set("rows", std::move(array));
    std::printf("%s\n", write_json(o, JsonStyle::pretty).c_str());
    return 0;
  }
  std::printf("%s, %s, %d threads; median of %d runs (quartiles)\n", machine.name.c_str(),
              kernels::to_string(target.isa), target.num_threads, a.repeats);
  for (const Row& r : rows) {
    std::printf("%-36s %9.1f %s", r.name.c_str(), r.value * 1e-9, r.is_flops ? "GFLOP/s" : "GB/s");
    if (r.high > r.low) std::printf("  (%.1f to %.1f)", r.low * 1e-9, r.high * 1e-9);
    if (r.is_flops) std::printf("  %5.1f%% of peak", 100.0 * r.of_peak);
    std::printf("%s\n", r.steady ? "" : "  unsteady: the peak changed around too many runs");
  }
  return 0;
}

}  // namespace

void add_bench_command(CLI::App& app, int* status) {
  auto a = std::make_shared<BenchArguments>();
  CLI::App* c =
      app.add_subcommand("bench", "measure this machine's peaks, and the main kernels as a share of them");
  c->add_option("--threads", a->threads, "worker threads; 0: all cores of this process")
      ->check(CLI::Range(0, 1024));
  c->add_option("--repeats", a->repeats, "timed runs of each kernel")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  c->add_flag("--json", a->json, "print JSON");
  c->footer("Example: planalto bench --threads 1");
  c->callback([a, status] { *status = run_bench(*a); });
}

}  // namespace planalto
