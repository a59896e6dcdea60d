// SPDX-License-Identifier: Apache-2.0
#include <cpuid.h>
#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

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
bool cpu_has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24;
  return (d & (kBf16 | kTile)) == (kBf16 | kTile);
}
std::string obstacle_to_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool readable = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_OSXSAVE) != 0;
  unsigned low = 0, high = 0;
  if (readable) asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 3U << 17;
  if ((low & kTileState) != kTileState) return "the system does not save its tiles";
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return {};
  return fmt::format("the system refuses its tiles: {}", std::strerror(errno));
}

CpuFeatures detect_features() {
  __builtin_cpu_init();
  CpuFeatures cpu;
#define PLANALTO_DETECT(feature) cpu.feature = __builtin_cpu_supports(#feature) != 0
  PLANALTO_DETECT(avx2);
  PLANALTO_DETECT(bmi);
  PLANALTO_DETECT(bmi2);
  PLANALTO_DETECT(f16c);
  PLANALTO_DETECT(fma);
  PLANALTO_DETECT(lzcnt);
  PLANALTO_DETECT(movbe);
  PLANALTO_DETECT(avx512f);
  PLANALTO_DETECT(avx512bw);
  PLANALTO_DETECT(avx512cd);
  PLANALTO_DETECT(avx512dq);
  PLANALTO_DETECT(avx512vl);
  PLANALTO_DETECT(avx512vnni);
  PLANALTO_DETECT(avx512bf16);
#undef PLANALTO_DETECT
  cpu.amx = cpu_has_amx();
  if (cpu.amx) cpu.amx_obstacle = obstacle_to_amx();
  return cpu;
}

struct NamedFeature {
  const char* name;
  bool CpuFeatures::*has;
};
constexpr NamedFeature kLeast[] = {
    {"AVX2", &CpuFeatures::avx2},   {"BMI1", &CpuFeatures::bmi}, {"BMI2", &CpuFeatures::bmi2},
    {"F16C", &CpuFeatures::f16c},   {"FMA", &CpuFeatures::fma},  {"LZCNT", &CpuFeatures::lzcnt},
    {"MOVBE", &CpuFeatures::movbe},
};

std::string missing_of_least(const CpuFeatures& cpu) {
  std::string missing;
  for (const NamedFeature& f : kLeast) {
    if (!(cpu.*f.has)) missing.append(missing.empty() ? "" : ", ").append(f.name);
  }
  return missing;
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

const CpuFeatures& cpu_features() {
  static const CpuFeatures cpu = detect_features();
  return cpu;
}

std::vector<Isa> available_isas(const CpuFeatures& cpu) {
  std::vector<Isa> isas;
  if (!missing_of_least(cpu).empty()) return isas;
  isas.push_back(Isa::avx2);
  if (!cpu.avx512f || !cpu.avx512bw || !cpu.avx512cd || !cpu.avx512dq || !cpu.avx512vl) return isas;
  isas.push_back(Isa::avx512);
  if (!cpu.avx512bf16 || !cpu.avx512vnni) return isas;
  isas.push_back(Isa::avx512_bf16);
  if (cpu.amx && cpu.amx_obstacle.empty()) isas.push_back(Isa::amx);
  return isas;
}
std::vector<Isa> available_isas() {
  return available_isas(cpu_features());
}

IsaChoice choose_isa(const CpuFeatures& cpu, const std::string& forced) {
  const std::vector<Isa> isas = available_isas(cpu);
  if (isas.empty())
    fail(ErrorKind::device, "this CPU lacks {}; Planalto runs on x86-64-v3 and above", missing_of_least(cpu));
  if (forced.empty()) {
    const bool kept_from_amx = cpu.amx && !cpu.amx_obstacle.empty() && isas.back() == Isa::avx512_bf16;
    return {isas.back(), kept_from_amx ? "the highest below AMX, which this CPU has, but " + cpu.amx_obstacle
                                       : "the highest that this CPU has"};
  }
  const Isa wanted = isa_from_name(forced);
  if (wanted > isas.back()) {
    fail(ErrorKind::config, "PLANALTO_ISA={} is not on this CPU; the highest it has is {}", forced,
         to_string(isas.back()));
  }
  return {wanted, "PLANALTO_ISA names it"};
}
IsaChoice choose_isa() {
  const char* forced = std::getenv("PLANALTO_ISA");
  return choose_isa(cpu_features(), forced == nullptr ? "" : forced);
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
