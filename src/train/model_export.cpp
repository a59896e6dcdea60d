// SPDX-License-Identifier: Apache-2.0
#include "train/model_export.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "formats/hf_folder.h"
#include "formats/manifest.h"
#include "model/config.h"
#include "model/parameters.h"
#include "train/weights.h"

namespace planalto {

namespace {

constexpr std::int64_t kChunk = std::int64_t{1} << 18;

bool is_float(FileDType dtype) {
  return dtype == FileDType::f32 || dtype == FileDType::bf16 || dtype == FileDType::f16;
}

// Elements of a tensor of the folder, as they follow each other in a tensor that is written.
struct Source {
  TensorView tensor;
  std::int64_t first = 0, count = 0;
};
struct Output {
  TensorSpec spec;
  std::vector<Source> sources;
};

class Exporter {
 public:
  Exporter(const HfFolder& folder, const ExportOptions& options) : folder_(folder), options_(options) {
    if (options.layout != ExpertLayout::keep) lay_out_experts();
    for (const std::string_view name : folder.names()) {
      if (replaced_.contains(name)) continue;
      const TensorView t = folder.tensor(name);
      add(std::string(name), {t.shape.begin(), t.shape.end()}, {{t, 0, t.num_elements}});
    }
  }
  std::vector<TensorSpec> specs() const {
    std::vector<TensorSpec> all;
    for (const auto& [name, output] : outputs_) all.push_back(output.spec);
    return all;
  }
  void write(HfFolderWriter& writer, const std::string& name);

 private:
  void lay_out_experts();
  void lay_out(const ParameterSpec& p, const std::vector<TensorPiece>& from,
               const std::vector<TensorPiece>& to);
  void add(std::string name, std::vector<std::int64_t> shape, std::vector<Source> sources);
  const std::string* find(const std::string& name) const {
    const auto it = by_bare_name_.find(bare_tensor_name(name));
    return it == by_bare_name_.end() ? nullptr : &it->second;
  }

