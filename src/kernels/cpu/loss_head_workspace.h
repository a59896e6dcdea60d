// SPDX-License-Identifier: Apache-2.0
// loss_head_workspace.h: where the loss head's scratch lies; read by the contract (bytes) and by the body (addresses).
// Units       bytes; each part begins on a multiple of 64
#pragma once

#include <cstdint>

namespace planalto::kernels {

struct LossHeadLayout {
  std::int64_t tile_rows;
  std::int64_t logits_stride;  // floats
  std::int64_t losses;         // double [tile_rows], behind the logits
  std::int64_t product;        // scratch of a matrix product
};

[[gnu::always_inline]] constexpr inline LossHeadLayout loss_head_layout(std::int64_t max_tokens,
                                                                        std::int64_t vocab,
                                                                        std::int64_t tile_rows) {
  LossHeadLayout l{};
  l.tile_rows = tile_rows < max_tokens ? tile_rows : max_tokens;
  l.logits_stride = (vocab + 15) / 16 * 16;
  l.losses = l.tile_rows * l.logits_stride * 4;
  l.product = l.losses + (l.tile_rows * 8 + 63) / 64 * 64;
  return l;
}

}  // namespace planalto::kernels
