// SPDX-License-Identifier: Apache-2.0
#include "formats/hf_folder.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace planalto {

namespace {

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr JsonOptions kIndexLimits{.max_depth = 16, .max_values = 10'000'000};
constexpr std::size_t kMaxListed = 20;

std::string join_list(const std::vector<std::string>& items) {
  std::string out;
  for (std::size_t i = 0; i < items.size() && i < kMaxListed; ++i)
    out += fmt::format("{}{}", i == 0 ? "" : ", ", items[i]);
  if (items.size() > kMaxListed) out += fmt::format(" and {} more", items.size() - kMaxListed);
  return out;
}

std::vector<std::string> safetensors_in(const std::string& folder) {
  std::vector<std::string> out;
  for (const std::string& name : list_folder(folder)) {
    if (name.ends_with(".safetensors") && !is_temporary_name(name)) out.push_back(name);
  }
  return out;
}

}  // namespace

// --- reading --------------------------------------------------------------------------------------------------------

HfFolder HfFolder::open(const std::string& path) {
  HfFolder out;
  out.path_ = path;
  if (!is_folder(path))
    fail(ErrorKind::io, "{} is not a folder: a model folder holds config.json and safetensors", path);
  if (!is_regular_file(out.config_path()))
    fail(ErrorKind::data, "{}: config.json is missing in this model folder", path);
  const std::string index_path = out.file(kIndex);
  if (path_exists(index_path)) {
    out.open_index(index_path);
  } else {
    out.open_single();
  }
  return out;
}

void HfFolder::open_single() {
  if (!path_exists(file(kSingle))) {
    const std::vector<std::string> others = safetensors_in(path_);
    fail(ErrorKind::data, "{}: neither {} nor {} is there{}", path_, kSingle, kIndex,
         others.empty() ? "" : ", only " + join_list(others));
  }
  shards_.push_back(SafetensorsFile::open(file(kSingle)));
  for (const auto& e : shards_[0].entries()) places_.push_back(Place{e.spec.name, 0});
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) { return a.name < b.name; });
  notice_foreign_files({std::string(kSingle)});
}

void HfFolder::open_index(const std::string& index_path) {
  const JsonValue index = read_json_file(index_path, kIndexLimits);
  const std::string where = index_path + ": weight_map";
  const JsonObject& map = index.at("weight_map", index_path).as_object(where);
  std::vector<std::string> files;
  for (const JsonMember& m : map) {
    const std::string& name = m.value.as_string(fmt::format("{}: \"{}\"", where, printable(m.key)));
    if (!is_plain_name(name)) {
      fail(ErrorKind::data, "{}: \"{}\" is in the file \"{}\", a plain file name is needed", where,
           printable(m.key), printable(name));
    }
    files.push_back(name);
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  std::vector<std::string> missing;
  for (const std::string& name : files) {
    if (!path_exists(file(name))) missing.push_back(printable(name));
  }
  if (!missing.empty()) {
    fail(ErrorKind::data, "{}: {} of {} shards are missing: {}", index_path, missing.size(), files.size(),
         join_list(missing));
  }
  for (const std::string& name : files) shards_.push_back(SafetensorsFile::open(file(name)));
  for (const JsonMember& m : map) {
    const auto it = std::lower_bound(files.begin(), files.end(), m.value.as_string(where));
    places_.push_back(Place{m.key, static_cast<std::size_t>(it - files.begin())});
  }
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) { return a.name < b.name; });
  check_shards(files, index_path);
  notice_foreign_files(files);
  const JsonValue* metadata = index.find("metadata");
  const JsonValue* total = metadata == nullptr ? nullptr : metadata->find("total_size");
  if (total != nullptr && total->is_number() && total->as_double("") != static_cast<double>(tensor_bytes())) {
    notices_.push_back(fmt::format("{}: total_size is {}, the tensors have {} bytes", index_path,
                                   write_json(*total), tensor_bytes()));
  }
}

// The index and the shards must tell the same story, seen from both sides.
void HfFolder::check_shards(const std::vector<std::string>& files, const std::string& index_path) {
  std::vector<std::string> misplaced;
  for (const Place& p : places_) {
    if (!shards_[p.shard].contains(p.name))
      misplaced.push_back(fmt::format("\"{}\" in {}", printable(p.name, 200), files[p.shard]));
  }
  if (!misplaced.empty()) {
    fail(ErrorKind::data, "{}: {} tensors are not in the shard that the index names: {}", index_path,
         misplaced.size(), join_list(misplaced));
  }
  std::vector<std::string> unlisted;
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    for (const auto& e : shards_[s].entries()) {
      const Place* place = find(e.spec.name);
      if (place == nullptr) {
        unlisted.push_back(fmt::format("\"{}\" in {}", printable(e.spec.name, 200), files[s]));
      } else if (place->shard != s) {
        fail(ErrorKind::data, "{}: the tensor \"{}\" is in two shards, {} and {}", index_path,
             printable(e.spec.name, 200), files[std::min(place->shard, s)], files[std::max(place->shard, s)]);
      }
    }
  }
  if (!unlisted.empty()) {
    notices_.push_back(fmt::format("{}: {} tensors that the index does not list are ignored: {}", index_path,
                                   unlisted.size(), join_list(unlisted)));
  }
}

void HfFolder::notice_foreign_files(const std::vector<std::string>& used) {
  for (const std::string& name : safetensors_in(path_)) {
    if (std::find(used.begin(), used.end(), name) == used.end()) {
      notices_.push_back(fmt::format("{}: ignored, it does not belong to {}", file(name),
                                     used.size() == 1 && used[0] == kSingle ? kSingle : kIndex));
    }
  }
}

