// SPDX-License-Identifier: Apache-2.0
#include "kernels/peak.h"

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/gemm_registers.h"
#include "kernels/cpu/parallel.h"
#if defined(__AMX_BF16__)
#include "kernels/cpu/tile_registers.h"
#endif

namespace planalto::kernels::PLANALTO_ISA_NS {

namespace {

using simd::Floats;
using simd::kLanes;

// Enough independent sums to hide the latency of the instruction on two ports, few enough to stay in registers.
#if defined(__AVX512F__)
constexpr int kSums = 24;
#else
constexpr int kSums = 12;
#endif

// Keeps a value in a register and hides from the compiler what it holds.
PLANALTO_INLINE void pin(Floats& v) {
  asm volatile("" : "+x"(v));
}

template <class Add>
PLANALTO_INLINE void multiply_add_loop(std::int64_t iterations, const Add& add) {
  Floats sums[kSums];
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sums[i] = simd::zero();
  for (std::int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) {
      sums[i] = add(sums[i]);
      pin(sums[i]);
    }
  }
}

[[gnu::noinline]] std::int64_t run_floats(std::int64_t iterations) {
  Floats a = simd::set1(1.0F), b = simd::set1(0x1p-20F);
  pin(a);
  pin(b);
  multiply_add_loop(iterations, [&](Floats c) { return simd::fma(a, b, c); });
  return iterations * kSums * kLanes * 2;
}

#if defined(__AMX_BF16__)
[[gnu::noinline]] std::int64_t run_pairs(std::int64_t iterations) {
  alignas(64) static const char zeros[gemm::kTileHeight * gemm::kTileBytes] = {};
  gemm::Tiles t;
  t.zero<0>(), t.zero<1>(), t.zero<2>(), t.zero<3>();
  t.load<4>(zeros, gemm::kTileBytes), t.load<5>(zeros, gemm::kTileBytes);
  t.load<6>(zeros, gemm::kTileBytes), t.load<7>(zeros, gemm::kTileBytes);
  for (std::int64_t n = 0; n < iterations; ++n) {
    t.multiply<0, 4, 6>();
    t.multiply<1, 4, 7>();
    t.multiply<2, 5, 6>();
    t.multiply<3, 5, 7>();
  }
  return iterations * 4 * 16 * 16 * 64;
}
#elif defined(__AVX512BF16__)
[[gnu::noinline]] std::int64_t run_pairs(std::int64_t iterations) {
  Floats a = simd::set1(1.0F), b = simd::set1(0x1p-20F);
  pin(a);
  pin(b);
  multiply_add_loop(iterations, [&](Floats c) {
    return gemm::dot_pairs(_mm512_castps_si512(a), _mm512_castps_si512(b), c);
  });
  return iterations * kSums * kLanes * 4;
}
#else
std::int64_t run_pairs(std::int64_t iterations) {
  return run_floats(iterations);
}
#endif

}  // namespace

void peak_multiply_add(const ExecContext& ctx, const PeakMultiplyAdd& a) {
  const PeakMultiplyAdd* call = &a;
  ctx.pool->run(
      [](void* arg, int worker) {
        const PeakMultiplyAdd& c = **static_cast<const PeakMultiplyAdd**>(arg);
        const std::int64_t flops =
            c.dtype == DType::bf16 ? run_pairs(c.iterations) : run_floats(c.iterations);
        if (worker == 0) *c.flops = flops;
      },
      &call);
}

void peak_read(const ExecContext& ctx, const PeakRead& a) {
  parallel_ranges(ctx, a.n, 4096, [&](std::int64_t begin, std::int64_t end, int) {
    constexpr std::int64_t kStride = 8 * kLanes;
    Floats sums[8];
    for (Floats& s : sums) s = simd::zero();
    std::int64_t i = begin;
    for (; i + kStride <= end; i += kStride) {
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) sums[j] = sums[j] + simd::load(a.data + i + j * kLanes);
    }
    for (Floats& s : sums) pin(s);  // else nothing would need to be read
  });
}

void peak_update(const ExecContext& ctx, const PeakUpdate& a) {
  const Floats one = simd::set1(1.0F);
  parallel_ranges(ctx, a.n, 4096, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i + kLanes <= end; i += kLanes) {
      simd::store(a.a + i, simd::fma(simd::load(a.a + i), simd::load(a.x + i), one));
    }
  });
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
