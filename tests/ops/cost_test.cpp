// SPDX-License-Identifier: Apache-2.0
// cost_test.cpp: flops and bytes of ops against closed forms, one op at a time and summed over the step of whole models.
#include <gtest/gtest.h>

#include <map>

#include "base/json.h"
#include "kernels/isa.h"
#include "model/counts.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/loss.h"
#include "ops/optimizer.h"
#include "ops/rows.h"
#include "train/step_program.h"

namespace planalto {
namespace {

class Costs : public ::testing::Test {
 protected:
  Costs() : builder_(table_, Target{kernels::Isa::avx2, 2}, "costs", 0) {
    batch_.max_tokens = 100;
    batch_.counts = buffer("counts", DType::i64, 4, 1);
    batch_.ids = buffer("ids", DType::i32, 100, 1);
    batch_.labels = buffer("labels", DType::i32, 100, 1);
    batch_.positions = buffer("positions", DType::i32, 100, 1);
    batch_.doc_offsets = buffer("doc_offsets", DType::i32, 101, 1);
    counts_.tokens = 60;  // of 100: costs follow what really ran
    counts_.attention_pairs = 500;
  }
  Buffer buffer(const char* name, DType dtype, std::int64_t rows, std::int64_t cols) {
    return table_.add({.name = name, .dtype = dtype, .rows = rows, .cols = cols, .persistent = true});
  }
  // The cost of the one op that was emitted.
  Cost cost() {
    const Program p = builder_.finish();
    EXPECT_EQ(p.ops.size(), 1U);
    return p.ops.at(0).cost(counts_);
  }
  void expect(double flops, double bytes) {
    const Cost c = cost();
    EXPECT_EQ(c.flops, flops);
    EXPECT_EQ(c.bytes, bytes);
    EXPECT_EQ(c.wire_bytes, 0);
  }

