// SPDX-License-Identifier: Apache-2.0
#include "bench/harness/operands.h"

#include <algorithm>
#include <cstring>

#include "base/random.h"

namespace planalto::bench {

Operand::Operand(DType dtype, std::int64_t rows, std::int64_t cols, std::uint64_t seed)
    : arena_(rows * cols * dtype_bytes(dtype), Tier::device), view_{arena_.data(), dtype, rows, cols, cols} {
  const std::int64_t n = rows * cols, block = std::min<std::int64_t>(n, 1 << 16);
  const Random random(seed);
  for (std::int64_t i = 0; i < block; ++i) {
    const auto v = static_cast<float>(2.0 * random.uniform(static_cast<std::uint64_t>(i)) - 1.0);
    if (dtype == DType::f32) {
      view_.row<float>(0)[i] = v;
    } else {
      view_.row<bf16>(0)[i] = to_bf16(v);
    }
  }
  for (std::int64_t done = block; done < n; done += block) {
    std::memcpy(arena_.data() + done * dtype_bytes(dtype), arena_.data(),
                static_cast<std::size_t>(std::min(block, n - done) * dtype_bytes(dtype)));
  }
}

}  // namespace planalto::bench
