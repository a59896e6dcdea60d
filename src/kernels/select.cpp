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

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
Registers cpuid(unsigned leaf) {
  Registers r;
  if (__get_cpuid_count(leaf, 0, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}
bool bit(unsigned word, int n) {
  return (word >> n & 1U) != 0;
}

// The bits that say which registers the system saves. Source: Intel SDM volume 1, chapter 13
unsigned saved_registers() {
  if (!bit(cpuid(1).c, 27)) return 0;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}
constexpr unsigned kVectors = 0x06, kWideVectors = 0xe6, kTileState = 3U << 17;

// AMX takes three: the CPU has the instructions, the system saves the tiles (XCR0 bits 17 and 18), and it lets this process use them
// (asked for once; threads that start later have it too). Source: Intel SDM volume 1, chapter 18; Linux Documentation/arch/x86/xstate.rst
std::string obstacle_to_amx() {
  if ((saved_registers() & kTileState) != kTileState) return "the system does not save its tiles";
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return {};
  return fmt::format("the system refuses its tiles: {}", std::strerror(errno));
}

// Source: Intel SDM volume 2, CPUID; AMD APM volume 3, appendix D
CpuFeatures detect_features() {
  const Registers basic = cpuid(1), more = cpuid(7), extended = cpuid(0x80000001);
  const unsigned saved = saved_registers();
  const bool vectors = (saved & kVectors) == kVectors, wide = (saved & kWideVectors) == kWideVectors;
  Registers last;
  __cpuid_count(7, 1, last.a, last.b, last.c, last.d);
  CpuFeatures cpu;
  cpu.fma = vectors && bit(basic.c, 12);
  cpu.movbe = bit(basic.c, 22);
  cpu.f16c = vectors && bit(basic.c, 29);
  cpu.lzcnt = bit(extended.c, 5);
  cpu.bmi = bit(more.b, 3);
  cpu.bmi2 = bit(more.b, 8);
  cpu.avx2 = vectors && bit(more.b, 5);
  cpu.avx512f = wide && bit(more.b, 16);
  cpu.avx512dq = wide && bit(more.b, 17);
  cpu.avx512cd = wide && bit(more.b, 28);
  cpu.avx512bw = wide && bit(more.b, 30);
  cpu.avx512vl = wide && bit(more.b, 31);
  cpu.avx512vnni = wide && bit(more.c, 11);
  cpu.avx512bf16 = wide && more.a >= 1 && bit(last.a, 5);
  constexpr unsigned kGenu = 0x756e6547;  // "Genu", of GenuineIntel
  cpu.slow_pairs = cpu.avx512bf16 && cpuid(0).b == kGenu;
  cpu.amx = bit(more.d, 22) && bit(more.d, 24);
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
    IsaChoice choice{isas.back(), "the highest that this CPU has"};
    const bool kept_from_amx = cpu.amx && !cpu.amx_obstacle.empty() && choice.isa == Isa::avx512_bf16;
    if (kept_from_amx) choice.reason = "the highest below AMX, which this CPU has, but " + cpu.amx_obstacle;
    if (cpu.slow_pairs && choice.isa == Isa::avx512_bf16) {
      choice.isa = Isa::avx512;
      choice.reason = "faster on this CPU than its pair instruction (vdpbf16ps)";
      if (kept_from_amx) choice.reason += "; it has AMX, but " + cpu.amx_obstacle;
    }
    return choice;
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
