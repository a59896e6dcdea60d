// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "app/commands.h"
#include "base/error.h"
#include "train/model_export.h"

namespace planalto {

namespace {

struct ExportArguments {
  std::string from, to, dtype = "keep", layout = "keep";
  bool replace = false;
};

// The value of an option that has a few.
template <class Value>
Value choice(const char* option, const std::string& given,
             std::initializer_list<std::pair<const char*, Value>> values) {
  std::string legal;
  for (const auto& [name, value] : values) {
    if (given == name) return value;
    legal.append(legal.empty() ? "" : ", ").append(name);
  }
  fail(ErrorKind::config, "{} {} is unknown; legal: {}", option, given, legal);
}

int run_export(const ExportArguments& a) {
  ExportOptions options;
  options.dtype = choice<ExportDType>(
      "--dtype", a.dtype,
      {{"keep", ExportDType::keep}, {"bf16", ExportDType::bf16}, {"fp32", ExportDType::fp32}});
  options.layout = choice<ExpertLayout>("--layout", a.layout,
                                        {{"keep", ExpertLayout::keep},
                                         {"per-expert", ExpertLayout::per_expert},
                                         {"fused", ExpertLayout::fused}});
  options.replace = a.replace;
  const std::int64_t num_tensors = export_model(a.from, a.to, options);
  std::printf("wrote %s: %lld tensors\n", a.to.c_str(), static_cast<long long>(num_tensors));
  return 0;
}

}  // namespace

void add_export_command(CLI::App& app, int* status) {
  auto a = std::make_shared<ExportArguments>();
  CLI::App* c = app.add_subcommand("export", "write a checkpoint's model as a Hugging Face folder");
  c->add_option("from", a->from, "checkpoint, or model folder")->required();
  c->add_option("to", a->to, "folder to write")->required();
  c->add_option("--dtype", a->dtype, "keep, bf16 or fp32")->capture_default_str();
  c->add_option("--layout", a->layout,
                "keep, per-expert (a tensor for each matrix) or fused (one for all experts of a layer)")
      ->capture_default_str();
  c->add_flag("--replace", a->replace,
              "replace a folder that is there and holds a model's files and nothing else");
  c->footer("Example: planalto export runs/quickstart/checkpoints/step-00000300 my-model --dtype bf16");
  c->callback([a, status] { *status = run_export(*a); });
}

}  // namespace planalto
