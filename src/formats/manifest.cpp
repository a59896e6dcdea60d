// SPDX-License-Identifier: Apache-2.0
#include "formats/manifest.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/utf8.h"

namespace planalto {

namespace {

constexpr std::int64_t kVersion = 1;
constexpr JsonOptions kLimits{.max_depth = 64, .max_values = 1'000'000};

ManifestFile read_entry(const JsonValue& value, const std::string& where) {
  ManifestFile file;
  file.name = value.at("name", where).as_string(where + ": name");
  if (!is_plain_name(file.name) || file.name == kManifestName) {
    fail(ErrorKind::data, "{}: \"{}\" is no name of a file beside the manifest", where, printable(file.name));
  }
  file.bytes = value.at("bytes", where).as_int64(where + ": bytes");
  if (file.bytes < 0) fail(ErrorKind::data, "{}: bytes is {}, 0 or more is legal", where, file.bytes);
  const std::string& digits = value.at("xxh3", where).as_string(where + ": xxh3");
  if (!parse_hex64(digits, &file.xxh3)) {
    fail(ErrorKind::data, "{}: xxh3 is \"{}\", 16 lower-case hexadecimal digits are legal", where,
         printable(digits));
  }
  return file;
}

}  // namespace

bool has_manifest(const std::string& folder) {
  return is_regular_file(join_path(folder, kManifestName));
}

ManifestFile describe_file(const std::string& folder, std::string_view name) {
  const MappedFile file(join_path(folder, name));
  file.will_read_sequentially();
  return {std::string(name), file.size(), xxh3_64(file.bytes())};
}

void write_manifest(const std::string& folder, const Manifest& manifest) {
  JsonArray files;
  for (const ManifestFile& f : manifest.files) {
    PLANALTO_CHECK(is_plain_name(f.name) && f.name != kManifestName, "a manifest entry \"{}\"", f.name);
    JsonObject entry;
    entry.set("name", JsonValue(f.name));
    entry.set("bytes", JsonValue(f.bytes));
    entry.set("xxh3", JsonValue(hex64(f.xxh3)));
    files.emplace_back(std::move(entry));
  }
  JsonObject out;
  out.set("planalto_checkpoint", JsonValue(kVersion));
  out.set("step", JsonValue(manifest.step));
  out.set("files", std::move(files));
  for (const JsonMember& m : manifest.extra) {
    PLANALTO_CHECK(out.find(m.key) == nullptr, "the manifest key \"{}\" is taken", m.key);
    out.set(m.key, m.value);
  }
  write_file_atomically(join_path(folder, kManifestName), write_json(out, JsonStyle::pretty) + "\n");
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = join_path(folder, kManifestName);
  const JsonValue document = read_json_file(path, kLimits);
  const std::int64_t version =
      document.at("planalto_checkpoint", path).as_int64(path + ": planalto_checkpoint");
  if (version != kVersion) {
    fail(ErrorKind::data, "{}: checkpoint version {}, this program reads {}", path, version, kVersion);
  }
  Manifest manifest;
  manifest.step = document.at("step", path).as_int64(path + ": step");
  if (manifest.step < 0) fail(ErrorKind::data, "{}: step is {}, 0 or more is legal", path, manifest.step);
  std::int64_t i = 0;
  std::vector<std::string_view> names;
  for (const JsonValue& v : document.at("files", path).as_array(path + ": files")) {
    manifest.files.push_back(read_entry(v, fmt::format("{}: files[{}]", path, i++)));
  }
  for (const ManifestFile& f : manifest.files) names.emplace_back(f.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    fail(ErrorKind::data, "{}: the file \"{}\" stands twice", path, printable(*twice));
  for (const JsonMember& m : document.as_object(path)) {
    if (m.key != "planalto_checkpoint" && m.key != "step" && m.key != "files")
      manifest.extra.set(m.key, m.value);
  }
  return manifest;
}

std::vector<std::string> manifest_problems(const std::string& folder, const Manifest& manifest,
                                           bool contents) {
  std::vector<std::string> out;
  for (const ManifestFile& f : manifest.files) {
    const std::string path = join_path(folder, f.name);
    if (!is_regular_file(path)) {
      out.push_back(fmt::format("{} is missing ({} bytes)", printable(f.name), f.bytes));
      continue;
    }
    if (const std::int64_t found = planalto::file_bytes(path); found != f.bytes) {
      out.push_back(fmt::format("{} has {} bytes, the manifest says {}", printable(f.name), found, f.bytes));
      continue;
    }
    if (!contents) continue;
    if (const std::uint64_t found = describe_file(folder, f.name).xxh3; found != f.xxh3) {
      out.push_back(fmt::format("{} is damaged: its checksum is {}, the manifest says {}", printable(f.name),
                                hex64(found), hex64(f.xxh3)));
    }
  }
  return out;
}

void verify_model_files(const std::string& folder) {
  constexpr std::string_view kState = "optimizer.safetensors";
  if (!has_manifest(folder) || !path_exists(join_path(folder, kState))) return;
  Manifest manifest = read_manifest(folder);
  std::erase_if(manifest.files, [&](const ManifestFile& f) { return f.name == kState; });
  const std::vector<std::string> problems = manifest_problems(folder, manifest);
  if (problems.empty()) return;
  std::string all;
  for (const std::string& problem : problems) all += "\n  " + problem;
  fail(ErrorKind::data, "{}: the checkpoint is damaged:{}", folder, all);
}

Manifest verify_manifest(const std::string& folder) {
  Manifest manifest = read_manifest(folder);
  const std::vector<std::string> problems = manifest_problems(folder, manifest);
  if (!problems.empty()) {
    std::string all;
    for (const std::string& p : problems) all += (all.empty() ? "" : "; ") + p;
    fail(ErrorKind::data, "{}: the checkpoint is not whole: {}", folder, all);
  }
  return manifest;
}

}  // namespace planalto
