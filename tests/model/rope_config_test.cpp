// SPDX-License-Identifier: Apache-2.0
// rope_config_test.cpp: every scaling variant against tests/golden/rope/rope.json, and what the file does not cover.
#include "model/rope_config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"

namespace planalto {
namespace {

TEST(RopeConfig, GoldenRows) {
  const JsonValue rows = read_json_file(std::string(PLANALTO_GOLDEN) + "/rope/rope.json");
  ASSERT_EQ(rows.as_array("rope.json").size(), 10U);
  for (const JsonValue& row : rows.as_array("rope.json")) {
    const std::string name = row.at("name", "row").as_string("name");
    const RopeCase c = read_rope_case(row.at("config", name), name);
    EXPECT_EQ(c.rope.rotary_dim, row.at("rotary_dim", name).as_int64(name)) << name;
    EXPECT_DOUBLE_EQ(c.rope.cos_sin_scale, row.at("cos_sin_scale", name).as_double(name)) << name;
    EXPECT_DOUBLE_EQ(c.softmax_scale, row.at("softmax_scale", name).as_double(name)) << name;
    const JsonArray& expected = row.at("inv_freq", name).as_array(name);
    ASSERT_EQ(c.rope.inv_freq.size(), expected.size()) << name;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_DOUBLE_EQ(c.rope.inv_freq[i], expected[i].as_double(name)) << name << " pair " << i;
    }
  }
}

RopeCase parsed(const std::string& text) {
  return read_rope_case(parse_json(text, "test"), "test");
}
std::string refusal(const std::string& text) {
  try {
    parsed(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::config);
    return e.what();
  }
  return {};
}

// Old style "type", new style "rope_parameters", integers where floats are usual: one meaning.
TEST(RopeConfig, SpellingsOfOneRotation) {
  const RopeCase a = parsed(R"({"head_dim": 16, "rope_theta": 500, "max_position_embeddings": 64,
                                "rope_scaling": {"type": "linear", "factor": 2}})");
  const RopeCase b = parsed(R"({"head_dim": 16, "max_position_embeddings": 64,
                                "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}})");
  EXPECT_EQ(a.rope.inv_freq, b.rope.inv_freq);
  EXPECT_DOUBLE_EQ(a.rope.inv_freq[0], 0.5);
  const RopeCase partial = parsed(R"({"head_dim": 16, "rope_parameters": {"partial_rotary_factor": 0.5}})");
  EXPECT_EQ(partial.rope.rotary_dim, 8);
  EXPECT_EQ(parsed(R"({"head_dim": 16, "rope_scaling": null})").rope.inv_freq,
            parsed(R"({"head_dim": 16, "rope_scaling": {"rope_type": "default"}})").rope.inv_freq);
}

// Theta grows by (factor * length / context - (factor - 1))^(d / (d - 2)) = 3^(8/6) at twice the context and factor 2.
TEST(RopeConfig, DynamicDependsOnTheLengthBeyondTheContext) {
  const RopeCase c = parsed(R"({"head_dim": 8, "rope_theta": 10000, "max_position_embeddings": 64,
                                "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})");
  EXPECT_EQ(rope_frequencies(c.rope, 10), c.rope.inv_freq);
  EXPECT_EQ(rope_frequencies(c.rope, 64), c.rope.inv_freq);
  EXPECT_NEAR(c.rope.inv_freq[1], 0.1, 1e-15);
  const double theta = 10000.0 * std::pow(3.0, 8.0 / 6.0);
  EXPECT_NEAR(rope_frequencies(c.rope, 128)[1], std::pow(theta, -0.25), 1e-15);
}

TEST(RopeConfig, YarnWithAttentionFactorAndWithoutFactor) {
  const RopeCase given =
      parsed(R"({"head_dim": 8, "max_position_embeddings": 256, "rope_scaling": {"rope_type": "yarn",
                                    "factor": 4, "attention_factor": 1.5, "mscale": 1, "mscale_all_dim": 0.5,
                                    "original_max_position_embeddings": 64}})");
  EXPECT_EQ(given.rope.cos_sin_scale, 1.5);
  const RopeCase ratio =
      parsed(R"({"head_dim": 8, "max_position_embeddings": 256, "rope_scaling": {"rope_type": "yarn",
                                    "factor": null, "original_max_position_embeddings": 64}})");
  EXPECT_EQ(ratio.rope.factor, 4.0);
  EXPECT_EQ(ratio.rope.inv_freq, given.rope.inv_freq);
}

// transformers multiplies the scale of latent attention under every type but default: 14^-0.5 (0.1 * 0.7 * ln 4 + 1)^2
TEST(RopeConfig, MscaleOfLatentAttentionUnderEveryType) {
  const char* const text =
      R"({"qk_rope_head_dim": 6, "qk_nope_head_dim": 8, "rope_scaling": {"rope_type": ")";
  const RopeCase linear = parsed(text + std::string(R"(linear", "factor": 4, "mscale_all_dim": 0.7}})"));
  const double temperature = 0.07 * std::log(4.0) + 1.0;
  EXPECT_DOUBLE_EQ(linear.softmax_scale, temperature * temperature / std::sqrt(14.0));
  EXPECT_EQ(linear.rope.cos_sin_scale, 1.0);
  EXPECT_DOUBLE_EQ(parsed(text + std::string(R"(default", "mscale_all_dim": 0.7}})")).softmax_scale,
                   1.0 / std::sqrt(14.0));
}

TEST(RopeConfig, WhatIsGivenTwiceMustAgree) {
  const auto both = [](const char* scaling, const char* beside) {
    return std::string(
               R"({"head_dim": 8, "max_position_embeddings": 64, "rope_parameters": {"rope_type": "linear",
      "factor": 2, "rope_theta": 500}, "rope_scaling": )") +
           scaling + beside + "}";
  };
  EXPECT_EQ(refusal(both(R"({"type": "linear", "factor": 2.0})", R"(, "rope_theta": 500.0)")), "");
  EXPECT_NE(refusal(both(R"({"type": "yarn", "factor": 2.0})", ""))
                .find("rope_parameters.rope_type = \"linear\" and rope_scaling.type"),
            std::string::npos);
  EXPECT_NE(refusal(both(R"({"factor": 3})", "")).find("rope_scaling.factor = 3"), std::string::npos);
  EXPECT_NE(refusal(both("null", R"(, "rope_theta": 10000)")).find("rope_theta = 10000"), std::string::npos);
  EXPECT_EQ(refusal(both("null", "")), "");
}

TEST(RopeConfig, Refusals) {
  EXPECT_NE(refusal(R"({"head_dim": 8, "rope_parameters": {"full_attention": {"rope_type": "default"}}})")
                .find("rope_parameters.full_attention is unknown"),
            std::string::npos);

  EXPECT_NE(refusal(R"({"head_dim": 8, "rope_scaling": {"rope_type": "longrope"}})").find("longrope"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"head_dim": 8, "rope_scaling": {"type": "linear"}})")
                .find("rope_scaling.factor is missing"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"head_dim": 8, "rope_scaling": {"type": "linear", "factor": 0}})").find("factor = 0"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"head_dim": 7})").find("even"), std::string::npos);
  EXPECT_NE(refusal(R"({"head_dim": 8, "rope_scaling": 3})").find("rope_scaling"), std::string::npos);
  EXPECT_NE(
      refusal(R"({"head_dim": 8, "max_position_embeddings": 64, "rope_scaling": {"type": "yarn", "factor": 4,
                        "original_max_position_embeddings": 0}})")
          .find("original_max_position_embeddings = 0"),
      std::string::npos);
}

}  // namespace
}  // namespace planalto
