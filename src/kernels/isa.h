// SPDX-License-Identifier: Apache-2.0
// isa.h: the instruction sets that kernel bodies exist for, and which of them this CPU has.
// Invariants  values ascend: a machine that has one has all below it
// Errors      config when PLANALTO_ISA names an unknown set or one that the CPU lacks; device below x86-64-v3
#pragma once

#include <string>
#include <vector>

namespace planalto::kernels {

enum class Isa { avx2, avx512, avx512_bf16, amx };

struct IsaChoice {
  Isa isa;
  std::string reason;  // one sentence for `planalto doctor`
};

// What a CPU and its system offer.
struct CpuFeatures {
  bool avx2 = false, bmi = false, bmi2 = false, f16c = false, fma = false, lzcnt = false,
       movbe = false;  // x86-64-v3
  bool avx512f = false, avx512bw = false, avx512cd = false, avx512dq = false,
       avx512vl = false;  // and x86-64-v4
  bool avx512vnni = false, avx512bf16 = false;
  bool slow_pairs = false;     // vdpbf16ps at half the rate of fp32 multiply-adds, as Intel's cores have it
  bool amx = false;            // tiles and products of bf16
  std::string amx_obstacle{};  // why the system does not let this process use the tiles; empty: it does
};
// Of this machine. Asks the system for the tiles, once.
const CpuFeatures& cpu_features();

const char* to_string(Isa isa);
Isa isa_from_name(const std::string& name);
// From lowest to highest.
std::vector<Isa> available_isas(const CpuFeatures& cpu);
std::vector<Isa> available_isas();
// The fastest available, unless `forced` (PLANALTO_ISA) names another one: the highest, but for avx512_bf16 with slow pairs, where
// widening to fp32 is faster.
IsaChoice choose_isa(const CpuFeatures& cpu, const std::string& forced);
IsaChoice choose_isa();

}  // namespace planalto::kernels
