// SPDX-License-Identifier: Apache-2.0
// hf_test.cpp: Hugging Face folders in and out of a run: round trips, other layouts, tied heads, what must stop a load.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "formats/hf_folder.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"
#include "tiny_run.h"
#include "train/model_export.h"

namespace planalto {
namespace {

using testing::expect_error;
using testing::golden;
using testing::read_all;
using testing::TempFolder;
using testing::tiny_options;
using testing::TinyRun;

const char* const kFamilies[] = {"deepseek_v3-a", "deepseek_v3_mtp-a", "qwen3_moe-a", "glm4_moe-a"};

struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  bool operator==(const Tensor&) const = default;
};
using Tensors = std::map<std::string, Tensor>;

Tensors tensors_of(const HfFolder& folder) {
  Tensors all;
  for (const std::string_view name : folder.names()) {
    const TensorView t = folder.tensor(name);
    Tensor& out = all[std::string(name)];
    out.shape.assign(t.shape.begin(), t.shape.end());
    out.values.resize(static_cast<std::size_t>(t.num_elements));
    t.read(0, std::span<float>(out.values));
  }
  return all;
}

void write_folder(const std::string& path, const Tensors& tensors, const std::string& config,
                  FileDType dtype = FileDType::f32) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, dtype, tensor.shape});
  HfFolderWriter writer(path, specs, config, {.replace = true});
  for (const TensorSpec& spec : writer.tensors())
    writer.write(spec.name, std::span<const float>(tensors.at(spec.name).values));
  writer.commit();
}

// A run that starts from a folder's weights and saves at once.
std::string in_and_out(const std::string& folder, const std::string& to,
                       Precision precision = Precision::fp32) {
  TinyRun run(join_path(folder, "config.json"), tiny_options(precision, 5, to));
  run.trainer->start_from_weights(HfFolder::open(folder));
  EXPECT_EQ(run.recorder.notices, std::vector<std::string>{});
  return run.trainer->save();
}

double first_loss(const std::string& config, const std::string& folder) {
  TempFolder temp;
  TinyRun run(config, tiny_options(Precision::fp32, 1, temp.file("c")));
  run.trainer->start_from_weights(HfFolder::open(folder));
  run.trainer->run();
  return run.recorder.losses.at(0);
}

class Golden : public ::testing::Test {
 protected:
  explicit Golden(const char* family = "qwen3_moe-a")
      : path_(golden(family)),
        config_(read_all(golden(std::string(family) + "/config.json"))),
        tensors_(tensors_of(HfFolder::open(path_))) {}
  std::string folder(const Tensors& tensors, const std::string& config) {
    write_folder(temp_.file("model"), tensors, config);
    return temp_.file("model");
  }
  std::string with(const std::string& key, JsonValue value) const {
    JsonObject o = parse_json(config_, "config").as_object("config");
    o.set(key, std::move(value));
    return write_json(o);
  }
  void refused(const std::string& folder, std::initializer_list<std::string_view> pieces) {
    expect_error(ErrorKind::data, pieces, [&] { in_and_out(folder, temp_.file("out")); });
  }

  TempFolder temp_;
  std::string path_, config_;
  Tensors tensors_;
};

// In, out, no step: every tensor has its bytes, the config is the file's own text.
TEST(Hf, C073RoundTripOfEveryFamily) {
  for (const char* family : kFamilies) {
    TempFolder temp;
    const std::string from = golden(family);
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const std::string out =
          in_and_out(from, temp.file(precision == Precision::fp32 ? "a" : "b"), precision);
      EXPECT_TRUE(tensors_of(HfFolder::open(out)) == tensors_of(HfFolder::open(from))) << family;
      EXPECT_EQ(read_all(join_path(out, "config.json")), read_all(join_path(from, "config.json")));
      const auto before = static_cast<double>(file_bytes(join_path(from, "model.safetensors")));
      EXPECT_NEAR(static_cast<double>(file_bytes(join_path(out, "model.safetensors"))), before,
                  0.01 * before);
    }
  }
}

TEST_F(Golden, C073BfloatWeightsSurviveTheWay) {
  write_folder(temp_.file("bf16"), tensors_, config_, FileDType::bf16);
  const std::string out = in_and_out(temp_.file("bf16"), temp_.file("out"), Precision::bf16);
  EXPECT_TRUE(tensors_of(HfFolder::open(out)) == tensors_of(HfFolder::open(temp_.file("bf16"))));
}