const HfFolder::Place* HfFolder::find(std::string_view name) const {
  const auto it = std::lower_bound(places_.begin(), places_.end(), name,
                                   [](const Place& p, std::string_view n) { return p.name < n; });
  return it == places_.end() || it->name != name ? nullptr : &*it;
}

std::vector<std::string_view> HfFolder::names() const {
  std::vector<std::string_view> out;
  for (const Place& p : places_) out.emplace_back(p.name);
  return out;
}

TensorView HfFolder::tensor(std::string_view name) const {
  const Place* place = find(name);
  if (place == nullptr)
    fail(ErrorKind::data, "{}: there is no tensor \"{}\" in this model folder", path_, printable(name, 200));
  return shards_[place->shard].tensor(name);
}

std::int64_t HfFolder::tensor_bytes() const {
  std::int64_t total = 0;
  for (const Place& p : places_)
    total += static_cast<std::int64_t>(shards_[p.shard].tensor(p.name).bytes.size());
  return total;
}

std::vector<std::string> tokenizer_files(const std::string& folder) {
  constexpr std::string_view kNames[] = {
      "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
      "added_tokens.json", "tokenizer.model",       "vocab.json",
      "merges.txt",        "chat_template.jinja",   "generation_config.json"};
  std::vector<std::string> out;
  for (const std::string_view name : kNames) {
    const std::string path = join_path(folder, name);
    if (is_regular_file(path)) out.push_back(path);
  }
  return out;
}

// --- writing --------------------------------------------------------------------------------------------------------

HfFolderWriter::HfFolderWriter(const std::string& path, std::vector<TensorSpec> tensors,
                               std::string_view config_text, const HfFolderOptions& options)
    : folder_(path, options.replace ? AtomicFolder::Existing::replace : AtomicFolder::Existing::refuse),
      tensors_(std::move(tensors)) {
  plan_shards(options.max_shard_bytes);
  std::int64_t needed = static_cast<std::int64_t>(config_text.size());
  for (const Shard& s : shards_) needed += s.num_bytes;
  for (const std::string& from : options.copies) needed += file_bytes(from);
  require_free_bytes(path, needed);
  write_file_atomically(folder_.file("config.json"), config_text);
  for (const std::string& from : options.copies) copy_file(from, folder_.file(file_name(from)));
}

HfFolderWriter::~HfFolderWriter() = default;

void HfFolderWriter::plan_shards(std::int64_t max_shard_bytes) {
  // A name must be unique over all shards, which no single writer sees.
  std::vector<std::string_view> sorted;
  for (const TensorSpec& t : tensors_) sorted.emplace_back(t.name);
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end())
    fail(ErrorKind::data, "{}: the tensor \"{}\" is declared twice", folder_.path(), printable(*twice, 200));

  shards_.push_back(Shard{});
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::int64_t bytes = num_bytes(tensors_[i], tensors_[i].name);
    Shard* shard = &shards_.back();
    if (shard->end > shard->begin && bytes > max_shard_bytes - shard->num_bytes) {
      shards_.push_back(Shard{.file = {}, .begin = i, .end = i});
      shard = &shards_.back();
    }
    shard->end = i + 1;
    shard->num_bytes += bytes;
  }
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    shards_[s].file = shards_.size() == 1
                          ? std::string(kSingle)
                          : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards_.size());
  }
}

// The first writer that still wants bytes: shards are written one after the other. Null when all are full.
SafetensorsWriter* HfFolderWriter::next_writer() {
  for (; shard_ < shards_.size(); ++shard_) {
    if (writer_ == nullptr) {
      const auto first = tensors_.begin();
      const Shard& s = shards_[shard_];
      writer_ = std::make_unique<SafetensorsWriter>(
          folder_.file(s.file),
          std::vector<TensorSpec>(first + static_cast<std::ptrdiff_t>(s.begin),
                                  first + static_cast<std::ptrdiff_t>(s.end)),
          SafetensorsWriterOptions{.metadata = {{"format", "pt"}}});
    }
    if (!writer_->complete()) return writer_.get();
    writer_->commit();
    writer_ = nullptr;
  }
  return nullptr;
}

void HfFolderWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  SafetensorsWriter* writer = next_writer();
  PLANALTO_CHECK(writer != nullptr, "{}: all tensors are written, then came \"{}\"", folder_.path(), name);
  writer->write(name, bytes);
}

void HfFolderWriter::write(std::string_view name, std::span<const float> values) {
  if (values.empty()) return;
  SafetensorsWriter* writer = next_writer();
  PLANALTO_CHECK(writer != nullptr, "{}: all tensors are written, then came \"{}\"", folder_.path(), name);
  writer->write(name, values);
}

void HfFolderWriter::write_index() {
  JsonObject map;
  std::int64_t total = 0;
  std::vector<std::pair<std::string_view, std::string_view>> rows;
  for (const Shard& s : shards_) {
    total += s.num_bytes;
    for (std::size_t i = s.begin; i < s.end; ++i) rows.emplace_back(tensors_[i].name, s.file);
  }
  std::sort(rows.begin(), rows.end());
  for (const auto& [name, file] : rows) map.set(name, JsonValue(file));
  JsonObject metadata;
  metadata.set("total_size", JsonValue(total));
  JsonObject index;
  index.set("metadata", std::move(metadata));
  index.set("weight_map", std::move(map));
  write_file_atomically(folder_.file(kIndex), write_json(index, JsonStyle::pretty) + "\n");
}

void HfFolderWriter::commit() {
  PLANALTO_CHECK(next_writer() == nullptr, "{}: {} of {} shards are full", folder_.path(), shard_,
                 shards_.size());
  if (shards_.size() > 1) write_index();
  folder_.commit();
}

}  // namespace planalto
