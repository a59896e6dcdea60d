// SPDX-License-Identifier: Apache-2.0
#include "program/buffer.h"

#include <utility>

#include "base/error.h"

namespace planalto {

const char* to_string(Tier tier) {
  switch (tier) {
    case Tier::device:
      return "device";
    case Tier::host:
      return "host";
    case Tier::disk:
      return "disk";
  }
  return "?";
}

const char* to_string(Role role) {
  switch (role) {
    case Role::parameter:
      return "parameter";
    case Role::gradient:
      return "gradient";
    case Role::optimizer_state:
      return "optimizer_state";
    case Role::activation:
      return "activation";
    case Role::boundary:
      return "boundary";
    case Role::exchange:
      return "exchange";
    case Role::workspace:
      return "workspace";
    case Role::input:
      return "input";
    case Role::statistic:
      return "statistic";
  }
  return "?";
}

Buffer BufferTable::add(BufferInfo info) {
  PLANALTO_CHECK(info.rows >= 0 && info.cols >= 0, "buffer {} has shape [{}, {}]", info.name, info.rows,
                 info.cols);
  PLANALTO_CHECK(info.slots == 1 || info.slots == 2, "buffer {} has {} slots", info.name, info.slots);
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(info.rows, info.cols, &bytes) ||
      __builtin_mul_overflow(bytes, dtype_bytes(info.dtype), &bytes)) {
    fail(ErrorKind::memory, "buffer {} of {} x {} elements has more than 2^63 bytes", info.name, info.rows,
         info.cols);
  }
  infos_.push_back(std::move(info));
  return Buffer{static_cast<std::int32_t>(infos_.size() - 1)};
}

const BufferInfo& BufferTable::operator[](Buffer b) const {
  PLANALTO_CHECK(b.id >= 0 && b.id < size(), "buffer id {} of a table of {}", b.id, size());
  return infos_[static_cast<std::size_t>(b.id)];
}

Buffer BufferTable::find(const std::string& name) const {
  for (std::int64_t i = 0; i < size(); ++i) {
    const BufferInfo& info = infos_[static_cast<std::size_t>(i)];
    if (info.persistent && info.name == name) return Buffer{static_cast<std::int32_t>(i)};
  }
  fail(ErrorKind::internal, "no persistent buffer is named {}", name);
}

}  // namespace planalto
