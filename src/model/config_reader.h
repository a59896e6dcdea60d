// SPDX-License-Identifier: Apache-2.0
// config_reader.h: typed access to the keys of a config.json that collects every mistake and reports them together.
// Invariants  a text_config inside the file is read before the keys around it
// Errors      config: raised by finish(), one line a mistake
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace planalto {

class ConfigReader {
 public:
  ConfigReader(const JsonValue& config, std::string source);

  // Null when the key is absent or null.
  const JsonValue* find(std::string_view key) const;
  // True when the key is there and its value is null.
  bool holds_null(std::string_view key) const;
  // False, with a mistake noted, when the value has another type. `key` is what the message names.
  bool read(const JsonValue& value, std::string_view key, std::int64_t& out);
  bool read(const JsonValue& value, std::string_view key, double& out);
  bool read(const JsonValue& value, std::string_view key, bool& out);
  bool read(const JsonValue& value, std::string_view key, std::string& out);
  bool read(const JsonValue& value, std::string_view key, std::vector<std::int64_t>& out);

  template <class... Args>
  void mistake(fmt::format_string<Args...> format, Args&&... args) {
    mistakes_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  // mistake(...) unless `holds`.
  template <class... Args>
  bool require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
    if (!holds) mistake(format, std::forward<Args>(args)...);
    return holds;
  }
  bool clean() const { return mistakes_.empty(); }
  void finish() const;

 private:
  const JsonValue* look_up(std::string_view key) const;

  const JsonValue* outer_;   // the whole file
  const JsonValue* nested_;  // its text_config; null: none
  std::string source_;
  std::vector<std::string> mistakes_;
};

}  // namespace planalto