  BufferTable table_;
  Builder builder_;
  ops::Batch batch_;
  RunCounts counts_;
};

TEST_F(Costs, ProductForward) {
  ops::linear(builder_, "x", buffer("x", DType::bf16, 100, 8), buffer("w", DType::bf16, 6, 8),
              buffer("y", DType::bf16, 100, 6), batch_.tokens());
  expect(2.0 * 60 * 6 * 8, 60 * (8 + 6) * 2.0 + 6 * 8 * 2.0);
}

TEST_F(Costs, ProductGradInput) {
  ops::linear_grad_input(builder_, "x", buffer("dy", DType::f32, 100, 6), buffer("w", DType::f32, 6, 8),
                         buffer("dx", DType::f32, 100, 8), batch_.tokens());
  expect(2.0 * 60 * 6 * 8, 60 * (8 + 6) * 4.0 + 6 * 8 * 4.0);
}

TEST_F(Costs, ProductGradWeightReadsAndWritesWhenItAccumulates) {
  const Buffer dw = buffer("dw", DType::f32, 6, 8);
  builder_.accumulate(dw);
  ops::linear_grad_weight(builder_, "x", buffer("dy", DType::bf16, 100, 6), buffer("x", DType::bf16, 100, 8),
                          dw, batch_.tokens());
  expect(2.0 * 60 * 6 * 8, 60 * (8 + 6) * 2.0 + 2 * 6 * 8 * 4.0);
}

TEST_F(Costs, GroupedProductCountsRoutedRows) {
  ops::linear(builder_, "x", buffer("x", DType::f32, 300, 8), buffer("w", DType::f32, 4 * 6, 8),
              buffer("y", DType::f32, 300, 6), batch_.tokens().times(3), {}, false,
              {4, buffer("offsets", DType::i64, 5, 1)});
  expect(2.0 * 180 * 6 * 8, 180 * (8 + 6) * 4.0 + 4 * 6 * 8 * 4.0);
}

TEST_F(Costs, AttentionFollowsThePairsThatTheMaskKeeps) {
  ops::attention(builder_, "x",
                 {.shape = {DType::f32, 4, 2, 8, 6, 1.0, 0, 100, 100},
                  .q = {buffer("q", DType::f32, 100, 32), 8},
                  .k = {buffer("k", DType::f32, 100, 16), 8},
                  .v = {buffer("v", DType::f32, 100, 12), 6},
                  .out = {buffer("out", DType::f32, 100, 24), 6},
                  .lse = {},
                  .q_offsets = batch_.doc_offsets,
                  .kv_offsets = batch_.doc_offsets,
                  .documents = batch_.documents()});
  expect(500 * 2.0 * 4 * (8 + 6), 60 * 4.0 * (32 + 16 + 12 + 24));
}

TEST_F(Costs, LossHeadWithGradients) {
  ops::loss_head(builder_, "x", buffer("x", DType::bf16, 100, 8), buffer("w", DType::bf16, 50, 8), batch_, 32,
                 {.loss_sums = buffer("loss", DType::f64, 1, 1),
                  .index = 0,
                  .row_loss = {},
                  .grad_scales = buffer("scale", DType::f32, 1, 1),
                  .dx = buffer("dx", DType::bf16, 100, 8),
                  .dw = buffer("dw", DType::f32, 50, 8)});
  const Cost c = cost();
  EXPECT_EQ(c.flops, 6.0 * 60 * 50 * 8);
  // Tiles of 32 rows cover 60: the weights are read for logits and for dx, the gradient is written once and updated once.
  EXPECT_EQ(c.bytes, 60 * (8 + 8) * 2.0 + 2 * (2 * 50 * 8 * 2.0) + (1 + 2) * 50 * 8 * 4.0);
}

TEST_F(Costs, AdamWIsThirtyBytesAnElementWithACopy) {
  const Buffer g = buffer("g", DType::f32, 10, 10), p = buffer("p", DType::f32, 10, 10),
               m = buffer("m", DType::f32, 10, 10), v = buffer("v", DType::f32, 10, 10),
               w = buffer("w", DType::bf16, 10, 10);
  ops::adamw(builder_, "x", {g, p, m, v, w}, buffer("scalars", DType::f32, 6, 1),
             buffer("verdict", DType::u8, 32, 1), 0.1F);
  EXPECT_EQ(cost().bytes, 30.0 * 100);  // gradient 4, three states 2 x 12, copy 2
}

TEST_F(Costs, RowOps) {
  ops::rms_norm(builder_, "x", buffer("x", DType::bf16, 100, 8), buffer("w", DType::bf16, 1, 8),
                buffer("y", DType::bf16, 100, 8), {}, batch_.tokens(), {});
  EXPECT_EQ(cost().bytes, 60 * (8 + 8) * 2.0);
}

double sum_of(const Program& program, const RunCounts& counts, const std::string& kind_prefix) {
  double flops = 0;
  for (const Op& op : program.ops) {
    if (op.cost && op.kind.starts_with(kind_prefix)) flops += op.cost(counts).flops;
  }
  return flops;
}

// Every weight matrix that a token meets costs 2 flops an element forward and 4 backward, whatever the layers look like.
void expect_whole_step(const char* keys) {
  const ModelConfig config = read_model_config(parse_json(keys, "model"), "model");
  StepOptions o;
  o.max_tokens = 64;
  o.max_positions = 32;
  TrainingPrograms programs(config, o, Target{kernels::Isa::avx2, 1});
  RunCounts counts;
  counts.tokens = 64;
  counts.attention_pairs = 2 * 32 * 33 / 2.0;
  std::int64_t vectors = 0;
  for (const Parameter& p : programs.parameters.all()) {
    vectors += p.spec.trainable && p.spec.kind == ParameterKind::vector ? p.spec.elements() : 0;
  }
  const double matrices = static_cast<double>(count_parameters(config).active_without_embedding - vectors);
  EXPECT_EQ(sum_of(programs.step, counts, "grouped_gemm") + sum_of(programs.step, counts, "loss_head"),
            6.0 * 64 * matrices);
  const AttentionConfig& a = config.attention;
  const double pair = 2.0 * static_cast<double>(a.num_heads * config.num_layers) * counts.attention_pairs;
  EXPECT_EQ(sum_of(programs.step, counts, "attention_forward"),
            pair * static_cast<double>(a.qk_dim + a.v_dim));
  EXPECT_EQ(sum_of(programs.step, counts, "attention_backward"),
            pair * static_cast<double>(3 * a.qk_dim + 2 * a.v_dim));
}

TEST(StepCost, ProductsOfAWholeStepMla) {
  expect_whole_step(
      R"({"model_type": "deepseek_v3", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3,
      "first_k_dense_replace": 1, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 16,
      "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 8,
      "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1, "n_group": 2, "topk_group": 1,
      "norm_topk_prob": true, "routed_scaling_factor": 1.0, "max_position_embeddings": 64})");
}

TEST(StepCost, ProductsOfAWholeStepGqa) {
  expect_whole_step(
      R"({"model_type": "qwen3_moe", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "mlp_only_layers": [],
      "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 8,
      "num_experts_per_tok": 3, "moe_intermediate_size": 16, "norm_topk_prob": true, "decoder_sparse_step": 1,
      "max_position_embeddings": 64})");
}

}  // namespace
}  // namespace planalto
