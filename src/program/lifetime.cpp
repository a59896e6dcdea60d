// SPDX-License-Identifier: Apache-2.0
#include "program/lifetime.h"

#include <cstddef>

namespace planalto {

bool overwrites(const Op& op, Buffer b) {
  bool result = false;
  for (const Access& a : op.accesses) {
    if (a.buffer != b) continue;
    if (a.kind != AccessKind::write) return false;
    result = true;
  }
  return result;
}

std::vector<char> lives_in_iteration(const BufferTable& table, const Program& program) {
  constexpr int kUnused = -2;
  std::vector<int> region(static_cast<std::size_t>(table.size()), kUnused);
  std::vector<char> result(region.size(), 0);
  for (const Op& op : program.ops) {
    for (const Access& a : op.accesses) {
      const std::size_t b = static_cast<std::size_t>(a.buffer.id);
      if (region[b] == kUnused) {
        region[b] = op.repeat;
        const bool local = op.repeat >= 0 && table[a.buffer].slots == 1 && !table[a.buffer].persistent;
        result[b] = local && overwrites(op, a.buffer) ? 1 : 0;
      } else if (region[b] != op.repeat) {
        result[b] = 0;
      }
    }
  }
  return result;
}

bool filled_by_caller(const BufferInfo& info, const Op& first_use, Buffer b) {
  return info.role == Role::input && !overwrites(first_use, b);
}

}  // namespace planalto
