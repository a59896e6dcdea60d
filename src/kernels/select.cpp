// SPDX-License-Identifier: Apache-2.0
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "kernels/isa.h"
#include "kernels/table.h"

namespace planalto::kernels {

namespace avx2 {
extern const KernelTable kTable;
}
namespace avx512 {
extern const KernelTable kTable;
}
#define PLANALTO_DECLARE(function, Args) void function(const ExecContext& ctx, const Args& a);
namespace avx512_bf16 {
PLANALTO_PRODUCT_KERNELS(PLANALTO_DECLARE)
}
namespace amx {
PLANALTO_PRODUCT_KERNELS(PLANALTO_DECLARE)
}
#undef PLANALTO_DECLARE

namespace {

// AMX takes three: the CPU has the instructions, the system saves the tiles (XCR0 bits 17 and 18), and it lets this process use them
// (asked for once; threads that start later have it too). Source: Intel SDM volume 1, chapter 18; Linux Documentation/arch/x86/xstate.rst
bool may_use_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24;
  if ((d & (kBf16 | kTile)) != (kBf16 | kTile)) return false;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 3U << 17;
  if ((low & kTileState) != kTileState) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  static const bool permitted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return permitted;
}

#define PLANALTO_REPLACE(function, Args) table.function = ISA::function;

// These sets add multiplications of bf16 to AVX-512 and share all other bodies with it.
KernelTable avx512_bf16_table() {
  KernelTable table = avx512::kTable;
  table.isa = Isa::avx512_bf16;
#define ISA avx512_bf16
  PLANALTO_PRODUCT_KERNELS(PLANALTO_REPLACE)
#undef ISA
  return table;
}
KernelTable amx_table() {
  KernelTable table = avx512::kTable;
  table.isa = Isa::amx;
#define ISA amx
  PLANALTO_PRODUCT_KERNELS(PLANALTO_REPLACE)
#undef ISA
  return table;
}
#undef PLANALTO_REPLACE

}  // namespace

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
    case Isa::amx:
      return "amx";
  }
  return "?";
}

Isa isa_from_name(const std::string& name) {
  for (Isa isa : {Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx}) {
    if (name == to_string(isa)) return isa;
  }
  fail(ErrorKind::config, "instruction set \"{}\" is unknown; legal: avx2, avx512, avx512_bf16, amx", name);
}

std::vector<Isa> available_isas() {
  __builtin_cpu_init();
  std::vector<Isa> isas;
  if (!__builtin_cpu_supports("x86-64-v3")) return isas;
  isas.push_back(Isa::avx2);
  if (!__builtin_cpu_supports("x86-64-v4")) return isas;
  isas.push_back(Isa::avx512);
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni"))
    isas.push_back(Isa::avx512_bf16);
  if (isas.back() == Isa::avx512_bf16 && may_use_amx()) isas.push_back(Isa::amx);
  return isas;
}

IsaChoice choose_isa() {
  const std::vector<Isa> isas = available_isas();
  if (isas.empty())
    fail(ErrorKind::device, "this CPU lacks x86-64-v3 (AVX2, FMA, BMI2), the least that Planalto runs on");
  const char* forced = std::getenv("PLANALTO_ISA");
  if (forced == nullptr || *forced == '\0') return {isas.back(), "the highest that this CPU has"};
  const Isa wanted = isa_from_name(forced);
  if (wanted > isas.back()) {
    fail(ErrorKind::config, "PLANALTO_ISA={} is not on this CPU; the highest it has is {}", forced,
         to_string(isas.back()));
  }
  return {wanted, "PLANALTO_ISA names it"};
}

const KernelTable& kernel_table(Isa isa) {
  static const KernelTable with_pairs = avx512_bf16_table(), with_tiles = amx_table();
  switch (isa) {
    case Isa::avx2:
      return avx2::kTable;
    case Isa::avx512:
      return avx512::kTable;
    case Isa::avx512_bf16:
      return with_pairs;
    case Isa::amx:
      return with_tiles;
  }
  return avx2::kTable;
}

}  // namespace planalto::kernels
