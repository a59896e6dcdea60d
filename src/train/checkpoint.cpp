// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/left_behind.h"
#include "formats/manifest.h"
#include "formats/safetensors.h"

namespace planalto {

namespace {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kPrefix = "step-";

std::vector<TensorSpec> optimizer_tensors(const ParameterSet& parameters) {
  std::vector<TensorSpec> specs;
  for (const char* kind : {"m.", "v."}) {
    for (const Parameter& p : parameters.all()) {
      if (p.m.valid()) specs.push_back({kind + p.spec.name, FileDType::f32, {p.spec.rows, p.spec.cols}});
    }
  }
  return specs;
}

JsonObject state_to_json(const TrainState& s) {
  JsonObject o;
  o.set("updates", s.updates);
  o.set("epoch", s.cursor.epoch);
  o.set("piece", s.cursor.piece);
  o.set("offset", s.cursor.offset);
  o.set("tokens", s.tokens);
  o.set("trained", s.trained);
  o.set("skipped", s.skipped);
  o.set("skipped_in_row", s.skipped_in_row);
  return o;
}

TrainState state_from_json(const JsonValue& v, std::int64_t step, const std::string& where) {
  auto get = [&](const char* key) {
    const std::int64_t n = v.at(key, where).as_int64(where + "." + key);
    if (n < 0) fail(ErrorKind::data, "{}.{} is {}, below zero", where, key, n);
    return n;
  };
  TrainState s;
  s.step = step;
  s.updates = get("updates");
  s.cursor = {get("epoch"), get("piece"), get("offset")};
  s.tokens = get("tokens");
  s.trained = get("trained");
  s.skipped = get("skipped");
  s.skipped_in_row = get("skipped_in_row");
  return s;
}

JsonObject identity_to_json(const RunIdentity& i) {
  JsonObject o;
  o.set("precision", i.precision);
  o.set("isa", i.isa);
  o.set("threads", i.threads);
  o.set("seed", i.seed);
  o.set("seq_len", i.seq_len);
  o.set("batch_rows", i.batch_rows);
  o.set("shuffle", i.shuffle);
  o.set("pack", i.pack);
  o.set("data_hash", i.data_hash);
  o.set("tokenizer_hash", i.tokenizer_hash);
  return o;
}

RunIdentity identity_from_json(const JsonValue& v, const std::string& where) {
  RunIdentity i;
  i.precision = v.at("precision", where).as_string(where + ".precision");
  i.isa = v.at("isa", where).as_string(where + ".isa");
  i.threads = v.at("threads", where).as_int64(where + ".threads");
  i.seed = v.at("seed", where).as_uint64(where + ".seed");
  i.seq_len = v.at("seq_len", where).as_int64(where + ".seq_len");
  i.batch_rows = v.at("batch_rows", where).as_int64(where + ".batch_rows");
  i.shuffle = v.at("shuffle", where).as_bool(where + ".shuffle");
  i.pack = v.at("pack", where).as_bool(where + ".pack");
  i.data_hash = v.at("data_hash", where).as_uint64(where + ".data_hash");
  i.tokenizer_hash = v.at("tokenizer_hash", where).as_uint64(where + ".tokenizer_hash");
  return i;
}

// The step of a folder's name, -1 when it is not one of ours.
std::int64_t step_of_name(std::string_view name) {
  const std::string_view prefix = kPrefix;
  if (!name.starts_with(prefix) || name.size() == prefix.size() || name.size() > prefix.size() + 18)
    return -1;
  std::int64_t step = 0;
  for (const char c : name.substr(prefix.size())) {
    if (c < '0' || c > '9') return -1;
    step = step * 10 + (c - '0');
  }
  return step;
}

void write_model(const std::string& path, const CheckpointSource& source) {
  SafetensorsWriter writer(path, export_tensors(*source.parameters, FileDType::f32),
                           {.metadata = {{"format", "pt"}}});
  stream_export(*source.parameters, source.address,
                [&](const std::string& name, std::span<const float> values) {
                  writer.write(name, std::as_bytes(values));
                });
  writer.commit();
}

void write_optimizer(const std::string& path, const CheckpointSource& source) {
  SafetensorsWriter writer(path, optimizer_tensors(*source.parameters));
  for (const bool second : {false, true}) {
    for (const Parameter& p : source.parameters->all()) {
      if (!p.m.valid()) continue;
      const auto* data = static_cast<const std::byte*>(source.address(second ? p.v : p.m));
      writer.write((second ? "v." : "m.") + p.spec.name,
                   std::span(data, static_cast<std::size_t>(p.spec.elements() * 4)));
    }
  }
  writer.commit();
}

// Later steps are not counted: they are another run's, or damaged ones that a resume has passed over.
void remove_old(const std::string& dir, std::int64_t keep, std::int64_t step) {
  if (keep <= 0) return;
  std::vector<CheckpointInfo> all = list_checkpoints(dir);
  std::erase_if(all, [&](const CheckpointInfo& c) { return c.step > step; });
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < all.size(); ++i) remove_folder(all[i].path);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:08}", kPrefix, step);
}

std::int64_t checkpoint_bytes(const ParameterSet& parameters) {
  std::int64_t bytes = std::int64_t{1} << 20;  // headers, config, manifest
  for (const TensorSpec& t : export_tensors(parameters, FileDType::f32)) bytes += num_bytes(t, t.name);
  for (const TensorSpec& t : optimizer_tensors(parameters)) bytes += num_bytes(t, t.name);
  return bytes;
}

