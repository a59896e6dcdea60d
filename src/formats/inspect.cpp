// SPDX-License-Identifier: Apache-2.0
#include "formats/inspect.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "formats/hf_folder.h"
#include "formats/manifest.h"
#include "formats/safetensors.h"
#include "formats/token_shard.h"

namespace planalto {

const char* to_string(PathKind kind) {
  switch (kind) {
    case PathKind::safetensors:
      return "safetensors file";
    case PathKind::hf_folder:
      return "Hugging Face model folder";
    case PathKind::checkpoint:
      return "checkpoint";
    case PathKind::token_shard:
      return "token shard";
    case PathKind::tokenizer:
      return "tokenizer";
    case PathKind::model_config:
      return "model config";
    case PathKind::json:
      return "JSON file";
    case PathKind::jsonl:
      return "JSONL file";
    case PathKind::text:
      return "text file";
    case PathKind::folder:
      return "folder";
    case PathKind::unknown:
      return "unknown file";
  }
  return "?";
}

namespace {

constexpr std::int64_t kMaxJsonBytes = std::int64_t{1} << 30;
constexpr JsonOptions kLimits{.max_values = 20'000'000};

// Runs body; an Error becomes a problem.
template <class Body>
void noting_problems(Inspection& out, Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    out.problems.emplace_back(e.what());
  }
}

// Counts tensors, parameters and bytes by dtype.
class TensorTally {
 public:
  void add(const TensorView& t) {
    ++num_tensors_;
    elements_ += t.num_elements;
    by_dtype_[to_string(t.dtype)] += t.num_elements;
  }

  void put(JsonObject& facts) const {
    facts.set("num_tensors", JsonValue(num_tensors_));
    facts.set("num_elements", JsonValue(elements_));
    JsonObject dtypes;
    for (const auto& [name, elements] : by_dtype_) dtypes.set(name, JsonValue(elements));
    facts.set("elements_by_dtype", std::move(dtypes));
  }

 private:
  std::int64_t num_tensors_ = 0;
  std::int64_t elements_ = 0;
  std::map<std::string, std::int64_t> by_dtype_;
};

JsonValue tensor_row(const TensorView& t) {
  JsonObject row;
  row.set("name", JsonValue(t.name));
  row.set("dtype", JsonValue(to_string(t.dtype)));
  row.set("shape", JsonArray(t.shape.begin(), t.shape.end()));
  return row;
}

void inspect_safetensors(Inspection& out, const InspectOptions& options) {
  out.kind = PathKind::safetensors;
  noting_problems(out, [&] {
    const SafetensorsFile file = SafetensorsFile::open(out.path);
    TensorTally tally;
    JsonArray rows;
    for (const auto& e : file.entries()) {
      tally.add(file.tensor(e));
      if (options.tensors) rows.push_back(tensor_row(file.tensor(e)));
    }
    tally.put(out.facts);
    out.facts.set("header_bytes", JsonValue(file.file_bytes() - file.data_bytes()));
    JsonObject metadata;
    for (const auto& [key, value] : file.metadata()) metadata.set(key, JsonValue(value));
    out.facts.set("metadata", std::move(metadata));
    if (options.tensors) out.facts.set("tensors", std::move(rows));
  });
}

void inspect_token_shard(Inspection& out, const InspectOptions& options) {
  out.kind = PathKind::token_shard;
  noting_problems(out, [&] {
    const TokenShard shard = TokenShard::open(out.path, {.verify = false});
    const TokenShardHeader& h = shard.header();
    out.facts.set("version", JsonValue(h.version));
    out.facts.set("num_tokens", JsonValue(h.num_tokens));
    out.facts.set("num_documents", JsonValue(h.num_documents));
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < h.num_documents; ++i) longest = std::max(longest, shard.document(i).size());
    out.facts.set("longest_document", JsonValue(longest));
    out.facts.set("token_bytes", JsonValue(h.token_bytes));
    out.facts.set("vocab_size", JsonValue(h.vocab_size));
    out.facts.set("tokenizer_hash", JsonValue(hex64(h.tokenizer_hash)));
    out.facts.set("trained_mask", JsonValue(h.has_trained_mask));
    if (options.contents) shard.verify();
  });
}

std::int64_t size_of(const JsonValue* value) {
  if (value == nullptr) return 0;
  if (value->is_object()) return value->as_object("").size();
  return value->is_array() ? static_cast<std::int64_t>(value->as_array("").size()) : 0;
}

