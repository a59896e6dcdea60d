// SPDX-License-Identifier: Apache-2.0
// rope_config.h: rotary position embedding of a config.json, in either style, turned into frequencies and scales.
// Numerics    all in double; the kernels' tables are rounded from these
// Errors      config: unknown rope type, a missing or impossible value, named as in the file
// Reference   tests/golden/rope/rope.json
// Source      arXiv 2104.09864 (RoPE), 2309.00071 (YaRN), the Llama 3.1 model card's smoothed bands
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/rope.h"

namespace planalto {

class ConfigReader;
class JsonValue;

enum class RopeScaling { none, linear, dynamic, yarn, llama3 };

struct RopeConfig {
  RopeScaling scaling = RopeScaling::none;
  kernels::RopeStyle style = kernels::RopeStyle::halves;
  std::int64_t rotary_dim = 0;  // elements of a head that rotate; even
  double theta = 10000.0;
  double factor = 1.0;
  std::int64_t max_positions = 0;                        // max_position_embeddings
  std::int64_t original_max_positions = 0;               // before the scaling
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  bool truncate = true;                                  // yarn: the correction range is rounded outwards
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double cos_sin_scale = 1.0;                            // multiplies cos and sin
  double softmax_factor = 1.0;   // multiplies the softmax scale, where the attention asks for it
  std::vector<double> inv_freq;  // [rotary_dim / 2], for sequences up to max_positions
};

struct RopeRequest {
  std::int64_t head_dim = 0;       // the part of a head that may rotate (MLA: the rope part)
  std::int64_t max_positions = 0;  // max_position_embeddings
  double default_theta = 10000.0;  // when the file has none
  bool partial_allowed = false;    // partial_rotary_factor other than 1 is legal
  double default_partial = 1.0;    // partial_rotary_factor when the file has none
  kernels::RopeStyle style = kernels::RopeStyle::halves;
  bool mscale_in_softmax = false;  // softmax_factor follows mscale_all_dim; 1 otherwise
};
// Reads rope_parameters (transformers 5) or rope_theta, rope_scaling and partial_rotary_factor (transformers 4).
RopeConfig read_rope_config(ConfigReader& reader, const RopeRequest& request);
// Frequencies for sequences of this length: only the dynamic kind depends on it, and only beyond max_positions.
std::vector<double> rope_frequencies(const RopeConfig& rope, std::int64_t sequence_length);

// A bare description (a row of tests/golden/rope): widths from qk_rope_head_dim and qk_nope_head_dim (latent attention, with
// mscale in the softmax scale), else from head_dim, else from hidden_size / num_attention_heads.
struct RopeCase {
  RopeConfig rope;
  double softmax_scale = 0.0;
};
RopeCase read_rope_case(const JsonValue& config, const std::string& source);

}  // namespace planalto
