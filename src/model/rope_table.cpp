// SPDX-License-Identifier: Apache-2.0
#include "model/rope_table.h"

namespace planalto {

void fill_rope_table(const RopeConfig& rope, std::int64_t max_positions, float* table) {
  const std::vector<double> frequencies = rope_frequencies(rope, max_positions);
  kernels::rope_table({.inv_freq = frequencies.data(),
                       .half = rope.rotary_dim / 2,
                       .scale = rope.cos_sin_scale,
                       .max_positions = max_positions,
                       .table = table});
}

}  // namespace planalto