void tokenizer_facts(Inspection& out, const JsonValue& document) {
  out.kind = PathKind::tokenizer;
  const JsonValue& model = document.at("model", out.path);
  if (const JsonValue* type = model.find("type"); type != nullptr) out.facts.set("model", *type);
  out.facts.set("vocab", JsonValue(size_of(model.find("vocab"))));
  out.facts.set("merges", JsonValue(size_of(model.find("merges"))));
  out.facts.set("added_tokens", JsonValue(size_of(document.find("added_tokens"))));
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    const JsonValue* v = document.find(part);
    const JsonValue* type = v == nullptr ? nullptr : v->find("type");
    out.facts.set(part, type == nullptr ? JsonValue() : *type);
  }
  if (size_of(model.find("vocab")) == 0)
    out.problems.push_back(out.path + ": model.vocab is empty or missing");
}

void json_facts(Inspection& out, const JsonValue& document) {
  const JsonValue* model = document.find("model");
  if (model != nullptr && model->is_object() && model->find("vocab") != nullptr) {
    tokenizer_facts(out, document);
    return;
  }
  if (document.find("model_type") != nullptr || document.find("architectures") != nullptr) {
    out.kind = PathKind::model_config;
    for (const char* key : {"model_type", "architectures", "hidden_size", "num_hidden_layers", "vocab_size",
                            "torch_dtype", "dtype"}) {
      if (const JsonValue* v = document.find(key); v != nullptr) out.facts.set(key, *v);
    }
    return;
  }
  out.kind = PathKind::json;
  out.facts.set("top", JsonValue(to_string(document.type())));
  out.facts.set("members", JsonValue(size_of(&document)));
}

void text_facts(Inspection& out, std::string_view text) {
  out.facts.set("lines", JsonValue(static_cast<std::int64_t>(std::count(text.begin(), text.end(), '\n')) +
                                   (text.empty() || text.back() == '\n' ? 0 : 1)));
  if (text.starts_with("\xEF\xBB\xBF"))
    out.notices.push_back(out.path + ": begins with a byte order mark, which is dropped");
  if (text.find("\r\n") != std::string_view::npos)
    out.notices.push_back(out.path + ": has CRLF line ends, which text keeps");
}

void inspect_jsonl(Inspection& out, std::string_view text, const InspectOptions& options) {
  out.kind = PathKind::jsonl;
  text_facts(out, text);
  if (!options.contents) return;
  constexpr std::size_t kMaxProblems = 20;
  std::int64_t records = 0;
  std::int64_t bad = 0;
  std::int64_t line_number = 0;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    ++records;
    try {
      parse_json(line, out.path, JsonOptions{.max_values = kLimits.max_values, .first_line = line_number});
    } catch (const Error& e) {
      if (out.problems.size() < kMaxProblems) out.problems.emplace_back(e.what());
      ++bad;
    }
  }
  out.facts.set("records", JsonValue(records));
  out.facts.set("bad_records", JsonValue(bad));
}

// JSON when it parses or its name says so; text when it is UTF-8; unknown otherwise.
void inspect_json_or_text(Inspection& out, std::string_view text, const InspectOptions& options) {
  const std::string_view name = out.path;
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) {
    inspect_jsonl(out, text, options);
    return;
  }
  const auto first = text.find_first_not_of(" \t\r\n");
  const bool opens = first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
  if (name.ends_with(".json") || (opens && out.bytes <= kMaxJsonBytes)) {
    std::string problem;
    try {
      json_facts(out, parse_json(text, out.path, kLimits));
      return;
    } catch (const Error& e) {
      problem = e.what();
    }
    if (name.ends_with(".json")) {
      out.kind = PathKind::json;
      out.problems.push_back(problem);
      return;
    }
  }
  const std::int64_t bad = options.contents ? find_invalid_utf8(text) : -1;
  const bool zero = text.substr(0, 4096).find('\0') != std::string_view::npos;
  if (bad >= 0 || zero) {
    const bool named_text = name.ends_with(".txt") || name.ends_with(".md");
    out.kind = named_text ? PathKind::text : PathKind::unknown;
    if (named_text)
      out.problems.push_back(bad >= 0 ? fmt::format("{}: not UTF-8 at byte {}", out.path, bad)
                                      : out.path + ": holds zero bytes");
    return;
  }
  out.kind = PathKind::text;
  text_facts(out, text);
}

