// SPDX-License-Identifier: Apache-2.0
// memory_limit.h: how many bytes this process may hold resident: the machine's memory or a container's limit below it.
// Invariants  swap is not counted; of nested limits the smallest holds
// Units       bytes
#pragma once

#include <cstdint>
#include <string>

namespace planalto {

struct MemoryLimit {
  std::int64_t bytes = 0;
  std::string source;  // the file that says so, for messages and for `plan`
};

// root: a folder that stands for /; tests give one of their own.
MemoryLimit memory_limit(const std::string& root = "");

}  // namespace planalto
