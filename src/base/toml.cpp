// SPDX-License-Identifier: Apache-2.0
#include "base/toml.h"

#include <algorithm>
#include <stdexcept>

// Some malformed headers ("[.]") break an assertion of the parser: a file must not end the process.
#define TOML_ASSERT(condition)                        \
  do {                                                \
    if (!(condition)) throw std::logic_error("TOML"); \
  } while (false)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wterminate"
#include <toml++/toml.h>
#pragma GCC diagnostic pop

#include "base/error.h"
#include "base/json.h"

namespace planalto {
namespace {

// A key that stands twice is renamed to this and a number, so that reading goes on behind it.
constexpr std::string_view kDuplicate = "planalto duplicate ";

bool is_duplicate(std::string_view key) {
  return key.starts_with(kDuplicate);
}

TomlValue convert(const toml::node& node);

std::int64_t line_of(const toml::source_region& source) {
  return static_cast<std::int64_t>(source.begin.line);
}

void convert_table(const toml::table& table, TomlValue& out) {
  out.type = TomlType::table;
  // The library sorts by name; the file's order is what a person expects to see again.
  std::vector<std::pair<const toml::key*, const toml::node*>> entries;
  for (const auto& [key, node] : table) entries.emplace_back(&key, &node);
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.first->source().begin < b.first->source().begin;
  });
  for (const auto& [key, node] : entries) {
    if (is_duplicate(key->str())) continue;
    TomlValue value = convert(*node);
    value.line = line_of(key->source());
    out.table.push_back({std::string(key->str()), std::move(value)});
  }
}

TomlValue convert(const toml::node& node) {
  TomlValue out;
  out.line = line_of(node.source());
  if (const auto* table = node.as_table()) {
    convert_table(*table, out);
  } else if (const auto* array = node.as_array()) {
    out.type = TomlType::array;
    for (const toml::node& element : *array) out.array.push_back(convert(element));
  } else if (const auto* text = node.as_string()) {
    out.type = TomlType::string;
    out.string = text->get();
  } else if (const auto* integer = node.as_integer()) {
    out.type = TomlType::integer;
    out.integer = integer->get();
    out.number = static_cast<double>(out.integer);
  } else if (const auto* number = node.as_floating_point()) {
    out.type = TomlType::number;
    out.number = number->get();
  } else if (const auto* boolean = node.as_boolean()) {
    out.type = TomlType::boolean;
    out.boolean = boolean->get();
  } else {
    out.type = TomlType::date;
  }
  return out;
}

// Where line `number` (from 1) begins and how long it is.
std::pair<std::size_t, std::size_t> line_range(const std::string& text, std::int64_t number) {
  std::size_t begin = 0;
  for (std::int64_t i = 1; i < number && begin != std::string::npos; ++i) {
    begin = text.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos) return {text.size(), 0};
  return {begin, std::min(text.find('\n', begin), text.size()) - begin};
}

// Gives the key or table header on this line a name of its own. Empty, or what stood there.
std::string rename_duplicate(std::string& text, std::int64_t line, std::size_t count) {
  const auto [begin, length] = line_range(text, line);
  const std::string content = text.substr(begin, length);
  const std::size_t first = content.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  const std::string name = "\"" + std::string(kDuplicate) + std::to_string(count) + "\"";
  const std::size_t end = content[first] == '[' ? content.find_last_of(']') : content.find('=');
  if (end == std::string::npos || end <= first) return {};
  std::string old = content.substr(first, end - first);
  if (content[first] == '[') {
    text.replace(begin, length, "[" + name + "]");
    return old + "]";
  }
  text.replace(begin + first, end - first, name + " ");
  while (old.ends_with(' ') || old.ends_with('\t')) old.pop_back();
  return old;
}

// Dotted keys nest one table a part, which the parser and its tables walk by recursion.
constexpr std::int64_t kMaxParts = 128;

// The line of the first key of more parts than that, or 0: names and dots in turn. Dots in a row, as in comments, are no key.
std::int64_t line_of_long_key(std::string_view text) {
  std::int64_t line = 1, dots = 0;
  bool after_name = false;
  for (const char c : text) {
    if (c == ' ' || c == '\t') continue;
    if (c == '\n') ++line;
    const bool name = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '-' || c == '"' || c == '\'';
    if (c == '.') {
      dots = after_name ? dots + 1 : 0;
    } else if (!name) {
      dots = 0;
    }
    after_name = name;
    if (dots >= kMaxParts) return line;
  }
  return 0;
}

// The first line with which the text cannot be parsed because an assertion of the parser breaks.
std::int64_t line_of_broken_assertion(std::string_view text) {
  constexpr std::int64_t kMostLines = 4096;
  std::int64_t line = 0;
  for (std::size_t end = 0; end < text.size() && line < kMostLines;) {
    const std::size_t next = text.find('\n', end);
    end = next == std::string_view::npos ? text.size() : next + 1;
    ++line;
    try {
      (void)toml::parse(text.substr(0, end));
    } catch (const std::logic_error&) {
      return line;
    } catch (const toml::parse_error&) {
      continue;  // cut in the middle of a value
    }
  }
  return 0;
}

