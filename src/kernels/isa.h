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

const char* to_string(Isa isa);
Isa isa_from_name(const std::string& name);
// From lowest to highest.
std::vector<Isa> available_isas();
// The highest available, unless PLANALTO_ISA names a lower one.
IsaChoice choose_isa();

}  // namespace planalto::kernels
