// SPDX-License-Identifier: Apache-2.0
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
namespace avx512_bf16 {
extern const KernelTable kTable;
}

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
  }
  return "?";
}

Isa isa_from_name(const std::string& name) {
  for (Isa isa : {Isa::avx2, Isa::avx512, Isa::avx512_bf16}) {
    if (name == to_string(isa)) return isa;
  }
  fail(ErrorKind::config, "instruction set \"{}\" is unknown; legal: avx2, avx512, avx512_bf16", name);
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
  switch (isa) {
    case Isa::avx2:
      return avx2::kTable;
    case Isa::avx512:
      return avx512::kTable;
    case Isa::avx512_bf16:
      return avx512_bf16::kTable;
  }
  return avx2::kTable;
}

}  // namespace planalto::kernels
