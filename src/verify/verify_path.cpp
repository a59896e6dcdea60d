// SPDX-License-Identifier: Apache-2.0
#include "verify/verify_path.h"

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "formats/tokenizer/verify_vectors.h"
#include "kernels/router.h"
#include "kernels/table.h"
#include "model/rope_config.h"
#include "verify/verify_mxfp8.h"

namespace planalto {

namespace {

using kernels::RouterOptions;

std::vector<VerifyRow> verify_tokenizer(const std::string& path, const std::string& tokenizer) {
  if (tokenizer.empty()) {
    fail(ErrorKind::config, "{} holds tokenizer vectors: name the tokenizer.json with --tokenizer FILE",
         path);
  }
  std::vector<VerifyRow> rows;
  for (const VectorRow& r : verify_tokenizer_vectors(path, tokenizer)) {
    rows.push_back({fmt::format("line {} {}", r.line, r.what), r.ok ? 0.0 : 1.0, 0.0, r.ok, r.detail});
  }
  return rows;
}

std::int64_t integer(const JsonValue& config, std::initializer_list<const char*> keys,
                     std::int64_t otherwise) {
  for (const char* key : keys) {
    if (const JsonValue* v = config.find(key); v != nullptr && !v->is_null()) return v->as_int64(key);
  }
  return otherwise;
}

RouterOptions router_options(const JsonValue& config, const std::string& where) {
  const std::string family = config.at("model_type", where).as_string(where);
  RouterOptions o;
  o.num_experts = integer(config, {"n_routed_experts", "num_experts", "num_local_experts"}, 0);
  o.top_k = integer(config, {"num_experts_per_tok"}, 0);
  o.num_groups = integer(config, {"n_group"}, 1);
  o.top_groups = integer(config, {"topk_group"}, 1);
  if (const JsonValue* v = config.find("norm_topk_prob"); v != nullptr) o.normalize = v->as_bool(where);
  if (const JsonValue* v = config.find("routed_scaling_factor"); v != nullptr)
    o.scaling = v->as_double(where);
  const bool sigmoid = family == "deepseek_v3" || family == "glm4_moe";
  o.score = sigmoid ? kernels::RouterScore::sigmoid : kernels::RouterScore::softmax;
  o.group_score = sigmoid ? kernels::GroupScore::top2_sum : kernels::GroupScore::best;
  return o;
}

struct RouterRun {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

RouterRun run_router(const RouterOptions& o, const std::vector<float>& logits, const std::vector<float>& bias,
                     const Target& target) {
  ThreadPool pool(target.num_threads);
  const ExecContext ctx{&pool, &kernels::kernel_table(target.isa)};
  const std::int64_t tokens = static_cast<std::int64_t>(logits.size()) / o.num_experts;
  RouterRun run;
  run.ids.resize(static_cast<std::size_t>(tokens * o.top_k));
  run.weights.resize(run.ids.size());
  std::vector<std::int64_t> counts(static_cast<std::size_t>(o.num_experts));
  kernels::router_forward(ctx, {.options = o,
                                .logits = logits.data(),
                                .bias = bias.empty() ? nullptr : bias.data(),
                                .scores = nullptr,
                                .ids = run.ids.data(),
                                .weights = run.weights.data(),
                                .counts = counts.data(),
                                .tokens = {.capacity = tokens}});
  return run;
}

// The content of a file, as far as it tells the kind of vectors.
enum class Kind { rope, routing, tokenizer, mxfp8_blocks, mxfp8_table, unknown };
Kind kind_of(const std::string& path) {
  if (is_mxfp8_table(path)) return Kind::mxfp8_table;
  const MappedFile file(path);
  std::string_view text = file.text();
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return Kind::unknown;
  text.remove_prefix(start);
  if (text.front() == '[' && text.find("\"inv_freq\"") != std::string_view::npos) return Kind::rope;
  if (text.front() == '{') {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.find("\"ids\"") != std::string_view::npos) return Kind::tokenizer;
    if (is_mxfp8_block(line)) return Kind::mxfp8_blocks;
  }
  if (file.size() > 9 && file.text()[8] == '{') {
    const SafetensorsFile tensors = SafetensorsFile::open(path);
    for (const auto& e : tensors.entries()) {
      if (e.spec.name.ends_with(".topk_idx")) return Kind::routing;
    }
  }
  return Kind::unknown;
}

// The files of a folder that hold MXFP8 vectors, all of them.
std::vector<VerifyRow> verify_mxfp8_folder(const std::string& path, const Target& target) {
  std::vector<VerifyRow> rows;
  for (const std::string& name : list_folder(path)) {
    const std::string file = join_path(path, name);
    if (!is_regular_file(file) || (!name.ends_with(".jsonl") && !is_mxfp8_table(file))) continue;
    const Kind kind = kind_of(file);
    if (kind != Kind::mxfp8_blocks && kind != Kind::mxfp8_table) continue;
    const auto more =
        kind == Kind::mxfp8_blocks ? verify_mxfp8_blocks(file, target) : verify_mxfp8_table(file, target);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

}  // namespace

std::vector<VerifyRow> verify_rope(const std::string& path) {
  std::vector<VerifyRow> rows;
  const JsonValue cases = read_json_file(path);
  for (const JsonValue& c : cases.as_array(path)) {
    const std::string name = c.at("name", path).as_string(path);
    const std::string where = fmt::format("{}: {}", path, name);
    const RopeCase ours = read_rope_case(c.at("config", where), where);
    const JsonArray& expected = c.at("inv_freq", where).as_array(where);
    Worst frequencies(name + ".inv_freq (relative)", 1e-14);
    if (static_cast<std::int64_t>(expected.size()) != static_cast<std::int64_t>(ours.rope.inv_freq.size())) {
      frequencies.add(1.0,
                      fmt::format("{} frequencies, expected {}", ours.rope.inv_freq.size(), expected.size()));
    }
    for (std::size_t i = 0; i < std::min(expected.size(), ours.rope.inv_freq.size()); ++i) {
      const double e = expected[i].as_double(where);
      frequencies.add(std::abs(ours.rope.inv_freq[i] - e) / e, fmt::format("pair {}", i));
    }
    rows.push_back(frequencies.row());
    auto scale = [&](const char* key, double value) {
      const double e = c.at(key, where).as_double(where);
      const double error = std::abs(value - e) / std::abs(e);
      rows.push_back({name + "." + key + " (relative)", error, 1e-14, error <= 1e-14, ""});
    };
    scale("cos_sin_scale", ours.rope.cos_sin_scale);
    scale("softmax_scale", ours.softmax_scale);
  }
  return rows;
}

std::vector<VerifyRow> verify_routing(const std::string& path, const Target& target) {
  std::vector<VerifyRow> rows;
  const SafetensorsFile file = SafetensorsFile::open(path);
  for (const auto& [tag, text] : file.metadata()) {
    if (!file.contains(tag + ".logits")) continue;
    const std::string where = fmt::format("{}: {}", path, tag);
    const RouterOptions o = router_options(parse_json(text, where), where);
    const std::string bias = tag + ".e_score_correction_bias";
    const RouterRun run =
        run_router(o, file.tensor(tag + ".logits").read_f32(),
                   file.contains(bias) ? file.tensor(bias).read_f32() : std::vector<float>{}, target);
    const std::vector<std::int64_t> ids = file.tensor(tag + ".topk_idx").read_i64();
    std::int64_t wrong = ids.size() == run.ids.size() ? 0 : 1;
    for (std::size_t i = 0; wrong == 0 && i < ids.size(); ++i) wrong += ids[i] != run.ids[i] ? 1 : 0;
    rows.push_back({tag + ".topk_idx (differences)", static_cast<double>(wrong), 0.0, wrong == 0, ""});
    const Difference d = difference(run.weights, file.tensor(tag + ".topk_weight").read_f32());
    rows.push_back({tag + ".topk_weight (relative)", d.max_relative, 5e-5, d.max_relative <= 5e-5, ""});
  }
  return rows;
}

std::vector<VerifyRow> verify_path(const std::string& path, const VerifyPathOptions& options) {
  if (!path_exists(path)) fail(ErrorKind::data, "{} does not exist", path);
  if (is_folder(path)) {
    if (is_model_case(path)) return verify_case(path, options.model);
    std::vector<VerifyRow> rows = verify_mxfp8_folder(path, options.model.target);
    if (!rows.empty()) return rows;
    fail(ErrorKind::data,
         "{} is no model case, which needs config.json, model.safetensors and vectors.safetensors, and holds "
         "no MXFP8 "
         "vectors",
         path);
  }
  switch (kind_of(path)) {
    case Kind::rope:
      return verify_rope(path);
    case Kind::routing:
      return verify_routing(path, options.model.target);
    case Kind::tokenizer:
      return verify_tokenizer(path, options.tokenizer);
    case Kind::mxfp8_blocks:
      return verify_mxfp8_blocks(path, options.model.target);
    case Kind::mxfp8_table:
      return verify_mxfp8_table(path, options.model.target);
    case Kind::unknown:
      break;
  }
  fail(ErrorKind::data,
       "{} holds no reference vectors that are known: a model case (folder), rope.json, routing.safetensors, "
       "tokenizer vectors (.jsonl) or MXFP8 vectors (folder, .jsonl, .bin)",
       path);
}

}  // namespace planalto
