// SPDX-License-Identifier: Apache-2.0
#include "infer/inference_programs.h"

#include "ops/linear.h"
#include "ops/rows.h"

namespace planalto {

namespace {

// Generation and evaluation know the main model alone.
ModelConfig main_model(const ModelConfig& config) {
  return with_mtp(config, 0);
}

Buffer add_buffer(BufferTable& table, const char* name, DType dtype, std::int64_t rows, std::int64_t cols,
                  Role role) {
  return table.add(
      {.name = name, .dtype = dtype, .rows = rows, .cols = cols, .role = role, .persistent = true});
}

ModelContext make_context(const ModelConfig& config, const ParameterSet& parameters, Precision precision,
                          Buffer rope_table) {
  ModelContext m;
  m.config = &config;
  m.parameters = &parameters;
  m.dtype = compute_dtype(precision);
  m.rope_table = rope_table;
  m.options.training = false;
  return m;
}

Program build_cached(GeneratePrograms& p, const std::string& name, int index, std::int64_t max_new,
                     Precision precision, const std::vector<KvCache>& caches, const Target& target) {
  Builder b(p.table, target, name, index);
  const GenerateBuffers& s = p.buffers;
  ops::Batch batch;
  batch.ids = s.ids;
  batch.positions = s.positions;
  batch.doc_offsets = s.doc_offsets;
  batch.counts = s.counts;
  batch.max_tokens = max_new;
  const ModelContext m = make_context(p.config, p.parameters, precision, s.rope_table);
  LanguageModel model(m);
  const Buffer h = model.hidden_states_cached(b, batch, caches);
  const ops::Rows one{{}, 0, 1, 1, ops::RowKind::fixed};
  const Buffer last = b.transient("last", m.dtype, 1, p.config.hidden_size);
  ops::gather_rows(b, "last_row", h, s.last_row, last, one);
  ops::linear(b, "logits", last, model.head().weight, s.logits, one);
  return b.finish();
}

}  // namespace

GeneratePrograms::GeneratePrograms(const ModelConfig& model, Precision precision, std::int64_t max_length,
                                   std::int64_t prefill_chunk, const Target& target)
    : config(main_model(model)),
      parameters(table, config, {.precision = precision}),
      max_len(max_length),
      chunk(prefill_chunk) {
  GenerateBuffers& s = buffers;
  s.ids = add_buffer(table, "input.ids", DType::i32, chunk, 1, Role::input);
  s.positions = add_buffer(table, "input.positions", DType::i32, chunk, 1, Role::input);
  s.doc_offsets = add_buffer(table, "input.doc_offsets", DType::i32, 2, 1, Role::input);
  s.counts = add_buffer(table, "input.counts", DType::i64, ops::kNumCounts, 1, Role::input);
  s.length = add_buffer(table, "input.length", DType::i64, 2, 1, Role::input);
  s.kv_offsets = add_buffer(table, "input.kv_offsets", DType::i32, 2, 1, Role::input);
  s.last_row = add_buffer(table, "input.last_row", DType::i32, 1, 1, Role::input);
  s.logits = add_buffer(table, "output.logits", DType::f32, 1, config.vocab_size, Role::statistic);
  s.rope_table =
      add_buffer(table, "rope.table", DType::f32, max_len, config.attention.rope.rotary_dim, Role::input);
  std::vector<KvCache> caches;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    caches.push_back(
        make_kv_cache(table, config, compute_dtype(precision), i, max_len, s.kv_offsets, s.length));
  }
  prefill = build_cached(*this, "prefill", 0, chunk, precision, caches, target);
  decode = build_cached(*this, "decode", 1, 1, precision, caches, target);
}

EvalPrograms::EvalPrograms(const ModelConfig& model, Precision precision, std::int64_t max_tokens,
                           std::int64_t max_positions, const Target& target)
    : config(main_model(model)), parameters(table, config, {.precision = precision}) {
  EvalBuffers& s = buffers;
  const std::int64_t t = max_tokens;
  s.ids = add_buffer(table, "input.ids", DType::i32, t, 1, Role::input);
  s.labels = add_buffer(table, "input.labels", DType::i32, t, 1, Role::input);
  s.positions = add_buffer(table, "input.positions", DType::i32, t, 1, Role::input);
  s.doc_offsets = add_buffer(table, "input.doc_offsets", DType::i32, t + 1, 1, Role::input);
  s.counts = add_buffer(table, "input.counts", DType::i64, ops::kNumCounts, 1, Role::input);
  s.loss_sums = add_buffer(table, "statistic.loss_sums", DType::f64, 1, 1, Role::statistic);
  s.rope_table = add_buffer(table, "rope.table", DType::f32, max_positions, config.attention.rope.rotary_dim,
                            Role::input);
  Builder b(table, target, "eval", 0);
  ModelContext m = make_context(config, parameters, precision, s.rope_table);
  m.loss_sums = s.loss_sums;
  ops::Batch batch;
  batch.ids = s.ids;
  batch.labels = s.labels;
  batch.positions = s.positions;
  batch.doc_offsets = s.doc_offsets;
  batch.counts = s.counts;
  batch.max_tokens = t;
  LanguageModel language_model(m);
  ops::fill_zero(b, "zero.loss_sums", s.loss_sums);
  language_model.hidden_states(b, batch);
  language_model.losses(b, batch, {});
  eval = b.finish();
}

}  // namespace planalto