std::size_t distance_step(std::size_t remove, std::size_t insert, std::size_t replace) {
  return std::min({remove, insert, replace});
}

}  // namespace

const char* to_string(TomlType type) {
  switch (type) {
    case TomlType::boolean:
      return "true or false";
    case TomlType::integer:
      return "an integer";
    case TomlType::number:
      return "a number";
    case TomlType::string:
      return "a string";
    case TomlType::array:
      return "a list";
    case TomlType::table:
      return "a table";
    case TomlType::date:
      return "a date";
  }
  return "?";
}

const TomlEntry* TomlValue::find(std::string_view key) const {
  for (const TomlEntry& entry : table) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

void Mistakes::finish() const {
  if (list_.empty()) return;
  auto sorted = list_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string all;
  for (const auto& [line, message] : sorted) {
    if (!all.empty()) all += '\n';
    all +=
        line > 0 ? fmt::format("{}:{}: {}", source_, line, message) : fmt::format("{}: {}", source_, message);
  }
  throw Error(ErrorKind::config, all);
}

TomlValue parse_toml(std::string_view text, Mistakes& mistakes) {
  constexpr std::size_t kMaxDuplicates = 100;
  std::string edited(text);
  if (const std::int64_t line = line_of_long_key(text)) {
    mistakes.add(line, fmt::format("not TOML that is read here: a key of more than {} parts", kMaxParts));
    return {};
  }
  for (std::size_t count = 0;; ++count) {
    try {
      return convert(toml::parse(std::string_view(edited), std::string_view(mistakes.source())));
    } catch (const toml::parse_error& e) {
      const std::string description(e.description());
      const std::int64_t line = line_of(e.source());
      const bool duplicate = description.find("cannot redefine existing") != std::string::npos;
      const std::string key =
          duplicate && count < kMaxDuplicates ? rename_duplicate(edited, line, count) : std::string();
      if (key.empty()) {
        mistakes.add(line, fmt::format("not TOML: {} (column {})", description, e.source().begin.column));
        return {};
      }
      mistakes.add(line, fmt::format("{} stands twice", key));
    } catch (const std::logic_error&) {
      mistakes.add(line_of_broken_assertion(edited), "not TOML: a key or the name of a table is missing");
      return {};
    }
  }
}

TomlValue parse_toml_value(std::string_view text, std::string_view what) {
  if (text.find('\n') != std::string_view::npos || line_of_long_key(text) != 0)
    fail(ErrorKind::config, "{}: the value is not one line of TOML", what);
  try {
    const toml::table table =
        toml::parse(std::string_view("value = " + std::string(text)), std::string_view("value"));
    const toml::node* node = table.get("value");
    if (table.size() == 1 && node != nullptr) {
      TomlValue value = convert(*node);
      value.line = 0;
      return value;
    }
  } catch (const toml::parse_error& e) {
    fail(ErrorKind::config, "{}: \"{}\" is not a value: {}", what, text, e.description());
  } catch (const std::logic_error&) {
    fail(ErrorKind::config, "{}: \"{}\" is not a value", what, text);
  }
  fail(ErrorKind::config, "{}: \"{}\" is not one value", what, text);
}

JsonValue to_json(const TomlValue& value) {
  switch (value.type) {
    case TomlType::boolean:
      return value.boolean;
    case TomlType::integer:
      return value.integer;
    case TomlType::number:
      return value.number;
    case TomlType::string:
      return value.string;
    case TomlType::array: {
      JsonArray array;
      for (const TomlValue& element : value.array) array.push_back(to_json(element));
      return array;
    }
    case TomlType::table: {
      JsonObject object;
      for (const TomlEntry& entry : value.table) object.set(entry.key, to_json(entry.value));
      return object;
    }
    case TomlType::date:
      break;
  }
  fail(ErrorKind::config, "line {}: a date stands where a value is expected", value.line);
}

std::string quote_toml(std::string_view text) {
  // A JSON string is a TOML basic string but for DEL, which TOML wants escaped.
  std::string quoted = quote_json(text);
  for (std::size_t at = quoted.find('\x7f'); at != std::string::npos; at = quoted.find('\x7f', at)) {
    quoted.replace(at, 1, "\\u007F");
  }
  return quoted;
}

std::int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = distance_step(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return static_cast<std::int64_t>(last[b.size()]);
}

std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& candidates) {
  PLANALTO_CHECK(!candidates.empty(), "no candidates for {}", name);
  std::string_view best = candidates.front();
  for (const std::string_view candidate : candidates) {
    if (edit_distance(name, candidate) < edit_distance(name, best)) best = candidate;
  }
  return best;
}

}  // namespace planalto
