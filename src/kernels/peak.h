// SPDX-License-Identifier: Apache-2.0
// peak.h: what this machine can do at most: the register-resident multiply-add rate, and the rates of reading and
//         updating memory. MFU and the percentages of every benchmark are relative to these.
// Numerics    bf16 is the pair instruction's rate where the ISA has one, else that of widened fp32 multiply-adds
// Memory      allocates nothing; the arrays are the caller's, and should be several times the last-level cache
// Threads     all workers of the pool at once
// Units       flop/s (a multiply-add is two) and bytes/s, the best of some short repeats: a peak, not a mean
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

double measure_multiply_add_peak(const ExecContext& ctx, DType dtype);
// The sum of `n` floats, each worker a part of its own.
double measure_read_bandwidth(const ExecContext& ctx, const float* data, std::int64_t n);
// a = a * x + 1 over `n` floats: 12 bytes an element.
double measure_update_bandwidth(const ExecContext& ctx, float* a, const float* x, std::int64_t n);

// The bodies that are timed.
struct PeakMultiplyAdd {
  DType dtype = DType::f32;
  std::int64_t iterations = 0;
  std::int64_t* flops = nullptr;  // of one worker
};
struct PeakRead {
  const float* data = nullptr;
  std::int64_t n = 0;
};
struct PeakUpdate {
  float* a = nullptr;
  const float* x = nullptr;
  std::int64_t n = 0;
};

}  // namespace planalto::kernels
