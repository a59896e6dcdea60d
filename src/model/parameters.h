// SPDX-License-Identifier: Apache-2.0
// parameters.h: every parameter of a model: its name, its shape, and the tensors of a Hugging Face file that fill it.
// Shapes      matrices [rows, cols], row-major, as nn.Linear stores them (y = x W^T): [out, in]; vectors are one row
// Invariants  the pieces of one layout tile the rows of the parameter; order is that of the forward pass
// Names       block i (MTP module d is block num_layers + d) has the prefix "layers.i."; below it, by kind of block:
//             input_layernorm, post_attention_layernorm, self_attn.{q,k,v,o}_proj[.bias], self_attn.{q,k}_norm,
//             self_attn.{q_a_proj[.bias], q_a_layernorm, q_b_proj, kv_a_proj[.bias], kv_a_layernorm, kv_b_proj},
//             mlp.gate_up [2I, D] (gate rows, then up rows), mlp.down [D, I], router [E, D], router.correction_bias [E],
//             experts.gate_up [E*2F, D] (of each expert gate rows, then up rows), experts.down [E*D, F],
//             shared.gate_up, shared.down; MTP blocks also enorm, hnorm, eh_proj [D, 2D] (embedding columns first),
//             final_norm. Outside the blocks: embed_tokens [V, D], norm, lm_head [V, D] (absent when tied).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace planalto {

// stacked: the matrices of all experts, one below the other
enum class ParameterKind { matrix, vector, stacked };
// clang-format off
enum class ParameterRole { embedding, head, norm, attention, dense_mlp, router, router_bias, routed_expert, shared_expert, mtp };
// clang-format on
enum class ParameterInit { normal, ones, zeros };  // normal: mean 0, standard deviation initializer_range

// What part a tensor plays for the parameter. primary: fills it. copy: an equal second copy, written on export, may be
// missing. tied: never written; when a file has it, it must be equal.
enum class PieceUse { primary, copy, tied };
struct TensorPiece {
  std::string name;                 // in the file, with the family's usual prefix
  std::vector<std::int64_t> shape;  // in the file
  PieceUse use = PieceUse::primary;
  // Its elements, in order, are `groups` runs of `rows` rows of ours; run g begins at first_row + g * group_stride.
  std::int64_t first_row = 0, rows = 0;
  std::int64_t groups = 1, group_stride = 0;
};

struct ParameterSpec {
  std::string name;
  std::int64_t rows = 0, cols = 0;
  ParameterKind kind = ParameterKind::matrix;
  ParameterRole role = ParameterRole::attention;
  ParameterInit init = ParameterInit::normal;
  std::int64_t block = -1;       // the block it belongs to; -1: outside
  std::int64_t num_stacked = 1;  // experts in a stacked parameter, rows / num_stacked rows each
  bool trainable = true;  // false (router.correction_bias): an fp32 buffer, no gradient, no optimizer state
  bool decay_by_default = true;     // matrices yes (embedding, head and router too), vectors no
  std::vector<TensorPiece> pieces;  // the layout that an export writes
  // Layouts that are read too: [0] all experts fused in one tensor, [1] gate and up stacked apart.
  std::vector<std::vector<TensorPiece>> other_layouts;

  std::int64_t elements() const { return rows * cols; }
};

// In the order of the forward pass: embedding, blocks, norm, head, MTP blocks.
std::vector<ParameterSpec> parameter_specs(const ModelConfig& config);

// A tensor's name without "model." or "language_model." in front and ".weight" behind: what files differ in.
std::string_view bare_tensor_name(std::string_view name);
// True for tensors that a file may hold and a load may pass over: weights of MTP modules that the config does not use,
// and tables that old files store (rotary_emb.inv_freq).
bool may_ignore_tensor(const ModelConfig& config, std::string_view name);

}  // namespace planalto
