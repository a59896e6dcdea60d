// SPDX-License-Identifier: Apache-2.0
// toml.h: a TOML document as a tree of our own that keeps line numbers, and the means to report many mistakes at once.
// Invariants  a table keeps the order of the file; a key that stands twice is noted as a mistake, the first one counts
// Errors      config: text that is not TOML (file:line); Mistakes::finish raises everything noted, one line each
// Units       lines count from 1; 0: not from a file
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace planalto {

class JsonValue;
struct TomlEntry;

enum class TomlType { boolean, integer, number, string, array, table, date };
const char* to_string(TomlType type);

struct TomlValue {
  TomlType type = TomlType::table;
  std::int64_t line = 0;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0.0;  // of an integer too
  std::string string;
  std::vector<TomlValue> array;
  std::vector<TomlEntry> table;

  const TomlEntry* find(std::string_view key) const;  // null: no such key, or no table
};
struct TomlEntry {
  std::string key;
  TomlValue value;
};

// What a person did wrong in a file, collected so that all of it is reported together, in the order of the lines.
class Mistakes {
 public:
  explicit Mistakes(std::string source) : source_(std::move(source)) {}
  // line 0: the message stands under the file's name alone.
  void add(std::int64_t line, std::string message) { list_.emplace_back(line, std::move(message)); }
  bool empty() const { return list_.empty(); }
  void finish() const;
  const std::string& source() const { return source_; }

 private:
  std::string source_;
  std::vector<std::pair<std::int64_t, std::string>> list_;
};

// A syntax error is noted and ends the reading: the tree holds nothing then. Duplicate keys are noted, the rest is read.
TomlValue parse_toml(std::string_view text, Mistakes& mistakes);
// A value as it stands right of "=" ("3", "[1, 2]", "\"text\""); raises config when it is not one.
TomlValue parse_toml_value(std::string_view text, std::string_view what);
// Raises config for a date: JSON has none.
JsonValue to_json(const TomlValue& value);
std::string quote_toml(std::string_view text);

// The candidate with the fewest insertions, deletions, replacements and swaps from `name`; candidates must not be empty.
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& candidates);
std::int64_t edit_distance(std::string_view a, std::string_view b);

}  // namespace planalto
