// SPDX-License-Identifier: Apache-2.0
// arguments.h: the options of a benchmark, all of the form "--name value", each with a default.
// Errors      config: an option that there is not, one without a value, a value that is not one
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace planalto::bench {

class Arguments {
 public:
  struct Option {
    std::string name, value, meaning;
  };
  // `--help` prints the options and leaves the program.
  Arguments(int argc, char** argv, const std::vector<Option>& options);

  const std::string& text(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  bool yes(const std::string& name) const;  // "yes" or "no"

  const std::string& program() const { return program_; }  // without its folder
  const std::string& command() const { return command_; }  // as it was given

 private:
  std::string program_, command_;
  std::map<std::string, std::string> values_;
};

}  // namespace planalto::bench
