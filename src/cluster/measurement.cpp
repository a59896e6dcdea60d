// SPDX-License-Identifier: Apache-2.0
#include "cluster/measurement.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "kernels/grouped_gemm.h"
#include "kernels/packed_weight.h"
#include "kernels/peak.h"
#include "kernels/table.h"

namespace planalto {

namespace {

constexpr double kShortest = 0.005;  // seconds of calls in a row that make one time
constexpr double kProbe = 0.0015;
constexpr std::int64_t kUpdated = std::int64_t{64} << 20;  // floats; a probe updates an eighth, in turn
constexpr std::int64_t kMaxRounds = 200;
constexpr auto kNap = std::chrono::milliseconds(30);

std::int64_t repeats_for(double wanted, double once) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(wanted / std::max(once, 1e-9))));
}

}  // namespace

const char* to_string(Bound bound) {
  return bound == Bound::f32 ? "f32" : bound == Bound::bf16 ? "bf16" : "update";
}

double quantile(std::vector<double> values, double share) {
  PLANALTO_CHECK(!values.empty(), "the quantile of no values");
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], at - static_cast<double>(below));
}

// A product of 32 rows, 32 columns and depth 512: 64 KB in all, half of it the panel that stays in L1.
struct Meter::FedTiles {
  static constexpr std::int64_t kSide = 32, kDepth = 512, kCalls = 400;
  FedTiles(const ExecContext& ctx) {
    using namespace kernels;
    pack_weight(ctx, {.source = reinterpret_cast<const float*>(source.data()),
                      .copies = {1, kSide, kDepth, packed.data(), nullptr}});
  }
  void run(const ExecContext& ctx) const {
    kernels::grouped_gemm_forward(ctx, {.x = {x.data(), DType::bf16, kSide, kDepth, kDepth},
                                        .w = {nullptr, DType::bf16, kSide, kDepth, kDepth},
                                        .packed = packed.data(),
                                        .y = {y.data(), DType::f32, kSide, kSide, kSide},
                                        .rows = {nullptr, kSide, 1},
                                        .workspace = {scratch.data(), scratch.bytes()}});
  }
  Arena source{kSide * kDepth * 4, Tier::device}, x{kSide * kDepth * 2, Tier::device};
  Arena y{kSide * kSide * 4, Tier::device}, scratch{1 << 22, Tier::device};
  Arena packed{kernels::packed_weight_bytes(1, kSide, kDepth, kernels::Isa::amx), Tier::device};
  double best = 0.0;
};

Meter::Meter(const ExecContext& ctx, const Options& options) : ctx_(ctx), options_(options) {
  if (ctx.kernels->isa == kernels::Isa::amx) tiles_ = std::make_shared<FedTiles>(ctx);
}

double Meter::now() const {
  timespec t{};
  clock_gettime(options_.clock == Clock::cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double Meter::time_of(const Body& body, std::int64_t calls) const {
  const double start = now();
  for (std::int64_t i = 0; i < calls; ++i) body();
  return (now() - start) / static_cast<double>(calls);
}

double Meter::best(Bound bound) const {
  return best_[static_cast<int>(bound)];
}

double Meter::probe(Bound bound) {
  double rate = bound == Bound::update ? probe_update() : probe_multiply_add(bound);
  double& best = best_[static_cast<int>(bound)];
  best = std::max(best, rate);
  if (bound == Bound::bf16 && tiles_) {
    // Slow tile loads show as a probe that is too low, so that the round is dropped.
    const double fed = probe_fed_tiles();
    tiles_->best = std::max(tiles_->best, fed);
    if (fed < 0.8 * tiles_->best) rate *= fed / tiles_->best;
  }
  return rate;
}

double Meter::probe_multiply_add(Bound bound) {
  const DType dtype = bound == Bound::f32 ? DType::f32 : DType::bf16;
  std::int64_t flops = 0;
  std::int64_t& iterations = iterations_[static_cast<int>(bound)];
  const auto once = [&](std::int64_t n) {
    return time_of([&] { ctx_.kernels->peak_multiply_add(ctx_, {dtype, n, &flops}); }, 1);
  };
  if (iterations == 0) {
    once(10'000);
    iterations = 10'000 * repeats_for(kProbe, std::min(once(10'000), once(10'000)));
  }
  const double seconds = std::min(once(iterations), once(iterations));
  return static_cast<double>(flops * ctx_.pool->num_threads()) / seconds;
}

double Meter::probe_update() {
  if (a_.bytes() == 0) {
    a_ = Arena(kUpdated * 4, Tier::device);
    x_ = Arena(kUpdated * 4, Tier::device);
    std::fill_n(reinterpret_cast<float*>(a_.data()), kUpdated, 1.0F);
    std::fill_n(reinterpret_cast<float*>(x_.data()), kUpdated, 0.5F);
  }
  constexpr std::int64_t kPart = kUpdated / 8;
  float* a = reinterpret_cast<float*>(a_.data()) + next_ * kPart;
  const float* x = reinterpret_cast<const float*>(x_.data()) + next_ * kPart;
  next_ = (next_ + 1) % 8;
  return 12.0 * kPart / time_of([&] { ctx_.kernels->peak_update(ctx_, {a, x, kPart}); }, 1);
}

double Meter::probe_fed_tiles() {
  tiles_->run(ctx_);
  return 1.0 / time_of([&] { tiles_->run(ctx_); }, FedTiles::kCalls);
}

bool Meter::agree(Bound bound, double before, double after) const {
  const double low = std::min(before, after), high = std::max(before, after);
  return low >= 0.9 * high && low >= 0.8 * best(bound);
}

bool Meter::run_round(Bound bound, const std::vector<Body>& bodies, const std::vector<std::int64_t>& calls,
                      Rounds* all) {
  bool good = true;
  double before = probe(bound);
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    const double seconds = time_of(bodies[i], calls[i]);
    const double after = probe(bound);
    good = good && agree(bound, before, after);
    all->series[i].seconds.push_back(seconds);
    all->series[i].probe.push_back((before + after) / 2.0);
    before = after;
  }
  return good;
}

Rounds Meter::measure(Bound bound, const std::vector<Body>& bodies) {
  std::vector<std::int64_t> calls;
  double once = 0.0;
  for (const Body& body : bodies) {
    time_of(body, 1);
    const double seconds = time_of(body, 1);
    calls.push_back(repeats_for(kShortest, seconds));
    once += seconds * static_cast<double>(calls.back());
  }
  probe(bound);
  Rounds all, kept;
  all.series.resize(bodies.size());
  kept.series.resize(bodies.size());
  const auto budget =
      std::clamp(static_cast<std::int64_t>(options_.seconds * static_cast<double>(bodies.size()) / once),
                 static_cast<std::int64_t>(options_.min_rounds), kMaxRounds);
  std::int64_t good = 0;
  for (std::int64_t round = 0; good < budget && round < 3 * budget; ++round) {
    if (!run_round(bound, bodies, calls, &all)) {
      ++kept.dropped;
      std::this_thread::sleep_for(kNap);
      continue;
    }
    ++good;
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      kept.series[i].seconds.push_back(all.series[i].seconds.back());
      kept.series[i].probe.push_back(all.series[i].probe.back());
    }
  }
  if (good >= std::min<std::int64_t>(3, budget)) return kept;
  all.dropped = 0;
  all.steady = false;
  return all;
}

}  // namespace planalto
