// SPDX-License-Identifier: Apache-2.0
// rope_table.h: fills the table of cosines and sines that the model's programs read.
// Shapes      table [max_positions, rotary_dim] fp32: cos of each pair, then sin
#pragma once

#include "model/rope_config.h"

namespace planalto {

void fill_rope_table(const RopeConfig& rope, std::int64_t max_positions, float* table);

}  // namespace planalto
