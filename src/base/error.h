// SPDX-License-Identifier: Apache-2.0
// error.h: the one exception type of Planalto, its kinds, and the exit codes they map to.
// Threads     an Error that leaves a worker is stored and rethrown at the next wait; nothing escapes a thread
// Errors      messages name the setting, the value it had and what would be legal
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace planalto {

enum class ErrorKind { config, data, io, memory, comm, device, internal };

const char* to_string(ErrorKind kind);
// The exit status of the program for an error of this kind: config 2, data 3, io 4, memory 5, comm 6, device 7, internal 70.
int exit_code(ErrorKind kind);

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);

}  // namespace planalto

// A mistake of the programmer, not of the user: raises ErrorKind::internal with the place and the values given.
#define PLANALTO_CHECK(condition, ...)                                                                    \
  do {                                                                                                    \
    if (!(condition)) ::planalto::check_failed(#condition, __FILE__, __LINE__, fmt::format(__VA_ARGS__)); \
  } while (false)
