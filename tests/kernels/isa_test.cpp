// SPDX-License-Identifier: Apache-2.0
// isa_test.cpp: which bodies a CPU gets, for CPUs that are made up.
#include "kernels/isa.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/expect_error.h"

namespace planalto::kernels {
namespace {

using ::planalto::testing::expect_error;

CpuFeatures haswell() {
  return {.avx2 = true, .bmi = true, .bmi2 = true, .f16c = true, .fma = true, .lzcnt = true, .movbe = true};
}
CpuFeatures skylake_server() {
  CpuFeatures cpu = haswell();
  cpu.avx512f = cpu.avx512bw = cpu.avx512cd = cpu.avx512dq = cpu.avx512vl = true;
  return cpu;
}
CpuFeatures zen5() {
  CpuFeatures cpu = skylake_server();
  cpu.avx512vnni = cpu.avx512bf16 = true;
  return cpu;
}
CpuFeatures sapphire_rapids() {
  CpuFeatures cpu = zen5();
  cpu.slow_pairs = cpu.amx = true;
  return cpu;
}

TEST(IsaChoice, C112EachCpuGetsTheHighestItHas) {
  using enum Isa;
  EXPECT_EQ(available_isas(haswell()), (std::vector{avx2}));
  EXPECT_EQ(available_isas(skylake_server()), (std::vector{avx2, avx512}));
  EXPECT_EQ(available_isas(zen5()), (std::vector{avx2, avx512, avx512_bf16}));
  EXPECT_EQ(available_isas(sapphire_rapids()), (std::vector{avx2, avx512, avx512_bf16, amx}));
  EXPECT_EQ(choose_isa(haswell(), "").isa, avx2);
  EXPECT_EQ(choose_isa(skylake_server(), "").isa, avx512);
  EXPECT_EQ(choose_isa(zen5(), "").isa, avx512_bf16);
  EXPECT_EQ(choose_isa(sapphire_rapids(), "").isa, amx);
  EXPECT_EQ(choose_isa(sapphire_rapids(), "").reason, "the highest that this CPU has");
}

// One part of a set that is missing takes the whole set away.
TEST(IsaChoice, C112APartOfASetIsNotTheSet) {
  for (bool CpuFeatures::*part : {&CpuFeatures::avx512f, &CpuFeatures::avx512bw, &CpuFeatures::avx512cd,
                                  &CpuFeatures::avx512dq, &CpuFeatures::avx512vl}) {
    CpuFeatures cpu = sapphire_rapids();
    cpu.*part = false;
    EXPECT_EQ(choose_isa(cpu, "").isa, Isa::avx2);
  }
  for (bool CpuFeatures::*part : {&CpuFeatures::avx512vnni, &CpuFeatures::avx512bf16}) {
    CpuFeatures cpu = sapphire_rapids();
    cpu.*part = false;
    EXPECT_EQ(choose_isa(cpu, "").isa, Isa::avx512);
  }
}

TEST(IsaChoice, C112ACpuBelowTheLeastIsRefusedNamingWhatItLacks) {
  expect_error(ErrorKind::device, {"AVX2", "FMA", "MOVBE", "x86-64-v3"},
               [] { choose_isa(CpuFeatures{}, ""); });
  CpuFeatures ivy_bridge;
  ivy_bridge.f16c = true;
  expect_error(ErrorKind::device, {"lacks AVX2, BMI1, BMI2, FMA, LZCNT, MOVBE;"},
               [&] { choose_isa(ivy_bridge, ""); });
  CpuFeatures cpu = sapphire_rapids();
  cpu.bmi2 = false;
  EXPECT_TRUE(available_isas(cpu).empty());
  expect_error(ErrorKind::device, {"lacks BMI2;"}, [&] { choose_isa(cpu, "avx2"); });
}

TEST(IsaChoice, C112ALowerSetMayBeForcedAHigherOneNot) {
  for (const Isa isa : available_isas(sapphire_rapids())) {
    const IsaChoice choice = choose_isa(sapphire_rapids(), to_string(isa));
    EXPECT_EQ(choice.isa, isa);
    EXPECT_EQ(choice.reason, "PLANALTO_ISA names it");
  }
  expect_error(ErrorKind::config, {"PLANALTO_ISA=amx", "avx512_bf16"}, [] { choose_isa(zen5(), "amx"); });
  expect_error(ErrorKind::config, {"\"sse2\" is unknown", "avx2, avx512"},
               [] { choose_isa(zen5(), "sse2"); });
}

TEST(IsaChoice, C113TilesThatTheSystemRefuses) {
  CpuFeatures cpu = sapphire_rapids();
  cpu.amx_obstacle = "the system refuses its tiles: Operation not permitted";
  const IsaChoice choice = choose_isa(cpu, "");
  EXPECT_EQ(choice.isa, Isa::avx512);
  EXPECT_NE(choice.reason.find("AMX"), std::string::npos);
  EXPECT_NE(choice.reason.find("Operation not permitted"), std::string::npos);
  expect_error(ErrorKind::config, {"PLANALTO_ISA=amx"}, [&] { choose_isa(cpu, "amx"); });
}

// Measured on Sapphire Rapids: vdpbf16ps 81 GFLOP/s, fp32 multiply-adds 160.
TEST(IsaChoice, SlowPairsAreNotTheDefault) {
  CpuFeatures cpu = sapphire_rapids();
  cpu.amx = false;
  EXPECT_EQ(choose_isa(cpu, "").isa, Isa::avx512);
  EXPECT_NE(choose_isa(cpu, "").reason.find("vdpbf16ps"), std::string::npos);
  EXPECT_EQ(choose_isa(cpu, "avx512_bf16").isa, Isa::avx512_bf16);
}

TEST(IsaChoice, ThisMachine) {
  EXPECT_EQ(available_isas(), available_isas(cpu_features()));
  EXPECT_FALSE(available_isas().empty());
}

}  // namespace
}  // namespace planalto::kernels
