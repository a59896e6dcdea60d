// SPDX-License-Identifier: Apache-2.0
// context.h: what all modules of a model share while they emit: config, parameters, dtype, tables, options, an observer.
// Shapes      rope_table [max_positions, rotary_dim] fp32
// Threads     used by one thread, while programs are built
#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "model/parameter_set.h"
#include "ops/routing.h"

namespace planalto {

// Sees named values as they are produced (golden vectors, reports); emits what it needs to keep them.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void observe(Builder& b, const std::string& name, Buffer value, const ops::Rows& rows) = 0;
};

struct ModelOptions {
  bool training = true;    // gradients are wanted
  bool recompute = false;  // blocks keep their input alone and run forward again before their backward
  std::vector<ops::AuxLoss> aux_losses;
  std::int64_t loss_tile_rows = 0;  // 0: automatic
  bool replay_routes = false;  // expert ids come from a buffer of recorded ones, not from the router's choice
};

struct ModelContext {
  const ModelConfig* config = nullptr;
  const ParameterSet* parameters = nullptr;
  DType dtype = DType::f32;
  Buffer rope_table;
  ModelOptions options;
  // Statistics of a step (training): routes of each MoE block, and losses (see LanguageModel).
  Buffer route_totals;  // [moe blocks, E] int64
  Buffer loss_sums;     // double
  Buffer
      joined_counts;  // int64 [E]: routes of all main layers of the microbatch, when an auxiliary loss joins layers
  std::int64_t aux_loss_index = 0;
  Buffer replay_ids;    // int32 [moe blocks * microbatches * T, K] when options.replay_routes
  Buffer recorded_ids;  // the same shape; valid: the ids of the step are kept there
  std::int64_t first_microbatch = 0,
               num_microbatches = 1;  // which rows of these ids are this microbatch's
  Observer* observer = nullptr;

  void observe(Builder& b, const std::string& name, Buffer value, const ops::Rows& rows) const {
    if (observer != nullptr) observer->observe(b, name, value, rows);
  }
};

// first: outputs are observed, routes chosen and counted. again: a recompute, which reuses ids and counts nothing.
enum class Pass { first, again };

}  // namespace planalto
