// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

namespace planalto {

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::config:
      return "config";
    case ErrorKind::data:
      return "data";
    case ErrorKind::io:
      return "io";
    case ErrorKind::memory:
      return "memory";
    case ErrorKind::comm:
      return "comm";
    case ErrorKind::device:
      return "device";
    case ErrorKind::internal:
      return "internal";
  }
  return "internal";
}

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::config:
      return 2;
    case ErrorKind::data:
      return 3;
    case ErrorKind::io:
      return 4;
    case ErrorKind::memory:
      return 5;
    case ErrorKind::comm:
      return 6;
    case ErrorKind::device:
      return 7;
    case ErrorKind::internal:
      return 70;
  }
  return 70;
}

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw Error(ErrorKind::internal,
              fmt::format("{}:{}: check `{}` failed: {}", file, line, condition, message));
}

}  // namespace planalto
