// SPDX-License-Identifier: Apache-2.0
#include "train/tiny_training.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "kernels/isa.h"

namespace planalto::testing {

std::vector<std::int32_t> random_document(std::int64_t length, std::uint64_t seed) {
  const Random random(seed);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(random.bits(i) % 500);
  return tokens;
}

MemoryTokens random_documents(const std::vector<std::int64_t>& lengths, std::uint64_t seed) {
  std::vector<std::vector<std::int32_t>> documents;
  for (const std::int64_t n : lengths)
    documents.push_back(random_document(n, seed * 1000 + documents.size()));
  return MemoryTokens(std::move(documents));
}

MemoryTokens random_lengths(std::int64_t num_documents, std::uint64_t seed) {
  const Random random(seed);
  std::vector<std::int64_t> lengths;
  for (std::int64_t d = 0; d < num_documents; ++d)
    lengths.push_back(1 + static_cast<std::int64_t>(random.bits(static_cast<std::uint64_t>(d)) % 100));
  return random_documents(lengths, seed);
}

ModelConfig tiny_model(const std::string& family, const JsonObject& more) {
  std::string text = R"({"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 512, "hidden_act": "silu",
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
    "num_experts_per_tok": 2, "moe_intermediate_size": 96, "norm_topk_prob": true, "rope_theta": 10000.0,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "model_type": ")" +
                     family + "\"";
  if (family == "qwen3_moe") {
    text += R"(, "num_experts": 8, "decoder_sparse_step": 1})";
  } else {
    text += R"(, "n_routed_experts": 8, "n_shared_experts": 1, "routed_scaling_factor": 1.5, "n_group": 2,
      "topk_group": 1, "first_k_dense_replace": 0)";
    if (family == "deepseek_v3") {
      text += R"(, "q_lora_rank": 32, "kv_lora_rank": 24, "qk_nope_head_dim": 12, "qk_rope_head_dim": 4,
        "v_head_dim": 16, "topk_method": "noaux_tc", "scoring_func": "sigmoid")";
    }
    text += "}";
  }
  JsonObject keys = parse_json(text, "tiny model").as_object("tiny model");
  for (const auto& [key, value] : more) keys.set(key, value);
  return read_model_config(JsonValue(keys), "tiny model");
}

TrainerOptions tiny_options(const ModelConfig& model, const TinyRun& run) {
  TrainerOptions o;
  o.step.precision = run.precision;
  o.step.max_tokens = run.seq_len * run.micro_batch;
  o.step.num_microbatches = run.num_microbatches;
  o.step.max_positions = run.seq_len;
  o.step.loss_tile_rows = 48;
  o.step.router_bias_rate = model.moe.correction_bias ? 0.01F : 0.0F;
  o.step.clip_norm = 1.0;
  o.step.weight_decay = 0.1F;
  o.schedule = {.kind = ScheduleKind::constant, .learning_rate = 1e-2, .steps = run.steps};
  o.target = {.isa = kernels::choose_isa().isa, .num_threads = run.threads};
  o.seq_len = run.seq_len;
  o.micro_batch = run.micro_batch;
  o.steps = run.steps;
  o.seed = 7;
  o.init_seed = 7;
  o.shuffle = run.shuffle;
  o.pack = run.pack;
  return o;
}

std::vector<std::pair<std::string, Bytes>> training_state(const Trainer& trainer) {
  std::vector<std::pair<std::string, Bytes>> state;
  const BufferTable& table = trainer.programs().table;
  for (const Parameter& p : trainer.programs().parameters.all()) {
    for (const Buffer b : {p.weight, p.packed_forward, p.packed_backward, p.master, p.m, p.v}) {
      if (!b.valid()) continue;
      const auto* data = trainer.launch().data<unsigned char>(b);
      state.emplace_back(table[b].name, Bytes(data, data + table[b].bytes()));
    }
  }
  return state;
}

std::string first_difference(const Trainer& a, const Trainer& b) {
  const auto left = training_state(a), right = training_state(b);
  if (left.size() != right.size()) return "the number of buffers";
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] != right[i]) return left[i].first;
  }
  return "";
}

std::vector<float> gradient_of(const Trainer& trainer, const std::string& parameter) {
  const Parameter& p = trainer.programs().parameters.at(parameter);
  const auto* g = trainer.launch().data<float>(p.gradient);
  return {g, g + p.spec.elements()};
}

float* weight_of(const Trainer& trainer, const std::string& parameter) {
  const Parameter& p = trainer.programs().parameters.at(parameter);
  return trainer.launch().data<float>(p.master.valid() ? p.master : p.weight);
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0.0, scale = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= worst)) worst = difference;  // a NaN stays
    scale = std::max(scale, std::abs(static_cast<double>(b[i])));
  }
  return worst == 0.0 ? 0.0 : worst / scale;
}

std::pair<double, std::string> worst_gradient_error(const Trainer& a, const Trainer& b) {
  std::pair<double, std::string> worst{0.0, ""};
  for (const Parameter& p : a.programs().parameters.all()) {
    if (!p.gradient.valid()) continue;
    const double error = relative_error(gradient_of(a, p.spec.name), gradient_of(b, p.spec.name));
    if (!(error <= worst.first)) worst = {error, p.spec.name};
  }
  return worst;
}

}  // namespace planalto::testing
