// SPDX-License-Identifier: Apache-2.0
// program_maker.h: programs for tests in a few lines: named ops with their accesses, on named streams.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "program/builder.h"

namespace planalto::testing {

inline Access reads(Buffer b, int shift = 0) {
  return {b, AccessKind::read, shift};
}
inline Access writes(Buffer b, int shift = 0) {
  return {b, AccessKind::write, shift};
}
inline Access updates(Buffer b, int shift = 0) {
  return {b, AccessKind::update, shift};
}

class ProgramMaker {
 public:
  explicit ProgramMaker(int index = 0, std::string name = "test")
      : builder(table_, {}, std::move(name), index) {}
  ProgramMaker(BufferTable& table, int index, std::string name)
      : builder(table, {}, std::move(name), index) {}

  // Kept whatever it writes, so that a test sees the ops that it emitted.
  void op(
      const std::string& stream, const std::string& name, std::vector<Access> accesses,
      std::function<void(const RunContext&)> run = [](const RunContext&) {}) {
    builder.set_stream(builder.stream(stream));
    Op o;
    o.name = name;
    o.kind = "test";
    o.accesses = std::move(accesses);
    o.run = std::move(run);
    o.keep = true;
    builder.emit(std::move(o));
  }

  Buffer bytes(const std::string& name, std::int64_t count, Role role = Role::activation) {
    return builder.transient(name, DType::u8, count, 1, role);
  }
  Buffer persistent(const std::string& name, DType dtype, std::int64_t rows, Role role = Role::parameter) {
    return table().add({.name = name, .dtype = dtype, .rows = rows, .role = role, .persistent = true});
  }
  BufferTable& table() { return const_cast<BufferTable&>(builder.table()); }

 private:
  BufferTable table_;

 public:
  Builder builder;
};

}  // namespace planalto::testing