std::string save_checkpoint(const std::string& dir, const CheckpointSource& source, const TrainState& state,
                            const RunIdentity& identity, std::int64_t keep) {
  make_folders(dir);
  remove_left_behind(dir);
  require_free_bytes(dir, checkpoint_bytes(*source.parameters));
  std::string path = join_path(dir, checkpoint_name(state.step));
  AtomicFolder folder(path, AtomicFolder::Existing::replace);
  Manifest manifest;
  manifest.step = state.step;
  write_file_atomically(folder.file("config.json"), source.config_text);
  manifest.files.push_back(describe_file(folder.folder(), "config.json"));
  for (const ModelFile& file : source.files) {
    write_file_atomically(folder.file(file.name), file.content);
    manifest.files.push_back(describe_file(folder.folder(), file.name));
  }
  write_model(folder.file(kModelFile), source);
  manifest.files.push_back(describe_file(folder.folder(), kModelFile));
  write_optimizer(folder.file(kOptimizerFile), source);
  manifest.files.push_back(describe_file(folder.folder(), kOptimizerFile));
  manifest.extra.set("state", state_to_json(state));
  manifest.extra.set("run", identity_to_json(identity));
  write_manifest(folder.folder(), manifest);
  folder.commit();
  remove_old(dir, keep, state.step);
  return path;
}

std::vector<CheckpointInfo> list_checkpoints(const std::string& dir) {
  std::vector<CheckpointInfo> found;
  if (!is_folder(dir)) return found;
  for (const std::string& name : list_folder(dir)) {
    const std::int64_t step = step_of_name(name);
    const std::string path = join_path(dir, name);
    if (step < 0 || !is_folder(path) || !has_manifest(path)) continue;
    try {
      const Manifest manifest = read_manifest(path);
      if (manifest_problems(path, manifest, false).empty()) found.push_back({path, manifest.step});
    } catch (const Error&) {
      continue;  // not complete: whoever asks for it by name is told why
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

LatestCheckpoint find_latest_checkpoint(const std::string& dir) {
  LatestCheckpoint latest;
  std::vector<CheckpointInfo> found;
  for (const std::string& name : is_folder(dir) ? list_folder(dir) : std::vector<std::string>{}) {
    const std::string path = join_path(dir, name);
    if (step_of_name(name) >= 0 && is_folder(path)) found.push_back({path, step_of_name(name)});
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  for (const CheckpointInfo& c : found) {
    try {
      latest.checkpoint = {c.path, verify_manifest(c.path).step};
      return latest;
    } catch (const Error& e) {
      latest.notices.push_back(fmt::format("{} is passed over: {}", c.path, e.what()));
    }
  }
  return latest;
}

LoadedCheckpoint load_checkpoint(const std::string& path, const ModelConfig& config,
                                 const ParameterSet& parameters, const BufferTable& table,
                                 const AddressOf& address) {
  if (!is_folder(path)) fail(ErrorKind::data, "checkpoint {} is not a folder", path);
  if (!has_manifest(path)) {
    const std::vector<CheckpointInfo> inside = list_checkpoints(path);
    if (!inside.empty())
      fail(ErrorKind::data, "{} is a folder of checkpoints: name one of them, such as {}", path,
           inside.back().path);
    fail(ErrorKind::data,
         "{} has no {}: it is not a checkpoint (start from weights alone with model.init = \"weights\")",
         path, kManifestName);
  }
  const Manifest manifest = verify_manifest(path);
  const std::string where = join_path(path, kManifestName);
  LoadedCheckpoint loaded;
  for (const char* key : {"state", "run"}) {
    if (manifest.extra.find(key) == nullptr) fail(ErrorKind::data, "{}: key {} is missing", where, key);
  }
  loaded.state = state_from_json(*manifest.extra.find("state"), manifest.step, where + ": state");
  loaded.identity = identity_from_json(*manifest.extra.find("run"), where + ": run");
  const HfFolder folder = HfFolder::open(path);
  loaded.notices = load_hf_weights(folder, config, parameters, table, address).notices;
  const SafetensorsFile optimizer = SafetensorsFile::open(join_path(path, kOptimizerFile));
  const std::vector<TensorSpec> expected = optimizer_tensors(parameters);
  if (expected.size() != optimizer.entries().size()) {
    fail(ErrorKind::data, "{}: {} tensors, this model has {} moments", optimizer.path(),
         optimizer.entries().size(), expected.size());
  }
  for (const Parameter& p : parameters.all()) {
    if (!p.m.valid()) continue;
    for (const bool second : {false, true}) {
      const TensorView t = optimizer.tensor((second ? "v." : "m.") + p.spec.name);
      if (t.dtype != FileDType::f32 || t.shape.size() != 2 || t.shape[0] != p.spec.rows ||
          t.shape[1] != p.spec.cols) {
        fail(ErrorKind::data, "{}: tensor {} is {} {}, this model needs F32 [{}, {}]", optimizer.path(),
             t.name, to_string(t.dtype), shape_text(t.shape), p.spec.rows, p.spec.cols);
      }
      t.read(0, std::span(static_cast<float*>(address(second ? p.v : p.m)),
                          static_cast<std::size_t>(p.spec.elements())));
    }
  }
  return loaded;
}

}  // namespace planalto
