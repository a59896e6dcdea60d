// SPDX-License-Identifier: Apache-2.0
#include "train/run_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/toml.h"
#include "train/config_keys.h"

namespace planalto {
namespace {

std::string full_name(const ConfigKeyRow& row) {
  return fmt::format("{}.{}", row.section, row.key);
}

bool is_finite(const TomlValue& value) {
  if (value.type == TomlType::number) return std::isfinite(value.number);
  return std::all_of(value.array.begin(), value.array.end(), is_finite) &&
         std::all_of(value.table.begin(), value.table.end(),
                     [](const TomlEntry& entry) { return is_finite(entry.value); });
}

class Parser {
 public:
  Parser(const std::string& source, RunConfig& config) : config_(config), mistakes_(source) {
    config_.source = source;
    config_.model.keys = JsonObject();
  }
  void read(const std::string& text);
  void override_with(const std::string& assignment);
  void check(const RunConfigNeeds& needs);
  void finish() const { mistakes_.finish(); }

 private:
  const ConfigKeyRow* find(std::string_view section, std::string_view key) const;
  std::string suggestion(std::string_view section, std::string_view key) const;
  void unknown_key(std::int64_t line, std::string_view section, std::string_view key);
  void read_section(std::string_view section, const TomlValue& table);
  void assign(const ConfigKeyRow& row, const TomlValue& value, const std::string& origin);
  bool store(const ConfigKeyRow& row, const TomlValue& value);
  bool store_choice(const ConfigKeyRow& row, const ChoiceField& field, const TomlValue& value);
  void check_model();
  void check_data(const RunConfigNeeds& needs);
  void check_steps();
  void excludes(const std::string& given, bool wrong, const std::string& why);
  // A mistake on the line of this key, when it has one.
  void mistake(const std::string& key, std::string message) {
    mistakes_.add(line_of(key), std::move(message));
  }
  std::int64_t line_of(const std::string& key) const {
    const auto found = lines_.find(key);
    return found == lines_.end() ? 0 : found->second;
  }

