// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "app/commands.h"
#include "base/json.h"
#include "verify/verify_path.h"

namespace planalto {

namespace {

struct VerifyArguments {
  std::string path, config = "config.json", tokenizer;
  int threads = 0;
  bool json = false, recompute = false, quiet = false;
};

JsonValue rows_to_json(const std::vector<VerifyRow>& rows) {
  JsonArray array;
  for (const VerifyRow& r : rows) {
    JsonObject o;
    o.set("quantity", r.quantity);
    // JSON has no infinity: a value that is not comparable is written as null.
    o.set("error", r.error < 1e300 ? JsonValue(r.error) : JsonValue());
    o.set("tolerance", r.tolerance);
    o.set("passed", r.passed);
    if (!r.note.empty()) o.set("note", r.note);
    array.push_back(std::move(o));
  }
  return array;
}

void print_rows(const std::vector<VerifyRow>& rows, bool failures_only) {
  std::size_t width = 8;
  for (const VerifyRow& r : rows) width = std::max(width, r.quantity.size());
  std::printf("%-*s  %11s  %11s  %s\n", static_cast<int>(width), "quantity", "worst error", "tolerance",
              "result");
  for (const VerifyRow& r : rows) {
    if (failures_only && r.passed) continue;
    std::printf("%-*s  %11.3g  %11.3g  %s", static_cast<int>(width), r.quantity.c_str(), r.error, r.tolerance,
                r.passed ? "pass" : "FAIL");
    if (!r.note.empty() && (!r.passed || r.error > 0)) std::printf("  (%s)", r.note.c_str());
    std::printf("\n");
  }
}

int run_verify(const VerifyArguments& a) {
  const std::vector<VerifyRow> rows = verify_path(
      a.path, {.model = {.config_file = a.config, .recompute = a.recompute, .target = this_target(a.threads)},
               .tokenizer = a.tokenizer});
  const auto passed = std::count_if(rows.begin(), rows.end(), [](const VerifyRow& r) { return r.passed; });
  const auto failed = static_cast<std::ptrdiff_t>(rows.size()) - passed;
  if (a.json) {
    JsonObject o;
    o.set("path", a.path);
    o.set("rows", rows_to_json(rows));
    o.set("passed", passed);
    o.set("failed", failed);
    std::printf("%s\n", write_json(o, JsonStyle::pretty).c_str());
  } else {
    print_rows(rows, a.quiet);
    std::printf("verify: %td passed, %td failed\n", passed, failed);
  }
  return failed == 0 && !rows.empty() ? 0 : kExitFailed;
}

}  // namespace

void add_verify_command(CLI::App& app, int* status) {
  auto a = std::make_shared<VerifyArguments>();
  CLI::App* c =
      app.add_subcommand("verify", "hold reference vectors against the programs and kernels that train");
  c->add_option(
       "path", a->path,
       "model case (folder), rope.json, routing.safetensors, tokenizer vectors (.jsonl) or MXFP8 vectors "
       "(folder, .jsonl, .bin)")
      ->required();
  c->add_option("--config", a->config, "the model case's config file")->capture_default_str();
  c->add_option("--tokenizer", a->tokenizer, "tokenizer.json, for tokenizer vectors");
  c->add_option("--threads", a->threads, "worker threads; 0: all cores of this process")
      ->check(CLI::Range(0, 1024));
  c->add_flag("--recompute", a->recompute, "run blocks' forward again in backward");
  c->add_flag("--failures", a->quiet, "print rows that fail only");
  c->add_flag("--json", a->json, "print JSON");
  c->footer("Example: planalto verify tests/golden/deepseek_v3-a --config config_v5.json");
  c->callback([a, status] { *status = run_verify(*a); });
}

}  // namespace planalto
