// SPDX-License-Identifier: Apache-2.0
// config_keys.h: the table of all keys of a run config.
// Invariants  every row binds to one field of RunConfig; the default is what RunConfig starts with
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/run_config.h"

namespace planalto {

// An enumeration field: value i has the name at position i of the row's `legal`, separated by spaces.
struct ChoiceField {
  void* field;
  int (*get)(const void*);
  void (*set)(void*, int);
};
using ConfigField = std::variant<std::int64_t*, double*, bool*, std::string*, std::vector<std::string>*,
                                 ByteSize*, ChoiceField>;

struct Range {
  double low = 0.0, high = 0.0;
  bool low_open = false, high_open = false;
  bool contains(double value) const {
    return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
  }
};

struct ConfigKeyRow {
  std::string_view section, key;
  ConfigField (*field)(RunConfig&);
  Range range;  // numbers
  std::string_view
      choices;  // enumerations: names separated by spaces; strings: how a value looks, for the reference
  std::string_view help;
  std::string_view aliases;  // what other programs call it, separated by spaces; leads a mistyped key here
};
std::span<const ConfigKeyRow> config_key_rows();
// Sections in the order of the table, each with a sentence.
struct ConfigSection {
  std::string_view name, help;
};
std::span<const ConfigSection> config_sections();

std::vector<std::string_view> split_words(std::string_view words);
std::string describe_range(const ConfigKeyRow& row, RunConfig& config);  // what is legal, in words
std::string format_value(const ConfigKeyRow& row, RunConfig& config);    // as TOML

}  // namespace planalto
