// SPDX-License-Identifier: Apache-2.0
#include "model/config_reader.h"

#include "base/error.h"

namespace planalto {
namespace {

std::string shown(const JsonValue& value) {
  std::string text = write_json(value);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

ConfigReader::ConfigReader(const JsonValue& config, std::string source)
    : outer_(&config), nested_(nullptr), source_(std::move(source)) {
  if (!config.is_object()) {
    fail(ErrorKind::config, "{}: {} where a JSON object with the keys of a config.json is expected", source_,
         to_string(config.type()));
  }
  const JsonValue* nested = config.find("text_config");
  if (nested != nullptr && nested->is_object()) {
    nested_ = nested;
    source_ += " (text_config)";
  }
}

const JsonValue* ConfigReader::look_up(std::string_view key) const {
  const JsonValue* value = nested_ != nullptr ? nested_->find(key) : nullptr;
  return value != nullptr ? value : outer_->find(key);
}
const JsonValue* ConfigReader::find(std::string_view key) const {
  const JsonValue* value = look_up(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}
bool ConfigReader::holds_null(std::string_view key) const {
  const JsonValue* value = look_up(key);
  return value != nullptr && value->is_null();
}

bool ConfigReader::read(const JsonValue& value, std::string_view key, std::int64_t& out) {
  if (!require(value.is_integer(), "{} is {}; an integer is expected", key, shown(value))) return false;
  out = value.as_int64(key);
  return true;
}
bool ConfigReader::read(const JsonValue& value, std::string_view key, double& out) {
  if (!require(value.is_number(), "{} is {}; a number is expected", key, shown(value))) return false;
  out = value.as_double(key);
  return true;
}
bool ConfigReader::read(const JsonValue& value, std::string_view key, bool& out) {
  if (!require(value.is_bool(), "{} is {}; true or false is expected", key, shown(value))) return false;
  out = value.as_bool(key);
  return true;
}
bool ConfigReader::read(const JsonValue& value, std::string_view key, std::string& out) {
  if (!require(value.is_string(), "{} is {}; a string is expected", key, shown(value))) return false;
  out = value.as_string(key);
  return true;
}
bool ConfigReader::read(const JsonValue& value, std::string_view key, std::vector<std::int64_t>& out) {
  out.clear();
  if (value.is_integer()) {
    out.push_back(value.as_int64(key));
    return true;
  }
  if (!require(value.is_array(), "{} is {}; a list of integers is expected", key, shown(value))) return false;
  for (const JsonValue& element : value.as_array(key)) {
    std::int64_t number = 0;
    if (!read(element, key, number)) return false;
    out.push_back(number);
  }
  return true;
}

void ConfigReader::finish() const {
  if (mistakes_.empty()) return;
  if (mistakes_.size() == 1) fail(ErrorKind::config, "{}: {}", source_, mistakes_.front());
  std::string all;
  for (const std::string& mistake : mistakes_) all += "\n  " + mistake;
  fail(ErrorKind::config, "{}: {} mistakes:{}", source_, mistakes_.size(), all);
}

}  // namespace planalto
