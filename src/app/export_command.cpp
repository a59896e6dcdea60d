// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "app/commands.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/hf_folder.h"

namespace planalto {

namespace {

struct ExportArguments {
  std::string from, to, dtype = "keep";
  bool replace = false;
};

// A checkpoint is a model folder already: an export copies what a model is, and rounds the weights when asked to.
int run_export(const ExportArguments& a) {
  const HfFolder folder = HfFolder::open(a.from);
  if (a.dtype != "keep" && a.dtype != "bf16" && a.dtype != "fp32") {
    fail(ErrorKind::config, "--dtype {} is unknown; legal: keep, bf16, fp32", a.dtype);
  }
  std::vector<TensorSpec> specs;
  for (const std::string_view name : folder.names()) {
    const TensorView t = folder.tensor(name);
    const bool is_float =
        t.dtype == FileDType::f32 || t.dtype == FileDType::bf16 || t.dtype == FileDType::f16;
    const bool keeps = a.dtype == "keep" || !is_float ||
                       name.ends_with("e_score_correction_bias");  // never in bf16: it counts in small steps
    const FileDType dtype = keeps ? t.dtype : a.dtype == "bf16" ? FileDType::bf16 : FileDType::f32;
    specs.push_back({std::string(name), dtype, {t.shape.begin(), t.shape.end()}});
  }
  HfFolderOptions options;
  options.replace = a.replace;
  options.copies = tokenizer_files(a.from);
  HfFolderWriter writer(a.to, specs, read_text_file(folder.config_path(), std::int64_t{1} << 24), options);
  std::vector<float> chunk;
  for (const TensorSpec& spec : writer.tensors()) {
    const TensorView t = folder.tensor(spec.name);
    if (t.dtype == spec.dtype) {
      writer.write(spec.name, t.bytes);
      continue;
    }
    constexpr std::int64_t kChunk = std::int64_t{1} << 18;
    for (std::int64_t first = 0; first < t.num_elements; first += kChunk) {
      chunk.resize(static_cast<std::size_t>(std::min(kChunk, t.num_elements - first)));
      t.read(first, std::span<float>(chunk));
      writer.write(spec.name, std::span<const float>(chunk));
    }
  }
  writer.commit();
  std::printf("wrote %s: %zu tensors\n", a.to.c_str(), specs.size());
  return 0;
}

}  // namespace

void add_export_command(CLI::App& app, int* status) {
  auto a = std::make_shared<ExportArguments>();
  CLI::App* c = app.add_subcommand("export", "write a checkpoint's model as a Hugging Face folder");
  c->add_option("from", a->from, "checkpoint, or model folder")->required();
  c->add_option("to", a->to, "folder to write")->required();
  c->add_option("--dtype", a->dtype, "keep, bf16 or fp32")->capture_default_str();
  c->add_flag("--replace", a->replace, "replace a folder that is there");
  c->footer("Example: planalto export runs/quickstart/checkpoints/step-00000300 my-model --dtype bf16");
  c->callback([a, status] { *status = run_export(*a); });
}

}  // namespace planalto
