// SPDX-License-Identifier: Apache-2.0
// operands.h: matrices in huge pages, as the engine's own arenas have them, filled with numbers.
// Numerics    uniform in [-1, 1); a block of 64 Ki numbers over and over
#pragma once

#include "base/view.h"
#include "runtime/arena.h"

namespace planalto::bench {

class Operand {
 public:
  Operand() = default;
  Operand(DType dtype, std::int64_t rows, std::int64_t cols, std::uint64_t seed);
  explicit Operand(std::int64_t bytes) : arena_(bytes, Tier::device) {}  // not filled

  Matrix view() const { return view_; }
  void* data() const { return arena_.data(); }
  Workspace workspace() const { return {arena_.data(), arena_.bytes()}; }
  std::int64_t bytes() const { return arena_.bytes(); }

 private:
  Arena arena_;
  Matrix view_;
};

}  // namespace planalto::bench