// Experts as one fused tensor a layer, gate and up stacked apart, and names without their prefix: the same loss.
TEST_F(Golden, C072ExpertLayouts) {
  const std::string config_path = join_path(path_, "config.json");
  const double expected = first_loss(config_path, path_);
  const ModelConfig config = read_model_config(parse_json(config_, "config"), "config");
  for (std::size_t layout = 0; layout < 3; ++layout) {
    Tensors other;
    for (const ParameterSpec& p : parameter_specs(config)) {
      const bool replaces = layout < 2 && p.other_layouts.size() > layout;
      std::vector<float> rows(static_cast<std::size_t>(p.elements()));
      auto walk = [&](const TensorPiece& piece, const auto& copy) {
        for (std::int64_t g = 0; g < piece.groups; ++g) {
          copy(rows.data() + (piece.first_row + g * piece.group_stride) * p.cols, g * piece.rows * p.cols,
               piece.rows * p.cols);
        }
      };
      for (const TensorPiece& piece : p.pieces) {
        const Tensor& t = tensors_.at(piece.name);
        walk(piece, [&](float* ours, std::int64_t at, std::int64_t n) {
          std::copy(t.values.begin() + at, t.values.begin() + at + n, ours);
        });
      }
      for (const TensorPiece& piece : replaces ? p.other_layouts[layout] : p.pieces) {
        const std::string name = layout == 2 ? std::string(bare_tensor_name(piece.name)) : piece.name;
        Tensor& t = other[name];
        t.shape = piece.shape;
        t.values.resize(static_cast<std::size_t>(piece.groups * piece.rows * p.cols));
        walk(piece, [&](const float* ours, std::int64_t at, std::int64_t n) {
          std::copy(ours, ours + n, t.values.begin() + at);
        });
      }
    }
    EXPECT_NE(other.begin()->first + std::to_string(other.size()),
              tensors_.begin()->first + std::to_string(tensors_.size()));
    EXPECT_EQ(first_loss(config_path, folder(other, config_)), expected) << "layout " << layout;
  }
}

// Per expert -> fused -> per expert: every bit comes back; the fused one loads to the same bits; MTP blocks have experts too.
TEST(Hf, C072BothLayoutsExport) {
  for (const char* family : kFamilies) {
    for (const FileDType dtype : {FileDType::f32, FileDType::bf16}) {
      TempFolder temp;
      const std::string from = temp.file("from"), fused = temp.file("fused"), back = temp.file("back");
      const std::string config = read_all(golden(std::string(family) + "/config.json"));
      write_folder(from, tensors_of(HfFolder::open(golden(family))), config, dtype);
      const HfFolder in = HfFolder::open(from);
      const std::int64_t num_fused = export_model(from, fused, {.layout = ExpertLayout::fused});
      const HfFolder mid = HfFolder::open(fused);
      EXPECT_LT(num_fused, in.num_tensors());
      EXPECT_EQ(mid.tensor_bytes(), in.tensor_bytes());
      const std::string layer = "model.layers.1.mlp.experts.";
      EXPECT_FALSE(mid.contains(layer + "0.gate_proj.weight"));
      const Tensors values = tensors_of(in);
      const TensorView gate_up = mid.tensor(layer + "gate_up_proj"), down = mid.tensor(layer + "down_proj");
      const Tensor& up = values.at(layer + "5.up_proj.weight");
      const std::int64_t f = up.shape[0], d = up.shape[1];
      ASSERT_EQ(std::vector<std::int64_t>(gate_up.shape.begin() + 1, gate_up.shape.end()),
                (std::vector{2 * f, d}));
      std::vector<float> part(up.values.size());
      gate_up.read((5 * 2 + 1) * f * d, std::span<float>(part));
      EXPECT_EQ(part, up.values);
      down.read(5 * f * d, std::span<float>(part));
      EXPECT_EQ(part, values.at(layer + "5.down_proj.weight").values);
      EXPECT_EQ(export_model(fused, back, {.layout = ExpertLayout::per_expert}), in.num_tensors());
      EXPECT_EQ(read_all(join_path(back, "model.safetensors")),
                read_all(join_path(from, "model.safetensors")));
      if (dtype == FileDType::f32) {
        EXPECT_TRUE(tensors_of(HfFolder::open(in_and_out(fused, temp.file("run")))) == values) << family;
      }
    }
  }
}

