// SPDX-License-Identifier: Apache-2.0
// hardware_profile.h: the machine that a plan is for: instruction set, usable cores, memory. Detected here, or read from a file.
// Invariants  a named profile queries nothing, so a plan for another machine needs no such machine
// Errors      config: a profile file with an unknown key or value
// Units       bytes; cores are those that this process may use (affinity and container quota)
#pragma once

#include <string>

#include "base/json.h"
#include "base/target.h"
#include "kernels/isa.h"

namespace planalto {

struct HardwareProfile {
  std::string name;  // the CPU's, or the file's
  kernels::Isa isa{};
  std::string isa_reason;
  int cores = 1;
  std::string cores_source;  // what bounds them
  std::int64_t memory_bytes = 0;
  std::string memory_source;

  Target target(int threads) const { return {isa, threads > 0 ? threads : cores}; }
};

HardwareProfile detect_hardware();
// JSON: {"name", "isa", "cores", "memory_bytes"}; `planalto doctor --json` prints one under "profile".
HardwareProfile load_hardware_profile(const std::string& path);
JsonValue to_json(const HardwareProfile& profile);

// root: a folder that stands for /, for tests.
struct CoreLimit {
  int cores = 1;
  std::string source;
};
CoreLimit usable_cores(const std::string& root = "");

}  // namespace planalto
