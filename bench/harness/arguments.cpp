// SPDX-License-Identifier: Apache-2.0
#include "bench/harness/arguments.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace planalto::bench {

namespace {

template <class T>
T parsed(const std::string& name, const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail(ErrorKind::config, "{} is \"{}\", which is not a number", name, text);
  }
  return value;
}

[[noreturn]] void print_help(const std::string& program, const std::vector<Arguments::Option>& options) {
  fmt::print("usage: {} [--option value]...\n", program);
  for (const auto& o : options) {
    fmt::print("  {:<12} {}{}\n", o.name, o.meaning,
               o.value.empty() ? "" : fmt::format(" (default: {})", o.value));
  }
  std::exit(0);
}

}  // namespace

Arguments::Arguments(int argc, char** argv, const std::vector<Option>& options) {
  const std::string_view path = argv[0];
  program_ = path.substr(path.rfind('/') + 1);
  command_ = program_;
  std::string legal;
  for (const Option& o : options) {
    values_[o.name] = o.value;
    legal += (legal.empty() ? "" : ", ") + o.name;
  }
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--help") print_help(program_, options);
    if (!values_.contains(name)) fail(ErrorKind::config, "{} is unknown; legal: {}", name, legal);
    if (i + 1 == argc) fail(ErrorKind::config, "{} needs a value", name);
    values_[name] = argv[i + 1];
    command_ += fmt::format(" {} {}", name, argv[i + 1]);
  }
}

const std::string& Arguments::text(const std::string& name) const {
  const auto it = values_.find(name);
  PLANALTO_CHECK(it != values_.end(), "the benchmark has no option {}", name);
  return it->second;
}

std::int64_t Arguments::integer(const std::string& name) const {
  return parsed<std::int64_t>(name, text(name));
}

double Arguments::number(const std::string& name) const {
  return parsed<double>(name, text(name));
}

bool Arguments::yes(const std::string& name) const {
  const std::string& value = text(name);
  if (value != "yes" && value != "no") fail(ErrorKind::config, "{} is \"{}\"; legal: yes, no", name, value);
  return value == "yes";
}

}  // namespace planalto::bench
