// SPDX-License-Identifier: Apache-2.0
// router_blocks.h: the fixed blocks of tokens over which an auxiliary loss keeps its partial sums.
#pragma once

#include <cstdint>

namespace planalto::kernels {

constexpr std::int64_t kAuxBlockTokens = 64;

[[gnu::always_inline]] constexpr inline std::int64_t num_aux_blocks(std::int64_t tokens) {
  return (tokens + kAuxBlockTokens - 1) / kAuxBlockTokens;
}

}  // namespace planalto::kernels