  const HfFolder& folder_;
  ExportOptions options_;
  std::map<std::string, std::string, std::less<>> by_bare_name_;
  std::set<std::string, std::less<>> replaced_;
  std::map<std::string, Output> outputs_;
};

void Exporter::add(std::string name, std::vector<std::int64_t> shape, std::vector<Source> sources) {
  const FileDType dtype = sources.front().tensor.dtype;
  const bool keeps = options_.dtype == ExportDType::keep || !is_float(dtype) ||
                     name.ends_with("e_score_correction_bias");  // never in bf16: it counts in small steps
  const FileDType wanted = options_.dtype == ExportDType::bf16 ? FileDType::bf16 : FileDType::f32;
  outputs_[name] = {{name, keeps ? dtype : wanted, std::move(shape)}, std::move(sources)};
}

void Exporter::lay_out_experts() {
  for (const std::string_view name : folder_.names()) by_bare_name_.emplace(bare_tensor_name(name), name);
  const ModelConfig config = model_for_weights(
      read_model_config(read_json_file(folder_.config_path()), folder_.config_path()), folder_);
  for (const ParameterSpec& p : parameter_specs(config)) {
    if (p.other_layouts.empty()) continue;
    const auto whole = [&](const std::vector<TensorPiece>& layout) {
      return std::all_of(layout.begin(), layout.end(),
                         [&](const TensorPiece& t) { return find(t.name) != nullptr; });
    };
    const std::vector<TensorPiece>* from = whole(p.pieces) ? &p.pieces : nullptr;
    for (const auto& other : p.other_layouts) {
      if (from == nullptr && whole(other)) from = &other;
    }
    if (from == nullptr) {
      fail(ErrorKind::data, "{}: no layout of {} is there as a whole (a tensor like {} is missing)",
           folder_.path(), p.name, p.pieces.front().name);
    }
    const auto& to = options_.layout == ExpertLayout::fused ? p.other_layouts.front() : p.pieces;
    if (from != &to) lay_out(p, *from, to);
  }
}

// Both layouts tile the rows of the parameter: each run of rows of a new tensor is looked up among those of the old ones.
void Exporter::lay_out(const ParameterSpec& p, const std::vector<TensorPiece>& from,
                       const std::vector<TensorPiece>& to) {
  struct Run {
    TensorView tensor;
    std::int64_t first_element = 0, rows = 0;
  };
  std::map<std::int64_t, Run> runs;  // by our first row
  for (const TensorPiece& piece : from) {
    const std::string& name = *find(piece.name);
    const TensorView tensor = folder_.tensor(name);
    if (!std::equal(tensor.shape.begin(), tensor.shape.end(), piece.shape.begin(), piece.shape.end())) {
      fail(ErrorKind::data, "{}: tensor {} has shape {}, the model needs {}", folder_.path(), name,
           shape_text(tensor.shape), shape_text(piece.shape));
    }
    if (!is_float(tensor.dtype) || (!runs.empty() && runs.begin()->second.tensor.dtype != tensor.dtype)) {
      fail(ErrorKind::data,
           "{}: tensor {} is {}; another layout needs experts that are all F32, all BF16 or all F16",
           folder_.path(), name, to_string(tensor.dtype));
    }
    replaced_.insert(name);
    for (std::int64_t g = 0; g < piece.groups; ++g)
      runs[piece.first_row + g * piece.group_stride] = {tensor, g * piece.rows * p.cols, piece.rows};
  }
  // Names keep what the folder puts in front of them.
  const std::string& sample = *find(from.front().name);
  const std::string prefix = sample.substr(0, sample.find(bare_tensor_name(sample)));
  for (const TensorPiece& piece : to) {
    std::vector<Source> sources;
    for (std::int64_t g = 0; g < piece.groups; ++g) {
      std::int64_t row = piece.first_row + g * piece.group_stride;
      const std::int64_t end = row + piece.rows;
      while (row < end) {
        const auto& [first, run] = *std::prev(runs.upper_bound(row));
        const std::int64_t rows = std::min(end, first + run.rows) - row;
        PLANALTO_CHECK(rows > 0, "row {} of {} is in no tensor", row, p.name);
        sources.push_back({run.tensor, run.first_element + (row - first) * p.cols, rows * p.cols});
        row += rows;
      }
    }
    constexpr std::string_view usual = "model.";
    add(prefix + (piece.name.starts_with(usual) ? piece.name.substr(usual.size()) : piece.name), piece.shape,
        std::move(sources));
  }
}

void Exporter::write(HfFolderWriter& writer, const std::string& name) {
  const Output& output = outputs_.at(name);
  std::vector<float> chunk;
  for (const Source& s : output.sources) {
    if (s.tensor.dtype == output.spec.dtype) {
      const auto size = static_cast<std::size_t>(dtype_bytes(s.tensor.dtype));
      writer.write(name, s.tensor.bytes.subspan(static_cast<std::size_t>(s.first) * size,
                                                static_cast<std::size_t>(s.count) * size));
      continue;
    }
    for (std::int64_t done = 0; done < s.count; done += kChunk) {
      chunk.resize(static_cast<std::size_t>(std::min(kChunk, s.count - done)));
      s.tensor.read(s.first + done, std::span<float>(chunk));
      writer.write(name, std::span<const float>(chunk));
    }
  }
}

}  // namespace

// --replace is for what an export wrote before: a folder of a model's files and nothing else, and never one that the source is in.
void check_replaceable(const std::string& from, const std::string& to) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path target = fs::weakly_canonical(to, error), source = fs::weakly_canonical(from, error);
  const fs::path way = source.lexically_relative(target);
  if (way == "." || (!way.empty() && *way.begin() != ".."))
    fail(ErrorKind::config, "cannot export {} to {}, which it is or lies in", from, to);
  if (fs::is_symlink(fs::symlink_status(to, error)))
    fail(ErrorKind::config, "cannot replace {}: it is a symbolic link", to);
  if (!is_folder(to)) return;
  for (const std::string& name : list_folder(to)) {
    const bool of_a_model = name.ends_with(".safetensors") || name.ends_with(".json") ||
                            name.ends_with(".txt") || name.ends_with(".jinja") || name.ends_with(".model");
    if (of_a_model && is_regular_file(join_path(to, name)) && name != "optimizer.safetensors" &&
        name != kManifestName)
      continue;
    fail(ErrorKind::config,
         "cannot replace {}: it holds {}, which an export does not write; remove the folder first", to,
         printable(name));
  }
}

// A checkpoint is a model folder already: an export copies what a model is, and leaves the training state out.
std::int64_t export_model(const std::string& from, const std::string& to, const ExportOptions& options) {
  if (options.replace) check_replaceable(from, to);
  verify_model_files(from);
  const HfFolder folder = HfFolder::open(from);
  Exporter exporter(folder, options);
  HfFolderOptions writing;
  writing.replace = options.replace;
  writing.copies = tokenizer_files(from);
  HfFolderWriter writer(to, exporter.specs(), read_text_file(folder.config_path(), std::int64_t{1} << 24),
                        writing);
  for (const TensorSpec& spec : writer.tensors()) exporter.write(writer, spec.name);
  writer.commit();
  return static_cast<std::int64_t>(writer.tensors().size());
}

}  // namespace planalto
