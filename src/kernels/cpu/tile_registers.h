// SPDX-License-Identifier: Apache-2.0
// tile_registers.h: the eight tile registers of AMX: load, multiply, store; and the same in plain C++ where PLANALTO_EMULATE_TILES
// is defined, so that what is built on them is tested on machines without AMX.
// Shapes      a tile is 16 rows of 64 bytes: 16 fp32 sums, or 16 pairs of bf16
// Numerics    multiply adds to sum (m, n), in ascending pair, the product of the even values and then that of the odd ones; the
//             hardware also flushes subnormals
// Invariants  tile numbers are template arguments: the instruction has them in its encoding
// Threads     an object of Tiles configures the registers of the thread that makes it, and releases them
// Source      Intel SDM volume 2, LDTILECFG, TILELOADD, TDPBF16PS
#pragma once

#include <cstdint>
#include <cstring>

#include "base/dtype.h"

namespace planalto::kernels::PLANALTO_ISA_NS::gemm {
namespace {  // NOLINT: internal linkage is the purpose

inline constexpr int kTileHeight = 16;
inline constexpr int kTileBytes = 64;  // of a row

#if defined(PLANALTO_EMULATE_TILES)

class Tiles {
 public:
  template <int T>
  void zero() {
    std::memset(tile_[T], 0, sizeof tile_[T]);
  }
  template <int T>
  void load(const void* p, std::int64_t stride) {
    for (int r = 0; r < kTileHeight; ++r)
      std::memcpy(tile_[T][r], static_cast<const char*>(p) + r * stride, kTileBytes);
  }
  template <int T>
  void load_streamed(const void* p, std::int64_t stride) {
    load<T>(p, stride);
  }
  template <int T>
  void store(void* p, std::int64_t stride) {
    for (int r = 0; r < kTileHeight; ++r)
      std::memcpy(static_cast<char*>(p) + r * stride, tile_[T][r], kTileBytes);
  }
  // C[m][n] += sum over pairs k of A[m][k] . B[k][n]
  template <int C, int A, int B>
  void multiply() {
    for (int m = 0; m < kTileHeight; ++m) {
      float sums[16];
      bf16 a[32];
      std::memcpy(sums, tile_[C][m], kTileBytes);
      std::memcpy(a, tile_[A][m], kTileBytes);
      for (int k = 0; k < 16; ++k) {
        bf16 b[32];
        std::memcpy(b, tile_[B][k], kTileBytes);
        for (int n = 0; n < 16; ++n) {
          sums[n] += to_float(a[2 * k]) * to_float(b[2 * n]);
          sums[n] += to_float(a[2 * k + 1]) * to_float(b[2 * n + 1]);
        }
      }
      std::memcpy(tile_[C][m], sums, kTileBytes);
    }
  }
  // What was written to memory before is seen by loads after it, and what tiles stored by what follows.
  void fence() {}

 private:
  unsigned char tile_[8][kTileHeight][kTileBytes];
};

#else

// Written out in asm: the compiler's intrinsics declare neither what a configuration reads nor what a load sees.
class Tiles {
 public:
  Tiles() {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {};
      std::uint8_t rows[16] = {};
    } config;
    static_assert(sizeof config == 64);
    for (int t = 0; t < 8; ++t) {
      config.row_bytes[t] = kTileBytes;
      config.rows[t] = kTileHeight;
    }
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  ~Tiles() { asm volatile("tilerelease"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int T>
  [[gnu::always_inline]] void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(T));
  }
  template <int T>
  [[gnu::always_inline]] void load(const void* p, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(T));
  }
  // For values that are used once before the first cache forgets them.
  template <int T>
  [[gnu::always_inline]] void load_streamed(const void* p, std::int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(T));
  }
  template <int T>
  [[gnu::always_inline]] void store(void* p, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(T) : "memory");
  }
  template <int C, int A, int B>
  [[gnu::always_inline]] void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
  [[gnu::always_inline]] void fence() { asm volatile("" : : : "memory"); }
};

#endif

}  // namespace
}  // namespace planalto::kernels::PLANALTO_ISA_NS::gemm
