// SPDX-License-Identifier: Apache-2.0
// config_print.cpp: the effective config as TOML with origins, and the reference page.
#include <fmt/core.h>

#include "base/toml.h"
#include "train/config_keys.h"

namespace planalto {
namespace {

std::string toml_of(const JsonValue& value) {
  if (value.is_array()) {
    std::string all;
    for (const JsonValue& element : value.as_array("model"))
      all += (all.empty() ? "" : ", ") + toml_of(element);
    return "[" + all + "]";
  }
  if (value.is_object()) {
    std::string all;
    for (const JsonMember& member : value.as_object("model")) {
      all += (all.empty() ? "" : ", ") + quote_toml(member.key) + " = " + toml_of(member.value);
    }
    return "{" + all + "}";
  }
  return value.is_string() ? quote_toml(value.as_string("model")) : write_json(value);
}

std::string line(const std::string& assignment, const std::string& origin) {
  return fmt::format("{:<44} # {}\n", assignment, origin);
}

}  // namespace

std::string print_config(const RunConfig& config) {
  RunConfig copy = config;  // rows bind to fields that can be written
  const auto origin = [&](const std::string& name) {
    const auto found = config.origins.find(name);
    return found == config.origins.end() ? std::string("default") : found->second;
  };
  std::string text;
  for (const ConfigSection& section : config_sections()) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section.name);
    for (const ConfigKeyRow& row : config_key_rows()) {
      if (row.section != section.name) continue;
      // A file that has keys of its own in [model] cannot name hf.
      if (row.key == "hf" && copy.model.hf.empty()) continue;
      text += line(fmt::format("{} = {}", row.key, format_value(row, copy)),
                   origin(fmt::format("{}.{}", row.section, row.key)));
    }
    if (section.name != "model") continue;
    for (const JsonMember& member : config.model.keys.as_object("model")) {
      text += line(fmt::format("{} = {}", member.key, toml_of(member.value)), origin("model." + member.key));
    }
  }
  return text;
}

std::string config_reference() {
  RunConfig defaults;
  std::string text =
      "# The run config\n\n"
      "A run is described by one TOML file. Reading is strict: an unknown key or section, a value of another "
      "type or out of\n"
      "range, a key that stands twice and keys that contradict each other are errors, all reported together "
      "with their lines.\n"
      "`--set section.key=value` on the command line wins over the file; strings need no quotes there.\n"
      "`planalto train CONFIG.toml --print-config` shows every value and where it came from.\n\n"
      "This page is generated from the table in `src/train/config_keys.cpp`; a test keeps it current.\n";
  for (const ConfigSection& section : config_sections()) {
    text += fmt::format("\n## [{}]\n\n{}\n\n| key | legal | default | meaning |\n| --- | --- | --- | --- |\n",
                        section.name, section.help);
    for (const ConfigKeyRow& row : config_key_rows()) {
      if (row.section != section.name) continue;
      text += fmt::format("| `{}` | {} | `{}` | {} |\n", row.key, describe_range(row, defaults),
                          format_value(row, defaults), row.help);
    }
  }
  return text;
}

}  // namespace planalto
