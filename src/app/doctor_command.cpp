// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "app/commands.h"
#include "base/json.h"
#include "base/version.h"
#include "cluster/hardware_profile.h"
#include "formats/tokenizer/library_versions.h"
#include "train/run_plan.h"

namespace planalto {

namespace {

// Every environment variable that Planalto reads.
struct Variable {
  const char *name, *meaning;
};
constexpr Variable kVariables[] = {
    {"PLANALTO_ISA", "forces a lower instruction set: avx2, avx512, avx512_bf16, amx"},
};

std::string isa_list() {
  std::string list;
  for (const kernels::Isa isa : kernels::available_isas())
    list += (list.empty() ? "" : ", ") + std::string(kernels::to_string(isa));
  return list;
}

JsonObject libraries() {
  JsonObject o;
  o.set("fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100));
  o.set("CLI11", CLI11_VERSION);
  for (const auto& [name, version] : library_versions()) o.set(name, version);
  o.set("compiler", "g++ " __VERSION__);
  return o;
}

void print_json(const HardwareProfile& p) {
  JsonObject o, variables;
  o.set("version", kVersion);
  o.set("profile", to_json(p));
  o.set("isa_reason", p.isa_reason);
  o.set("isas", isa_list());
  o.set("cores_source", p.cores_source);
  o.set("memory_source", p.memory_source);
  o.set("libraries", libraries());
  for (const Variable& v : kVariables)
    variables.set(v.name, std::getenv(v.name) != nullptr ? JsonValue(std::getenv(v.name)) : JsonValue());
  o.set("environment", std::move(variables));
  std::printf("%s\n", write_json(o, JsonStyle::pretty).c_str());
}

}  // namespace

void add_doctor_command(CLI::App& app, int* status) {
  auto json = std::make_shared<bool>(false);
  CLI::App* c = app.add_subcommand("doctor", "say what this machine gives and what Planalto chose");
  c->add_flag("--json", *json, "print JSON; its \"profile\" is what plan --profile reads");
  c->footer("Example: planalto doctor");
  c->callback([json, status] {
    const HardwareProfile p = detect_hardware();
    *status = 0;
    if (*json) return print_json(p);
    std::printf("planalto %s\n", kVersion);
    std::printf("CPU           %s\n", p.name.c_str());
    std::printf("instructions  %s: %s (this CPU has %s)\n", kernels::to_string(p.isa), p.isa_reason.c_str(),
                isa_list().c_str());
    std::printf("cores         %d usable (%s)\n", p.cores, p.cores_source.c_str());
    std::printf("memory        %s (%s)\n", format_bytes(p.memory_bytes).c_str(), p.memory_source.c_str());
    std::printf("libraries    ");
    for (const JsonMember& m : libraries())
      std::printf(" %s %s;", m.key.c_str(), m.value.as_string(m.key).c_str());
    std::printf("\nenvironment\n");
    for (const Variable& v : kVariables) {
      const char* value = std::getenv(v.name);
      std::printf("  %-14s %-12s %s\n", v.name, value != nullptr ? value : "(not set)", v.meaning);
    }
  });
}

}  // namespace planalto
