// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "app/commands.h"
#include "formats/inspect.h"

namespace planalto {

namespace {

struct InspectArguments {
  std::string path;
  InspectOptions options;
  bool json = false, headers_only = false;
};

void print_inspection(const Inspection& i) {
  std::printf("%s: %s, %lld bytes\n", i.path.c_str(), to_string(i.kind), static_cast<long long>(i.bytes));
  for (const JsonMember& fact : i.facts) {
    const std::string value =
        fact.value.is_string() ? fact.value.as_string(fact.key) : write_json(fact.value);
    std::printf("  %s: %s\n", fact.key.c_str(), value.c_str());
  }
  for (const std::string& n : i.notices) std::printf("  notice: %s\n", n.c_str());
  for (const std::string& p : i.problems) std::printf("  problem: %s\n", p.c_str());
  std::printf("%s\n", i.problems.empty() ? "no problems" : "problems found");
}

}  // namespace

void add_inspect_command(CLI::App& app, int* status) {
  auto a = std::make_shared<InspectArguments>();
  CLI::App* c =
      app.add_subcommand("inspect", "say what a file or folder is, how large, and what is wrong with it");
  c->add_option("path", a->path,
                "safetensors, checkpoint, token shard, tokenizer.json, config.json or model folder")
      ->required();
  c->add_flag("--tensors", a->options.tensors, "list every tensor");
  c->add_flag("--headers", a->headers_only, "look at headers and sizes only, not at contents");
  c->add_flag("--json", a->json, "print JSON");
  c->footer("Example: planalto inspect runs/quickstart/checkpoints/step-00000300");
  c->callback([a, status] {
    a->options.contents = !a->headers_only;
    const Inspection i = inspect(a->path, a->options);
    if (a->json) {
      std::printf("%s\n", write_json(to_json(i), JsonStyle::pretty).c_str());
    } else {
      print_inspection(i);
    }
    *status = i.problems.empty() ? 0 : kExitFailed;
  });
}

}  // namespace planalto