  RunConfig& config_;
  Mistakes mistakes_;
  std::map<std::string, std::int64_t> lines_;
};

const ConfigKeyRow* Parser::find(std::string_view section, std::string_view key) const {
  for (const ConfigKeyRow& row : config_key_rows()) {
    if (row.section == section && row.key == key) return &row;
  }
  return nullptr;
}

// The key of the same name in another section; else the nearest by spelling, its usual names elsewhere included.
std::string Parser::suggestion(std::string_view section, std::string_view key) const {
  const ConfigKeyRow* best = nullptr;
  std::int64_t best_distance = 0;
  for (const ConfigKeyRow& row : config_key_rows()) {
    std::vector<std::string_view> names = split_words(row.aliases);
    names.push_back(row.key);
    for (const std::string_view name : names) {
      // Twice the distance, so that the own section wins a tie.
      const std::int64_t distance = 2 * edit_distance(key, name) + (row.section == section ? 0 : 1);
      if (best != nullptr && distance >= best_distance) continue;
      best = &row;
      best_distance = distance;
    }
  }
  return full_name(*best);
}

void Parser::unknown_key(std::int64_t line, std::string_view section, std::string_view key) {
  const std::string name = section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
  mistakes_.add(line, fmt::format("unknown key {}; nearest known key: {}", name, suggestion(section, key)));
}

void Parser::read(const std::string& text) {
  const TomlValue root = parse_toml(text, mistakes_);
  std::vector<std::string_view> sections;
  for (const ConfigSection& section : config_sections()) sections.push_back(section.name);
  for (const TomlEntry& entry : root.table) {
    const TomlValue& value = entry.value;
    if (value.type != TomlType::table) {
      mistakes_.add(value.line, fmt::format("{} stands outside of any section; nearest known key: {}",
                                            entry.key, suggestion("", entry.key)));
    } else if (std::find(sections.begin(), sections.end(), entry.key) == sections.end()) {
      mistakes_.add(value.line, fmt::format("unknown section [{}]; nearest known section: [{}]", entry.key,
                                            nearest_name(entry.key, sections)));
    } else {
      lines_[entry.key] = value.line;
      read_section(entry.key, value);
    }
  }
}

void Parser::read_section(std::string_view section, const TomlValue& table) {
  for (const TomlEntry& entry : table.table) {
    const std::string name = fmt::format("{}.{}", section, entry.key);
    const std::string origin = fmt::format("{}:{}", config_.source, entry.value.line);
    lines_[name] = entry.value.line;
    if (const ConfigKeyRow* row = find(section, entry.key)) {
      assign(*row, entry.value, origin);
    } else if (section == "model" && !is_finite(entry.value)) {
      mistakes_.add(entry.value.line, fmt::format("{} holds a number that is not finite", name));
    } else if (section == "model" && entry.value.type != TomlType::date) {
      config_.model.keys.as_object("model").set(entry.key, to_json(entry.value));
      config_.origins[name] = origin;
    } else {
      unknown_key(entry.value.line, section, entry.key);
    }
  }
}

void Parser::assign(const ConfigKeyRow& row, const TomlValue& value, const std::string& origin) {
  config_.origins[full_name(row)] = origin;
  if (store(row, value)) return;
  std::string shown;
  if (value.type == TomlType::array || value.type == TomlType::table || value.type == TomlType::date) {
    shown = to_string(value.type);
  } else if (value.type == TomlType::number && !std::isfinite(value.number)) {
    shown = fmt::format("{}", value.number);
  } else {
    shown = write_json(to_json(value));
  }
  mistakes_.add(value.line,
                fmt::format("{} = {}; legal: {}", full_name(row), shown, describe_range(row, config_)));
}

bool Parser::store_choice(const ConfigKeyRow& row, const ChoiceField& field, const TomlValue& value) {
  if (value.type != TomlType::string) return false;
  const auto names = split_words(row.choices);
  const auto found = std::find(names.begin(), names.end(), value.string);
  if (found == names.end()) return false;
  field.set(field.field, static_cast<int>(found - names.begin()));
  return true;
}

// False when the value is not legal. A number out of range is stored all the same, for the checks that combine keys.
bool Parser::store(const ConfigKeyRow& row, const TomlValue& value) {
  const ConfigField field = row.field(config_);
  if (const auto* choice = std::get_if<ChoiceField>(&field)) return store_choice(row, *choice, value);
  if (auto* const* integer = std::get_if<std::int64_t*>(&field)) {
    if (value.type != TomlType::integer) return false;
    **integer = value.integer;
    return row.range.contains(value.number);
  }
  if (auto* const* number = std::get_if<double*>(&field)) {
    if (value.type != TomlType::integer && value.type != TomlType::number) return false;
    **number = value.number;
    return row.range.contains(value.number);
  }
  if (auto* const* boolean = std::get_if<bool*>(&field)) {
    **boolean = value.boolean;
    return value.type == TomlType::boolean;
  }
  if (auto* const* size = std::get_if<ByteSize*>(&field)) {
    if (value.type == TomlType::integer) return parse_byte_size(std::to_string(value.integer), **size);
    return value.type == TomlType::string && parse_byte_size(value.string, **size);
  }
  if (auto* const* text = std::get_if<std::string*>(&field)) {
    **text = value.string;
    return value.type == TomlType::string;
  }
  std::vector<std::string>& list = *std::get<std::vector<std::string>*>(field);
  list.clear();
  if (value.type == TomlType::string) list.push_back(value.string);
  for (const TomlValue& element : value.array) {
    if (element.type != TomlType::string) return false;
    list.push_back(element.string);
  }
  return value.type == TomlType::string || value.type == TomlType::array;
}

void Parser::override_with(const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  const std::size_t dot = std::min(assignment.find('.'), equals);
  if (equals == std::string::npos || dot == equals) {
    mistakes_.add(0, fmt::format("--set {}: section.key=value is expected", assignment));
    return;
  }
  const std::string section = assignment.substr(0, dot);
  const std::string key = assignment.substr(dot + 1, equals - dot - 1);
  const std::string text = assignment.substr(equals + 1);
  const std::string name = section + "." + key;
  const ConfigKeyRow* row = find(section, key);
  if (row == nullptr && section != "model") {
    mistakes_.add(
        0, fmt::format("--set {}: unknown key; nearest known key: {}", name, suggestion(section, key)));
    return;
  }
  TomlValue value;
  try {
    value = parse_toml_value(text, "--set " + name);
  } catch (const Error& e) {
    // Text without quotes, as a shell leaves it.
    value.type = TomlType::string;
    value.string = text;
  }
  // A string key takes any text: 2024 may be a folder.
  if (row != nullptr && value.type != TomlType::string &&
      std::holds_alternative<std::string*>(row->field(config_))) {
    value = TomlValue{};
    value.type = TomlType::string;
    value.string = text;
  }
  lines_.erase(name);
  if (row != nullptr) {
    assign(*row, value, "--set");
  } else if (value.type != TomlType::date) {
    config_.model.keys.as_object("model").set(key, to_json(value));
    config_.origins[name] = "--set";
  }
}

void Parser::check_model() {
  const JsonObject& keys = config_.model.keys.as_object("model");
  if (!config_.model.hf.empty()) {
    for (const JsonMember& member : keys) {
      mistake("model." + member.key,
              fmt::format("model.{} and model.hf exclude each other: the model is described by {}",
                          member.key, config_.model.hf));
    }
    return;
  }
  if (config_.model.init == ModelInit::weights)
    mistake("model.init", "model.init = \"weights\" needs model.hf, the folder that holds them");
  if (keys.empty()) {
    mistake("model",
            "no model: [model] needs hf, or the keys of a config.json (model_type, hidden_size, ...)");
    return;
  }
  const std::vector<std::string_view> known = known_config_keys(config_.model.keys);
  for (const JsonMember& member : keys) {
    if (known.empty() || std::find(known.begin(), known.end(), member.key) != known.end()) continue;
    mistake("model." + member.key, fmt::format("unknown key model.{}; nearest known key: model.{}",
                                               member.key, nearest_name(member.key, known)));
  }
  try {
    read_model_config(complete_inline_config(config_.model.keys), "[model]");
  } catch (const Error& e) {
    mistake("model", e.what());
  }
}

// `given` must keep its default when `wrong` holds.
void Parser::excludes(const std::string& given, bool wrong, const std::string& why) {
  if (!wrong || !config_.given(given)) return;
  const std::size_t dot = given.find('.');
  const ConfigKeyRow* row = find(given.substr(0, dot), given.substr(dot + 1));
  RunConfig defaults;
  if (format_value(*row, config_) != format_value(*row, defaults)) mistake(given, given + " " + why);
}

void Parser::check_data(const RunConfigNeeds& needs) {
  const DataSection& data = config_.data;
  if (needs.data && data.train.empty())
    mistake("data", "data.train is missing: a file, a folder or a list of them");
  if (needs.data && config_.tokenizer_path.empty() && data.format != DataFormat::tokens) {
    mistake("tokenizer", "tokenizer.path is missing: text needs a tokenizer.json");
  }
  if (!data.eval.empty() && data.eval_fraction > 0.0) {
    mistake("data.eval_fraction", "data.eval_fraction and data.eval exclude each other");
  }
  if (config_.train.eval_every > 0 && data.eval.empty() && data.eval_fraction == 0.0) {
    mistake("train.eval_every", "train.eval_every needs held-out data: data.eval or data.eval_fraction");
  }
  excludes("data.text_field", data.format != DataFormat::jsonl, "is for data.format = \"jsonl\" only");
  excludes("data.document_separator", data.format != DataFormat::text, "is for data.format = \"text\" only");
  excludes("data.add_bos", data.format == DataFormat::tokens,
           "has no meaning for tokens that are made already");
  excludes("data.add_eos", data.format == DataFormat::tokens,
           "has no meaning for tokens that are made already");
}

void Parser::check_steps() {
  const TrainSection& train = config_.train;
  const OptimizerSection& o = config_.optimizer;
  const std::string batch = batch_mistake(train.global_batch, train.micro_batch, config_.parallel.ranks);
  if (!batch.empty())
    mistake(config_.given("train.global_batch") ? "train.global_batch" : "train.micro_batch", batch);
  if (o.warmup_steps > train.steps) {
    mistake("optimizer.warmup_steps", fmt::format("optimizer.warmup_steps = {} is more than train.steps = {}",
                                                  o.warmup_steps, train.steps));
  } else if (o.schedule != ScheduleKind::constant && o.warmup_steps + o.decay_steps > train.steps) {
    mistake("optimizer.decay_steps",
            fmt::format("optimizer.warmup_steps + decay_steps = {} + {} = {} is more than train.steps = {}",
                        o.warmup_steps, o.decay_steps, o.warmup_steps + o.decay_steps, train.steps));
  }
  excludes("optimizer.decay_steps", o.schedule == ScheduleKind::constant,
           "has no meaning with schedule = \"constant\"");
  excludes("optimizer.min_lr_ratio", o.schedule == ScheduleKind::constant,
           "has no meaning with schedule = \"constant\"");
  excludes("train.max_bad_steps", train.on_nonfinite == NonFinite::stop,
           "is for on_nonfinite = \"skip\" only");
  excludes("router.aux_coef", config_.router.aux_loss == AuxLossChoice::none, "needs router.aux_loss");
  if (config_.router.aux_loss != AuxLossChoice::none && config_.router.aux_coef == 0.0) {
    mistake("router.aux_loss", "router.aux_loss needs router.aux_coef above 0");
  }
  const std::string& router = config_.debug.router;
  const bool file = router.starts_with("replay:") || router.starts_with("record:");
  if (router != "none" && router != "balanced" && router != "all_to_one" &&
      (!file || config_.debug.router_file().empty())) {
    mistake("debug.router",
            fmt::format("debug.router = {}; legal: none, balanced, all_to_one, replay:FILE, record:FILE",
                        quote_toml(router)));
  }
}

void Parser::check(const RunConfigNeeds& needs) {
  check_model();
  check_data(needs);
  check_steps();
  if (config_.output.dir.empty())
    mistake("output.dir", "output.dir is empty; legal: a folder (\".\" is the present one)");
}

// The divisor of `n` nearest to `wanted`.
std::int64_t nearest_divisor(std::int64_t n, std::int64_t wanted) {
  std::int64_t best = 1;
  for (std::int64_t d = 1; d <= n / d; ++d) {
    if (n % d != 0) continue;
    for (const std::int64_t divisor : {d, n / d}) {
      if (std::abs(divisor - wanted) < std::abs(best - wanted)) best = divisor;
    }
  }
  return best;
}

}  // namespace

std::string batch_mistake(std::int64_t global_batch, std::int64_t micro_batch, std::int64_t ranks) {
  if (micro_batch < 1 || ranks < 1) return {};
  const std::int64_t unit = micro_batch * ranks;
  const std::int64_t whole = global_batch / unit;
  const std::int64_t rest = global_batch % unit;
  if (whole >= 1 && rest == 0) return {};
  std::string text = fmt::format(
      "train.global_batch = {} is no multiple, at least 1 x, of micro_batch x ranks = {} x {} = {}",
      global_batch, micro_batch, ranks, unit);
  if (whole >= 1) {
    text += fmt::format(" ({} = {} x {} + {}); nearest global_batch: {} or {}", global_batch, whole, unit,
                        rest, whole * unit, (whole + 1) * unit);
  } else {
    text += fmt::format("; nearest global_batch: {}", unit);
  }
  if (global_batch >= 1 && global_batch % ranks == 0) {
    text += fmt::format("; nearest micro_batch: {}", nearest_divisor(global_batch / ranks, micro_batch));
  }
  return text;
}

bool parse_byte_size(const std::string& text, ByteSize& out) {
  if (text == "auto") {
    out.bytes = 0;
    return true;
  }
  std::size_t end = 0;
  double number = 0.0;
  try {
    number = std::stod(text, &end);
  } catch (const std::exception&) {
    return false;
  }
  while (end < text.size() && text[end] == ' ') ++end;
  const std::string unit = text.substr(end);
  const std::pair<const char*, double> units[] = {
      {"", 1.0},    {"B", 1.0},      {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},    {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  for (const auto& [name, factor] : units) {
    if (unit != name) continue;
    const double bytes = std::floor(number * factor);
    if (!(bytes >= 1.0 && bytes < 0x1p60)) return false;
    out.bytes = static_cast<std::int64_t>(bytes);
    return true;
  }
  return false;
}

std::string to_string(ByteSize size) {
  if (size.automatic()) return "auto";
  for (const auto& [name, shift] : {std::pair{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}}) {
    const std::int64_t unit = std::int64_t{1} << shift;
    if (size.bytes % unit == 0) return std::to_string(size.bytes / unit) + name;
  }
  return std::to_string(size.bytes);
}

bool matches_pattern(const std::string& name, const std::string& pattern) {
  // Greedy with one way back: a mismatch lets the last star take one more character.
  std::size_t n = 0;
  std::size_t p = 0;
  std::size_t star = std::string::npos;
  std::size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool decays(const RunConfig& config, const std::string& parameter) {
  for (const std::string& pattern : config.optimizer.decay_exempt) {
    if (matches_pattern(parameter, pattern)) return false;
  }
  return true;
}

RouterDebug DebugSection::router_kind() const {
  if (router == "balanced") return RouterDebug::balanced;
  if (router == "all_to_one") return RouterDebug::all_to_one;
  if (router.starts_with("replay:")) return RouterDebug::replay;
  if (router.starts_with("record:")) return RouterDebug::record;
  return RouterDebug::none;
}
std::string DebugSection::router_file() const {
  const std::size_t colon = router.find(':');
  return colon == std::string::npos ? std::string() : router.substr(colon + 1);
}

Schedule RunConfig::schedule() const {
  return {.kind = optimizer.schedule,
          .learning_rate = optimizer.learning_rate,
          .min_ratio = optimizer.min_lr_ratio,
          .steps = train.steps,
          .warmup_steps = optimizer.warmup_steps,
          .decay_steps = optimizer.decay_steps};
}

std::string RunConfig::checkpoint_dir() const {
  return checkpoint.dir.empty() ? output.dir + "/checkpoints" : checkpoint.dir;
}
std::string RunConfig::metrics_path() const {
  return (std::filesystem::path(output.dir) / output.metrics).string();
}

ModelConfig RunConfig::model_config() const {
  ModelConfig result;
  if (model.hf.empty()) {
    result = read_model_config(complete_inline_config(model.keys), source + " [model]");
  } else {
    const std::string path = std::filesystem::is_directory(model.hf) ? model.hf + "/config.json" : model.hf;
    result = read_model_config(read_json_file(path), path);
  }
  if (train.seq_len > result.max_positions) {
    fail(ErrorKind::config, "{}: train.seq_len = {} is more than the model's max_position_embeddings = {}",
         source, train.seq_len, result.max_positions);
  }
  return result;
}

RunConfig parse_run_config(const std::string& text, const std::string& source,
                           const std::vector<std::string>& overrides, const RunConfigNeeds& needs) {
  RunConfig config;
  Parser parser(source, config);
  parser.read(text);
  for (const std::string& assignment : overrides) parser.override_with(assignment);
  parser.check(needs);
  parser.finish();
  return config;
}

RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides,
                          const RunConfigNeeds& needs) {
  const MappedFile file(path);
  return parse_run_config(std::string(file.text()), path, overrides, needs);
}

}  // namespace planalto
