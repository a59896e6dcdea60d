// SPDX-License-Identifier: Apache-2.0
// buffer.h: the named pieces of memory of a run, as data: name, dtype, shape at capacity, tier, role. No addresses here.
// Invariants  persistent buffers belong to all programs of a run and are placed once; a transient one belongs to one program.
//             slots = 2 inside a Repeat: iteration i addresses slot i mod 2
// Units       rows and cols in elements, bytes in bytes; a buffer of zero elements is legal
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace planalto {

enum class Tier : std::uint8_t { device, host, disk };
enum class Role : std::uint8_t {
  parameter,
  gradient,
  optimizer_state,
  activation,
  boundary,
  exchange,
  workspace,
  input,
  statistic
};

const char* to_string(Tier tier);
const char* to_string(Role role);

// A handle; valid in the table that made it.
struct Buffer {
  std::int32_t id = -1;
  bool valid() const { return id >= 0; }
  bool operator==(const Buffer&) const = default;
};

struct BufferInfo {
  std::string name;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 1;
  Tier tier = Tier::device;
  Role role = Role::activation;
  bool persistent = false;
  int slots = 1;
  int program = -1;  // index of the program that a transient buffer belongs to; -1: persistent

  std::int64_t elements() const { return rows * cols; }
  std::int64_t bytes() const { return elements() * dtype_bytes(dtype); }  // of one slot
};

class BufferTable {
 public:
  Buffer add(BufferInfo info);
  const BufferInfo& operator[](Buffer b) const;
  std::int64_t size() const { return static_cast<std::int64_t>(infos_.size()); }
  const std::vector<BufferInfo>& infos() const { return infos_; }
  // The persistent buffer of that name; internal error when there is none.
  Buffer find(const std::string& name) const;

 private:
  std::vector<BufferInfo> infos_;
};

}  // namespace planalto