TEST_F(Golden, C072ALayoutThatCannotBeChangedIsRefused) {
  Tensors fewer = tensors_;
  const std::string lost = "model.layers.1.mlp.experts.3.down_proj.weight";
  ASSERT_EQ(fewer.erase(lost), 1U);
  const auto fuse = [&] {
    export_model(temp_.file("model"), temp_.file("fused"), {.layout = ExpertLayout::fused});
  };
  folder(fewer, config_);
  expect_error(ErrorKind::data, {"layers.1.experts.down", "no layout"}, fuse);
  Tensors wrong = tensors_;
  std::swap(wrong.at(lost).shape[0], wrong.at(lost).shape[1]);
  folder(wrong, config_);
  expect_error(ErrorKind::data, {lost, "[17, 48]", "[48, 17]"}, fuse);
  EXPECT_FALSE(path_exists(temp_.file("fused")));
  // Names without a prefix keep none, and dtypes change on the way.
  Tensors bare;
  for (const auto& [name, tensor] : tensors_)
    bare[name.starts_with("model.") ? name.substr(6) : name] = tensor;
  folder(bare, config_);
  export_model(temp_.file("model"), temp_.file("fused"),
               {.dtype = ExportDType::bf16, .layout = ExpertLayout::fused});
  const HfFolder out = HfFolder::open(temp_.file("fused"));
  EXPECT_TRUE(out.contains("layers.0.mlp.experts.gate_up_proj"));
  EXPECT_EQ(out.tensor("layers.0.mlp.experts.gate_up_proj").dtype, FileDType::bf16);
}

TEST_F(Golden, C072UnmappedOrUnfilledStopsTheLoad) {
  Tensors more = tensors_;
  more["model.layers.0.mlp.experts.99.up_proj.weight"] = {{2, 2}, {1, 2, 3, 4}};
  refused(folder(more, config_), {"experts.99.up_proj", "no place"});
  Tensors fewer = tensors_;
  const std::string lost = "model.layers.1.mlp.experts.3.down_proj.weight";
  ASSERT_EQ(fewer.erase(lost), 1U);
  refused(folder(fewer, config_), {lost, "missing"});
  Tensors wrong = tensors_;
  std::swap(wrong.at(lost).shape[0], wrong.at(lost).shape[1]);
  refused(folder(wrong, config_), {lost, "shape [17, 48]", "needs [48, 17]"});
}

TEST_F(Golden, C071Tying) {
  const std::string tied = with("tie_word_embeddings", true);
  Tensors none = tensors_;
  ASSERT_EQ(none.erase("lm_head.weight"), 1U);
  const std::string out = in_and_out(folder(none, tied), temp_.file("out"));
  EXPECT_FALSE(HfFolder::open(out).contains("lm_head.weight"));
  Tensors equal = tensors_;
  equal.at("lm_head.weight") = equal.at("model.embed_tokens.weight");
  in_and_out(folder(equal, tied), temp_.file("out2"));
  refused(folder(tensors_, tied), {"lm_head.weight differs", "tie_word_embeddings"});
  refused(folder(none, config_), {"lm_head.weight is missing"});
}

TEST_F(Golden, C008NonFiniteWeightStopsTheLoad) {
  for (const float bad : {std::nanf(""), INFINITY}) {
    Tensors damaged = tensors_;
    damaged.at("model.layers.2.mlp.gate.weight").values[77] = bad;
    refused(folder(damaged, config_), {"model.layers.2.mlp.gate.weight", "element 77"});
  }
}

class GoldenBias : public Golden {
 protected:
  GoldenBias() : Golden("deepseek_v3-a") {}
};
TEST_F(GoldenBias, C008NonFiniteCorrectionBias) {
  std::string name;
  for (const auto& [key, tensor] : tensors_) {
    if (key.ends_with("e_score_correction_bias")) name = key;
  }
  ASSERT_FALSE(name.empty());
  Tensors damaged = tensors_;
  damaged.at(name).values[3] = std::nanf("");
  refused(folder(damaged, config_), {name, "element 3"});
}

// A set of shards with one away, and one that the index does not know.
TEST_F(Golden, C070ShardSet) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors_) specs.push_back({name, FileDType::f32, tensor.shape});
  const std::string path = temp_.file("sharded");
  {
    HfFolderWriter writer(path, specs, config_, {.max_shard_bytes = 150'000});
    for (const TensorSpec& spec : writer.tensors())
      writer.write(spec.name, std::span<const float>(tensors_.at(spec.name).values));
    writer.commit();
  }
  ASSERT_EQ(HfFolder::open(path).shards().size(), 3U);
  const std::string out = in_and_out(path, temp_.file("out"));
  EXPECT_TRUE(tensors_of(HfFolder::open(out)) == tensors_);
  const std::string second = "model-00002-of-00003.safetensors";
  ASSERT_EQ(std::rename(join_path(path, second).c_str(), join_path(path, "model-2.safetensors").c_str()), 0);
  expect_error(ErrorKind::data, {second}, [&] { HfFolder::open(path); });
}

}  // namespace
}  // namespace planalto
