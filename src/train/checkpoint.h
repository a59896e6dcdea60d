// SPDX-License-Identifier: Apache-2.0
// checkpoint.h: saves and finds the complete state of a run; a checkpoint is also a Hugging Face model folder.
// Files       config.json, tokenizer.json and what belongs to it, model.safetensors (fp32 masters, exact names), optimizer.safetensors (m.*, v.*), and
//             manifest.json (sizes, checksums, counters, data cursor), in DIR/step-NNNNNNNN
// Invariants  a checkpoint appears with one rename after all is synced; an older one goes only after that; what is not named
//             step-<digits> is never touched, nor is a later step; what a killed save left goes with the next save
// Errors      io: needed and free bytes before anything is written; data: a damaged, foreign or incomplete checkpoint
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/batcher.h"
#include "train/weights.h"

namespace planalto {

// What a resume needs beside tensors.
struct TrainState {
  std::int64_t step = 0;  // steps taken, skipped ones included: data and schedule of the next follow from it
  std::int64_t updates = 0;  // steps that changed parameters: bias correction and schedule count these
  DataCursor cursor;
  std::int64_t tokens = 0;   // real tokens seen
  std::int64_t trained = 0;  // labels trained on
  std::int64_t skipped = 0;  // steps without an update
  std::int64_t skipped_in_row = 0;
};

// What must be equal for a resume to continue the same run, and what is only told when it differs.
struct RunIdentity {
  std::string precision, isa;
  std::int64_t threads = 1;
  std::uint64_t seed = 0;
  std::int64_t seq_len = 0, batch_rows = 0;  // batch_rows: sequences of a step
  bool shuffle = true, pack = true;
  std::uint64_t data_hash = 0, tokenizer_hash = 0;
};

// A file that is kept with the model as it is.
struct ModelFile {
  std::string name, content;
};

struct CheckpointSource {
  const ParameterSet* parameters = nullptr;
  const BufferTable* table = nullptr;
  AddressOf address;
  std::string config_text;  // of config.json
  std::vector<ModelFile> files;
};

std::string checkpoint_name(std::int64_t step);  // "step-00000100"
// Writes DIR/step-N, then removes the oldest of more than keep (keep <= 0: keeps all). Returns the folder.
std::string save_checkpoint(const std::string& dir, const CheckpointSource& source, const TrainState& state,
                            const RunIdentity& identity, std::int64_t keep);

struct CheckpointInfo {
  std::string path;
  std::int64_t step = 0;
};
// Complete checkpoints in a folder, ascending by step; folders without a readable manifest or with a file that is missing or
// too short are left out.
std::vector<CheckpointInfo> list_checkpoints(const std::string& dir);

// The newest checkpoint whose files are all there and undamaged (they are read), and what was passed over on the way.
struct LatestCheckpoint {
  std::optional<CheckpointInfo> checkpoint;
  std::vector<std::string> notices;
};
LatestCheckpoint find_latest_checkpoint(const std::string& dir);

struct LoadedCheckpoint {
  TrainState state;
  RunIdentity identity;
  std::vector<std::string> notices;
};
// Checks every file, then fills masters, compute copies and moments.
LoadedCheckpoint load_checkpoint(const std::string& path, const ModelConfig& config,
                                 const ParameterSet& parameters, const BufferTable& table,
                                 const AddressOf& address);
// Bytes that a save writes.
std::int64_t checkpoint_bytes(const ParameterSet& parameters);

}  // namespace planalto
