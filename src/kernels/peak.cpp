// SPDX-License-Identifier: Apache-2.0
#include "kernels/peak.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/exec_context.h"
#include "kernels/table.h"

namespace planalto::kernels {

namespace {

constexpr int kRepeats = 5;
constexpr std::int64_t kIterations = 200'000;  // a few milliseconds

// The shortest of the repeats, in seconds; the first run, which wakes the workers, does not count.
template <class Body>
double shortest(const Body& body) {
  body();
  double best = 1e30;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

}  // namespace

double measure_multiply_add_peak(const ExecContext& ctx, DType dtype) {
  PLANALTO_CHECK(dtype == DType::f32 || dtype == DType::bf16, "no multiply-add peak of {}; legal: f32, bf16",
                 to_string(dtype));
  std::int64_t flops = 0;
  const double s = shortest([&] { ctx.kernels->peak_multiply_add(ctx, {dtype, kIterations, &flops}); });
  return static_cast<double>(flops) * ctx.pool->num_threads() / s;
}

double measure_read_bandwidth(const ExecContext& ctx, const float* data, std::int64_t n) {
  PLANALTO_CHECK(n > 0, "a bandwidth needs an array, not {} values", n);
  return 4.0 * static_cast<double>(n) / shortest([&] { ctx.kernels->peak_read(ctx, {data, n}); });
}

double measure_update_bandwidth(const ExecContext& ctx, float* a, const float* x, std::int64_t n) {
  PLANALTO_CHECK(n > 0, "a bandwidth needs an array, not {} values", n);
  return 12.0 * static_cast<double>(n) / shortest([&] { ctx.kernels->peak_update(ctx, {a, x, n}); });
}

}  // namespace planalto::kernels
