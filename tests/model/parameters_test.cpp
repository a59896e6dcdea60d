// SPDX-License-Identifier: Apache-2.0
// parameters_test.cpp: the parameter list against the tensors of the golden files, and the closed-form counts.
#include "model/parameters.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>

#include "base/json.h"
#include "model/counts.h"

namespace planalto {
namespace {

std::string golden(const std::string& path) {
  return std::string(PLANALTO_GOLDEN) + "/" + path;
}
ModelConfig golden_config(const std::string& path) {
  return read_model_config(read_json_file(golden(path)), path);
}

using Shape = std::vector<std::int64_t>;
std::map<std::string, Shape> tensors_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string header(length, '\0');
  file.read(header.data(), static_cast<std::streamsize>(length));
  const JsonValue json = parse_json(header, path);
  std::map<std::string, Shape> tensors;
  for (const JsonMember& member : json.as_object(path)) {
    if (member.key == "__metadata__") continue;
    for (const JsonValue& extent : member.value.at("shape", path).as_array(path)) {
      tensors[member.key].push_back(extent.as_int64(path));
    }
  }
  return tensors;
}

// Each row of the parameter is filled exactly once by the primary pieces of a layout, and shapes hold as many elements.
void expect_tiles(const ParameterSpec& p, const std::vector<TensorPiece>& pieces) {
  std::vector<int> filled(static_cast<std::size_t>(p.rows), 0);
  for (const TensorPiece& piece : pieces) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : piece.shape) elements *= extent;
    EXPECT_EQ(elements, piece.groups * piece.rows * p.cols) << piece.name;
    if (piece.use != PieceUse::primary) continue;
    for (std::int64_t g = 0; g < piece.groups; ++g) {
      for (std::int64_t r = 0; r < piece.rows; ++r) ++filled.at(piece.first_row + g * piece.group_stride + r);
    }
  }
  EXPECT_EQ(filled, std::vector<int>(static_cast<std::size_t>(p.rows), 1)) << p.name;
}

TEST(Parameters, NamesAndShapesAreThoseOfTheFiles) {
  for (const char* name : {"deepseek_v3-a", "deepseek_v3_mtp-a", "qwen3_moe-a", "glm4_moe-a"}) {
    const ModelConfig config = golden_config(std::string(name) + "/config.json");
    std::map<std::string, Shape> expected;
    for (const ParameterSpec& p : parameter_specs(config)) {
      expect_tiles(p, p.pieces);
      for (const auto& layout : p.other_layouts) expect_tiles(p, layout);
      for (const TensorPiece& piece : p.pieces) {
        EXPECT_TRUE(expected.emplace(piece.name, piece.shape).second) << piece.name << " twice";
      }
    }
    EXPECT_EQ(expected, tensors_of(golden(std::string(name) + "/model.safetensors"))) << name;
  }
}

const ParameterSpec& find(const std::vector<ParameterSpec>& specs, const std::string& name) {
  for (const ParameterSpec& p : specs) {
    if (p.name == name) return p;
  }
  ADD_FAILURE() << "no parameter " << name;
  return specs.front();
}

TEST(Parameters, StackedExpertsHoldGateThenUpRows) {
  const auto specs = parameter_specs(golden_config("qwen3_moe-a/config.json"));
  const ParameterSpec& p = find(specs, "layers.1.experts.gate_up");
  EXPECT_EQ(p.rows, 8 * 2 * 17);
  EXPECT_EQ(p.cols, 48);
  EXPECT_EQ(p.num_stacked, 8);
  EXPECT_EQ(p.pieces[7].name, "model.layers.1.mlp.experts.3.up_proj.weight");
  EXPECT_EQ(p.pieces[7].first_row, 3 * 34 + 17);
  EXPECT_EQ(p.other_layouts[0][0].shape, (Shape{8, 34, 48}));
  EXPECT_EQ(p.other_layouts[1][1].first_row, 17);
  EXPECT_EQ(p.other_layouts[1][1].group_stride, 34);
}

TEST(Parameters, OrderFollowsTheForwardPassAndVectorsDoNotDecay) {
  const auto specs = parameter_specs(golden_config("deepseek_v3_mtp-a/config.json"));
  EXPECT_EQ(specs.front().name, "embed_tokens");
  EXPECT_EQ(specs.back().name, "layers.3.final_norm");
  for (const ParameterSpec& p : specs) {
    EXPECT_EQ(p.decay_by_default, p.kind != ParameterKind::vector) << p.name;
    EXPECT_EQ(p.trainable, p.role != ParameterRole::router_bias) << p.name;
  }
  EXPECT_EQ(find(specs, "layers.2.input_layernorm").init, ParameterInit::ones);
  // One parameter each: the module's embedding and head are copies.
  EXPECT_EQ(find(specs, "embed_tokens").pieces.at(2).name, "model.layers.3.embed_tokens.weight");
  EXPECT_EQ(find(specs, "embed_tokens").pieces.at(2).use, PieceUse::copy);
  EXPECT_EQ(find(specs, "lm_head").pieces.at(1).name, "model.layers.2.shared_head.head.weight");
}

TEST(Parameters, C071TiedHeadIsNoParameter) {
  ModelConfig config = golden_config("qwen3_moe-a/config.json");
  const ParameterCounts untied = count_parameters(config);
  config.tie_embeddings = true;
  const auto specs = parameter_specs(config);
  for (const ParameterSpec& p : specs) EXPECT_NE(p.name, "lm_head");
  EXPECT_EQ(specs.front().pieces.at(1).name, "lm_head.weight");
  EXPECT_EQ(specs.front().pieces.at(1).use, PieceUse::tied);
  const ParameterCounts tied = count_parameters(config);
  EXPECT_EQ(tied.head, 0);
  EXPECT_EQ(tied.total, untied.total - 151 * 48);
  EXPECT_EQ(tied.active_without_embedding, untied.active_without_embedding);
}