bool looks_like_safetensors(const MappedFile& file) {
  if (file.path().ends_with(".safetensors")) return true;
  if (file.size() < 10) return false;
  ByteReader reader(file.bytes(), file.path());
  const std::uint64_t length = reader.u64("a length");
  return length <= static_cast<std::uint64_t>(reader.left()) && static_cast<char>(reader.u8("a byte")) == '{';
}

void inspect_file(Inspection& out, const InspectOptions& options) {
  const MappedFile file(out.path);
  out.bytes = file.size();
  if (looks_like_token_shard(file.bytes())) {
    inspect_token_shard(out, options);
  } else if (looks_like_safetensors(file)) {
    inspect_safetensors(out, options);
  } else {
    inspect_json_or_text(out, file.text(), options);
  }
}

void inspect_hf_folder(Inspection& out, const InspectOptions& options) {
  out.kind = PathKind::hf_folder;
  noting_problems(out, [&] {
    const JsonValue config = read_json_file(join_path(out.path, "config.json"), kLimits);
    for (const char* key : {"model_type", "architectures"}) {
      if (const JsonValue* v = config.find(key); v != nullptr) out.facts.set(key, *v);
    }
  });
  noting_problems(out, [&] {
    const HfFolder folder = HfFolder::open(out.path);
    TensorTally tally;
    JsonArray rows;
    for (const std::string_view name : folder.names()) {
      tally.add(folder.tensor(name));
      if (options.tensors) rows.push_back(tensor_row(folder.tensor(name)));
    }
    out.facts.set("weight_files", JsonValue(folder.shards().size()));
    tally.put(out.facts);
    out.facts.set("tensor_bytes", JsonValue(folder.tensor_bytes()));
    out.notices.insert(out.notices.end(), folder.notices().begin(), folder.notices().end());
    if (options.tensors) out.facts.set("tensors", std::move(rows));
  });
  JsonArray beside;
  for (const std::string& p : tokenizer_files(out.path)) beside.emplace_back(file_name(p));
  out.facts.set("beside", std::move(beside));
}

void inspect_checkpoint(Inspection& out, const InspectOptions& options) {
  out.kind = PathKind::checkpoint;
  noting_problems(out, [&] {
    const Manifest manifest = read_manifest(out.path);
    out.facts.set("step", JsonValue(manifest.step));
    JsonArray files;
    for (const ManifestFile& f : manifest.files) {
      JsonObject row;
      row.set("name", JsonValue(f.name));
      row.set("bytes", JsonValue(f.bytes));
      files.emplace_back(std::move(row));
    }
    out.facts.set("files", std::move(files));
    const auto problems = manifest_problems(out.path, manifest, options.contents);
    out.problems.insert(out.problems.end(), problems.begin(), problems.end());
    for (const std::string& name : list_folder(out.path)) {
      const bool listed = std::any_of(manifest.files.begin(), manifest.files.end(),
                                      [&](const ManifestFile& f) { return f.name == name; });
      if (!listed && name != kManifestName) out.notices.push_back(name + ": not in the manifest");
    }
  });
}

std::int64_t folder_bytes(const std::string& path, std::int64_t* num_files) {
  std::int64_t total = 0;
  for (const std::string& name : list_folder(path)) {
    const std::string entry = join_path(path, name);
    if (!is_regular_file(entry)) continue;
    total += file_bytes(entry);
    ++*num_files;
  }
  return total;
}

}  // namespace

Inspection inspect(const std::string& path, const InspectOptions& options) {
  Inspection out;
  out.path = path;
  if (!is_folder(path)) {
    inspect_file(out, options);
    return out;
  }
  std::int64_t num_files = 0;
  out.bytes = folder_bytes(path, &num_files);
  out.facts.set("files_in_folder", JsonValue(num_files));
  if (has_manifest(path)) {
    inspect_checkpoint(out, options);
  } else if (is_regular_file(join_path(path, "config.json"))) {
    inspect_hf_folder(out, options);
  } else {
    out.kind = PathKind::folder;
  }
  return out;
}

JsonValue to_json(const Inspection& inspection) {
  JsonObject out;
  out.set("path", JsonValue(inspection.path));
  out.set("kind", JsonValue(to_string(inspection.kind)));
  out.set("bytes", JsonValue(inspection.bytes));
  for (const JsonMember& m : inspection.facts) out.set(m.key, m.value);
  out.set("problems", JsonArray(inspection.problems.begin(), inspection.problems.end()));
  out.set("notices", JsonArray(inspection.notices.begin(), inspection.notices.end()));
  return out;
}

}  // namespace planalto
