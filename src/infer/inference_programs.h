// SPDX-License-Identifier: Apache-2.0
// inference_programs.h: builds the programs of a run without training: prefill and decode against a cache, evaluation of a batch.
// Shapes      ids, positions [T] int32; logits [1, V] fp32 of the last token; caches one per main layer (MLA: latents)
// Invariants  prefill and decode share parameters, caches and inputs; they differ in the capacity T of new tokens (chunk, and 1)
// Memory      buffers only; planned like training
#pragma once

#include <vector>

#include "model/language_model.h"

namespace planalto {

struct GenerateBuffers {
  Buffer ids, positions, doc_offsets, counts;  // of the new tokens
  Buffer length;      // int64 [2]: rows in the caches before, and with the new tokens
  Buffer kv_offsets;  // int32 [2]: {0, length[1]}
  Buffer last_row;    // int32 [1]: the new token whose logits are wanted
  Buffer logits;      // fp32 [1, V]
  Buffer rope_table;
};

struct GeneratePrograms {
  BufferTable table;
  ModelConfig config;
  ParameterSet parameters;
  GenerateBuffers buffers;
  std::int64_t max_len = 0, chunk = 0;
  Program prefill, decode;

  // max_len: prompt and generated tokens together; chunk: new tokens of one prefill call.
  GeneratePrograms(const ModelConfig& model, Precision precision, std::int64_t max_len, std::int64_t chunk,
                   const Target& target);
};

struct EvalBuffers {
  Buffer ids, labels, positions, doc_offsets, counts;
  Buffer loss_sums;  // double [1]: main loss of the batch, summed over labels
  Buffer rope_table;
};

struct EvalPrograms {
  BufferTable table;
  ModelConfig config;
  ParameterSet parameters;
  EvalBuffers buffers;
  Program eval;

  EvalPrograms(const ModelConfig& model, Precision precision, std::int64_t max_tokens,
               std::int64_t max_positions, const Target& target);
};

}  // namespace planalto