TEST(Parameters, TensorsThatALoadMayPassOver) {
  const ModelConfig config = golden_config("deepseek_v3-a/config.json");
  EXPECT_TRUE(may_ignore_tensor(config, "model.layers.3.eh_proj.weight"));
  EXPECT_TRUE(may_ignore_tensor(config, "model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(may_ignore_tensor(config, "model.layers.2.eh_proj.weight"));
  EXPECT_FALSE(may_ignore_tensor(config, "model.layers.99x.weight"));
  EXPECT_FALSE(may_ignore_tensor(config, "model.norm.weight"));
  EXPECT_EQ(bare_tensor_name("model.language_model.layers.0.mlp.gate.weight"), "layers.0.mlp.gate");
  EXPECT_EQ(bare_tensor_name("lm_head.weight"), "lm_head");
  EXPECT_EQ(bare_tensor_name("model.layers.0.self_attn.q_proj.bias"), "layers.0.self_attn.q_proj.bias");
}

// Sums over the parameter list, by role.
ParameterCounts summed(const ModelConfig& config) {
  ParameterCounts n;
  for (const ParameterSpec& p : parameter_specs(config)) {
    const bool mtp = p.block >= config.num_layers;
    if (p.role == ParameterRole::router_bias) {
      if (!mtp) n.router_bias += p.elements();
      continue;
    }
    (mtp ? n.mtp : n.total) += p.elements();
    if (!mtp && p.role == ParameterRole::routed_expert) n.routed += p.elements();
    if (p.role == ParameterRole::embedding) n.embedding += p.elements();
    if (p.role == ParameterRole::head) n.head += p.elements();
  }
  return n;
}

TEST(Counts, GoldenCountsAndTheParameterListAgree) {
  const JsonValue expected = read_json_file(golden("configs/counts.json"));
  for (const JsonMember& model : expected.as_object("counts.json")) {
    const ModelConfig config = golden_config("configs/" + model.key + "/config.json");
    const ParameterCounts n = count_parameters(config);
    const std::map<std::string, std::int64_t> ours = {
        {"total", n.total},
        {"routed", n.routed},
        {"embedding", n.embedding},
        {"head", n.head},
        {"active_with_embedding", n.active_with_embedding},
        {"active_without_embedding", n.active_without_embedding},
        {"layers", n.layers},
        {"moe_layers", n.moe_layers},
        {"router_bias", n.router_bias},
        {"mtp", n.mtp}};
    std::map<std::string, std::int64_t> theirs;
    for (const JsonMember& count : model.value.as_object(model.key))
      theirs[count.key] = count.value.as_int64(count.key);
    EXPECT_EQ(ours, theirs) << model.key;
  }
  for (const char* name : {"configs/DeepSeek-V3", "configs/Qwen3-30B-A3B", "configs/GLM-4.5-Air",
                           "deepseek_v3_mtp-a", "qwen3_moe-a", "glm4_moe-a"}) {
    const ModelConfig config = golden_config(std::string(name) + "/config.json");
    const ParameterCounts n = count_parameters(config);
    const ParameterCounts sum = summed(config);
    EXPECT_EQ(n.total, sum.total) << name;
    EXPECT_EQ(n.routed, sum.routed) << name;
    EXPECT_EQ(n.embedding, sum.embedding) << name;
    EXPECT_EQ(n.head, sum.head) << name;
    EXPECT_EQ(n.mtp, sum.mtp) << name;
    EXPECT_EQ(n.router_bias, sum.router_bias) << name;
  }
}

// Options that no golden file has: biases of latent attention, no query rank, several shared experts.
TEST(Counts, OptionsAgreeWithTheParameterList) {
  for (const bool bias : {false, true}) {
    for (const std::int64_t rank : {0, 20}) {
      JsonValue json = read_json_file(golden("deepseek_v3_mtp-a/config.json"));
      json.as_object("config").set("attention_bias", bias);
      json.as_object("config").set("q_lora_rank", rank);
      json.as_object("config").set("n_shared_experts", 2);
      const ModelConfig config = read_model_config(json, "config.json");
      EXPECT_EQ(count_parameters(config).total, summed(config).total) << bias << rank;
      EXPECT_EQ(count_parameters(config).mtp, summed(config).mtp) << bias << rank;
    }
  }
  JsonValue json = read_json_file(golden("qwen3_moe-a/config.json"));
  json.as_object("config").set("attention_bias", true);
  const ModelConfig config = read_model_config(json, "config.json");
  EXPECT_EQ(count_parameters(config).total, summed(config).total);
}

// At 8 ranks an expert-parallel rank would hold 1/8 of the routed experts beside everything else.
TEST(Counts, C041RoutedAndReplicatedParameters) {
  const ParameterCounts n = count_parameters(golden_config("configs/Qwen3-30B-A3B/config.json"));
  EXPECT_EQ(n.total, 30532122624);
  EXPECT_EQ(n.routed / 8, 3623878656);
  EXPECT_EQ(n.total - n.routed, 1541093376);
  EXPECT_EQ(n.routed / 8 + n.total - n.routed, 5164972032);
}

TEST(Counts, C110FlopsOfTheActiveParametersOnly) {
  EXPECT_EQ(train_flops_per_token(golden_config("configs/Qwen3-30B-A3B/config.json"), 8192), 37578559488.0);
}

}  // namespace
}  // namespace planalto
