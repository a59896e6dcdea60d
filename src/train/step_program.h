// SPDX-License-Identifier: Apache-2.0
// step_program.h: builds the programs of a training run: one optimizer step over M microbatches, and one evaluation batch.
// Shapes      inputs of a step: ids, labels, positions [M, T] int32, doc_offsets [M, T + 1] int32, counts [M, 3] int64,
//             aux_scale [M, 1 + MTP depths, 2] double; T = micro_batch * seq_len packed tokens
// Invariants  microbatches are first / middle (a Repeat of M - 2) / last, so the length of the program does not depend on M.
//             Labels, losses and routes are counted over all ranks of the mesh
// Memory      buffers only; eval shares the inputs and, in the arena, the transients' space
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/optimizer.h"
#include "model/language_model.h"
#include "ops/optimizer.h"
#include "parallel/mesh.h"

namespace planalto {

struct StepOptions {
  Mesh mesh{};
  Precision precision = Precision::fp32;
  std::int64_t max_tokens = 0;        // T
  std::int64_t num_microbatches = 1;  // M
  std::int64_t max_positions = 0;     // longest document piece
  bool recompute = false;
  bool packed_weights = true;  // in bf16: what products read is packed by the update, not by every product
  std::int64_t loss_tile_rows = 0;  // 0: automatic
  std::vector<ops::AuxLoss> aux_losses;
  float router_bias_rate = 0.0F;
  double clip_norm = 0.0;  // 0: off
  float weight_decay = 0.0F;
  // Which parameters decay; empty: those whose spec says so (matrices).
  std::function<bool(const ParameterSpec&)> decays;
  bool replay_routes = false;  // expert ids come from replay_ids
  bool record_routes = false;  // expert ids are kept in recorded_ids
};

// The persistent buffers that are neither parameters nor states.
struct StepBuffers {
  Buffer ids, labels, positions, doc_offsets, counts, aux_scale;
  Buffer scalars;        // kernels::AdamWScalars
  Buffer loss_weights;   // double [1 + num_mtp]: what the mean of each loss counts for
  Buffer trained;        // int64 [1 + num_mtp]: labels of each loss in this rank's step
  Buffer all_trained;    // the same of all ranks
  Buffer loss_sums;      // double [1 + num_mtp + aux losses]
  Buffer route_totals;   // int64 [moe blocks, E]
  Buffer joined_counts;  // int64 [E]; invalid when no auxiliary loss joins layers
  Buffer square_sums;    // double [trainable parameters], in order of ParameterSet
  Buffer verdict;        // ops::StepVerdict
  Buffer rope_table;     // fp32 [max_positions, rotary_dim]
  Buffer replay_ids;     // int32 [moe blocks * M * T, K]; invalid without replay
  Buffer
      recorded_ids;  // the same, of the last step, -1 in rows without a token; invalid unless they are recorded
};

struct TrainingPrograms {
  BufferTable table;
  ModelConfig config;
  ParameterSet parameters;
  StepBuffers buffers;
  std::vector<std::string> square_sum_names;  // parameter names by index of square_sums
  Program step, eval;
  Program refresh;  // packs the weights from their masters; without ops when nothing is packed

  TrainingPrograms(const ModelConfig& model, const StepOptions& options, const Target& target,
                   Observer* observer = nullptr);
  // What is placed and launched together.
  std::vector<const Program*> all() const;
};

}  // namespace planalto
