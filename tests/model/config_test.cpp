// SPDX-License-Identifier: Apache-2.0
// config_test.cpp: config.json of each family in both styles, and the refusals.
#include "model/config.h"

#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "model/counts.h"
#include "model/families/family.h"
#include "model/parameters.h"

namespace planalto {
namespace {

JsonValue golden_json(const std::string& path) {
  return read_json_file(std::string(PLANALTO_GOLDEN) + "/" + path);
}

using Edit = std::function<void(JsonObject&)>;
JsonValue edited(const std::string& path, const Edit& edit) {
  JsonValue json = golden_json(path);
  edit(json.as_object(path));
  return json;
}
ModelConfig with(const std::string& path, const Edit& edit) {
  return read_model_config(edited(path, edit), "config.json");
}
// The message of the refusal; empty when there is none.
std::string refusal(const JsonValue& json) {
  try {
    read_model_config(json, "config.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::config);
    return e.what();
  }
  return {};
}
std::string refusal(const std::string& path, const Edit& edit) {
  return refusal(edited(path, edit));
}

void expect_has(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}

const char* const kDeepseek = "deepseek_v3-a/config.json";
const char* const kQwen = "qwen3_moe-a/config.json";
const char* const kGlm = "glm4_moe-a/config.json";

TEST(ModelConfig, DeepseekV3) {
  const ModelConfig c = read_model_config(golden_json(kDeepseek), "config.json");
  EXPECT_EQ(c.family->model_type, "deepseek_v3");
  EXPECT_EQ(c.hidden_size, 48);
  EXPECT_EQ(c.num_layers, 3);
  EXPECT_EQ(c.vocab_size, 131);
  EXPECT_EQ(c.dense_width, 56);
  EXPECT_EQ(c.mlp, (std::vector{MlpKind::dense, MlpKind::moe, MlpKind::moe}));
  EXPECT_EQ(c.attention.kind, AttentionKind::mla);
  EXPECT_EQ(c.attention.num_heads, 3);
  EXPECT_EQ(c.attention.q_lora_rank, 20);
  EXPECT_EQ(c.attention.kv_lora_rank, 14);
  EXPECT_EQ(c.attention.qk_dim, 18);
  EXPECT_EQ(c.attention.v_dim, 11);
  EXPECT_EQ(c.attention.rope.rotary_dim, 8);
  EXPECT_EQ(c.attention.rope.style, kernels::RopeStyle::interleaved);
  // 18^-0.5 * (0.1 ln 40 + 1)^2
  EXPECT_NEAR(c.attention.softmax_scale, 0.4416716, 1e-6);
  EXPECT_EQ(c.moe.num_experts, 12);
  EXPECT_EQ(c.moe.top_k, 3);
  EXPECT_EQ(c.moe.width, 17);
  EXPECT_EQ(c.moe.shared_width, 17);
  EXPECT_TRUE(c.moe.correction_bias);
  EXPECT_EQ(c.moe.router.num_groups, 4);
  EXPECT_EQ(c.moe.router.top_groups, 2);
  EXPECT_EQ(c.moe.router.score, kernels::RouterScore::sigmoid);
  EXPECT_EQ(c.moe.router.group_score, kernels::GroupScore::top2_sum);
  EXPECT_TRUE(c.moe.router.normalize);
  EXPECT_EQ(c.moe.router.scaling, 2.5);
  EXPECT_EQ(c.num_mtp, 0);
  EXPECT_EQ(c.pad_token_id, -1);
  EXPECT_EQ(c.eos_token_ids, (std::vector<std::int64_t>{1}));
  EXPECT_EQ(c.max_positions, 163840);
}

TEST(ModelConfig, Qwen3Moe) {
  const ModelConfig c = read_model_config(golden_json(kQwen), "config.json");
  EXPECT_EQ(c.attention.kind, AttentionKind::gqa);
  EXPECT_EQ(c.attention.num_heads, 4);
  EXPECT_EQ(c.attention.num_kv_heads, 2);
  EXPECT_EQ(c.attention.qk_dim, 14);
  EXPECT_TRUE(c.attention.qk_norm);
  EXPECT_FALSE(c.attention.qkv_bias);
  EXPECT_EQ(c.attention.window, 0);
  EXPECT_EQ(c.attention.rope.theta, 1e6);
  EXPECT_EQ(c.attention.rope.style, kernels::RopeStyle::halves);
  EXPECT_EQ(c.moe.router.score, kernels::RouterScore::softmax);
  EXPECT_TRUE(c.moe.router.normalize);
  EXPECT_EQ(c.moe.router.scaling, 1.0);
  EXPECT_EQ(c.moe.num_experts, 8);
  EXPECT_EQ(c.moe.shared_width, 0);
  EXPECT_FALSE(c.moe.correction_bias);
  EXPECT_EQ(c.moe.aux_coefficient, 0.001);
  EXPECT_EQ(c.num_moe_layers(), 3);
}

TEST(ModelConfig, Glm4Moe) {
  const ModelConfig c = read_model_config(golden_json(kGlm), "config.json");
  EXPECT_EQ(c.attention.kind, AttentionKind::gqa);
  EXPECT_TRUE(c.attention.qk_norm);
  EXPECT_TRUE(c.attention.qkv_bias);
  EXPECT_FALSE(c.attention.o_bias);
  EXPECT_EQ(c.attention.rope.rotary_dim, 6);
  EXPECT_EQ(c.norm_eps, 1e-3);
  EXPECT_EQ(c.moe.router.score, kernels::RouterScore::sigmoid);
  EXPECT_TRUE(c.moe.correction_bias);
  EXPECT_EQ(c.num_moe_layers(), 2);
}

// Every number of the struct that differs between the two styles of the same model would show in one of these.
TEST(ModelConfig, BothStylesGiveTheSameModel) {
  for (const char* name : {"deepseek_v3-a", "deepseek_v3_mtp-a", "qwen3_moe-a", "glm4_moe-a"}) {
    const ModelConfig a = read_model_config(golden_json(std::string(name) + "/config.json"), name);
    const ModelConfig b =
        with_mtp(read_model_config(golden_json(std::string(name) + "/config_v5.json"), name), a.num_mtp);
    EXPECT_EQ(a.attention.rope.inv_freq, b.attention.rope.inv_freq) << name;
    EXPECT_EQ(a.attention.rope.cos_sin_scale, b.attention.rope.cos_sin_scale) << name;
    EXPECT_EQ(a.attention.softmax_scale, b.attention.softmax_scale) << name;
    EXPECT_EQ(a.norm_eps, b.norm_eps) << name;
    EXPECT_EQ(a.mlp, b.mlp) << name;
    EXPECT_EQ(a.moe.top_k, b.moe.top_k) << name;
    EXPECT_EQ(a.moe.router.scaling, b.moe.router.scaling) << name;
    const auto specs_a = parameter_specs(a);
    const auto specs_b = parameter_specs(b);
    ASSERT_EQ(specs_a.size(), specs_b.size()) << name;
    for (std::size_t i = 0; i < specs_a.size(); ++i) {
      EXPECT_EQ(specs_a[i].name, specs_b[i].name);
      EXPECT_EQ(specs_a[i].rows, specs_b[i].rows);
      EXPECT_EQ(specs_a[i].cols, specs_b[i].cols);
    }
  }
}

TEST(ModelConfig, C004GroupScoreFollowsTheTopkMethod) {
  const ModelConfig best =
      with(kDeepseek, [](JsonObject& o) { o.set("topk_method", "group_limited_greedy"); });
  EXPECT_EQ(best.moe.router.group_score, kernels::GroupScore::best);
  EXPECT_FALSE(best.moe.correction_bias);
  const ModelConfig sum = with(kDeepseek, [](JsonObject& o) { o.set("topk_method", "noaux_tc"); });
  EXPECT_EQ(sum.moe.router.group_score, kernels::GroupScore::top2_sum);
  EXPECT_TRUE(sum.moe.correction_bias);
  expect_has(refusal(kDeepseek, [](JsonObject& o) { o.set("topk_method", "random_tc"); }),
             {"topk_method", "random_tc", "noaux_tc"});
}

TEST(ModelConfig, C007ImpossibleRouterIsRefused) {
  for (const int k : {5, 0, -1}) {
    const std::string message = refusal(kQwen, [&](JsonObject& o) {
      o.set("num_experts", 4);
      o.set("num_experts_per_tok", k);
    });
    expect_has(message, {"num_experts_per_tok = ", std::to_string(k).c_str(), "num_experts = 4"});
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  expect_has(refusal(kDeepseek,
                     [](JsonObject& o) {
                       o.set("n_routed_experts", 8);
                       o.set("n_group", 4);
                       o.set("topk_group", 1);
                       o.set("num_experts_per_tok", 3);
                     }),
             {"num_experts_per_tok = 3", "topk_group = 1", "n_group = 4", "n_routed_experts = 8"});
  expect_has(refusal(kDeepseek,
                     [](JsonObject& o) {
                       o.set("n_routed_experts", 8);
                       o.set("n_group", 3);
                     }),
             {"n_group = 3", "n_routed_experts = 8"});
}

TEST(ModelConfig, C063HeadDimIsNotHiddenOverHeads) {
  const Edit shape = [](JsonObject& o) {
    o.set("hidden_size", 40);
    o.set("num_attention_heads", 4);
    o.set("num_key_value_heads", 2);
    o.set("head_dim", 16);
  };
  ModelConfig c = with(kQwen, shape);
  EXPECT_EQ(c.attention.qk_dim, 16);
  for (const ParameterSpec& p : parameter_specs(c)) {
    if (p.name == "layers.0.self_attn.q_proj") {
      EXPECT_EQ(p.rows, 64);
      EXPECT_EQ(p.cols, 40);
    }
  }
  const auto absent = [&](JsonObject& o) {
    shape(o);
    o.erase("head_dim");
  };
  EXPECT_EQ(with(kQwen, absent).attention.qk_dim, 10);
  const auto null = [&](JsonObject& o) {
    shape(o);
    o.set("head_dim", nullptr);
  };
  EXPECT_EQ(with(kQwen, null).attention.qk_dim, 10);
  const auto indivisible = [&](JsonObject& o) {
    absent(o);
    o.set("hidden_size", 42);
  };
  expect_has(refusal(kQwen, indivisible), {"head_dim", "hidden_size = 42", "num_attention_heads = 4"});
}

TEST(ModelConfig, C064ExpertsUnderAnyNameOrRefused) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    for (const char* path : {kDeepseek, kQwen, kGlm}) {
      const ModelConfig c = with(path, [&](JsonObject& o) {
        for (const char* old : {"num_experts", "num_local_experts", "n_routed_experts"}) o.erase(old);
        o.set(key, 24);
      });
      EXPECT_EQ(c.moe.num_experts, 24) << key << " in " << path;
      EXPECT_GT(c.num_moe_layers(), 0);
    }
  }
  expect_has(refusal(kQwen, [](JsonObject& o) { o.erase("num_experts"); }), {"num_experts is missing"});
  expect_has(refusal(kQwen, [](JsonObject& o) { o.set("num_experts", nullptr); }),
             {"num_experts is missing"});
  expect_has(refusal(kQwen, [](JsonObject& o) { o.set("num_local_experts", 9); }),
             {"num_experts = 8", "num_local_experts = 9"});
}

TEST(ModelConfig, C064NestedTextConfigAndUnknownFamilies) {
  JsonObject outer;
  outer.set("model_type", "some_vision_model");
  outer.set("architectures", JsonArray{"SomeVisionModel"});
  outer.set("text_config", golden_json(kGlm));
  EXPECT_EQ(read_model_config(outer, "config.json").moe.num_experts, 12);

  expect_has(refusal(kQwen,
                     [](JsonObject& o) {
                       o.set("model_type", "qwen9_moe");
                       o.set("architectures", JsonArray{"Qwen9MoeForCausalLM"});
                     }),
             {"qwen9_moe", "Qwen9MoeForCausalLM", "deepseek_v3, qwen3_moe, glm4_moe"});
  // A foreign model_type under a known architecture: the architecture decides.
  const ModelConfig kimi = with(kDeepseek, [](JsonObject& o) { o.set("model_type", "kimi_k2"); });
  EXPECT_EQ(kimi.family->model_type, "deepseek_v3");
  expect_has(refusal(JsonValue(JsonObject())), {"model_type is missing"});
  expect_has(refusal(JsonValue(JsonArray())), {"array"});
}

TEST(ModelConfig, DenseLayersByEveryRule) {
  const ModelConfig c = with(kQwen, [](JsonObject& o) {
    o.set("num_hidden_layers", 6);
    o.set("decoder_sparse_step", 2);
    o.set("mlp_only_layers", JsonArray{3, 4});
  });
  using enum MlpKind;
  EXPECT_EQ(c.mlp, (std::vector{dense, moe, dense, dense, dense, moe}));
}

TEST(ModelConfig, WindowIsOffUnlessUsed) {
  for (const JsonValue& off : {JsonValue(0), JsonValue(nullptr), JsonValue(4096)}) {
    EXPECT_EQ(with(kQwen, [&](JsonObject& o) { o.set("sliding_window", off); }).attention.window, 0);
  }
  const auto used = [](JsonObject& o) {
    o.set("use_sliding_window", true);
    o.set("sliding_window", 7);
  };
  EXPECT_EQ(with(kQwen, used).attention.window, 7);
}

TEST(ModelConfig, LatentAttentionWithoutQueryRank) {
  const ModelConfig c = with(kDeepseek, [](JsonObject& o) {
    o.set("q_lora_rank", nullptr);
    o.set("attention_bias", true);
    o.set("n_shared_experts", 2);
    o.set("rope_interleave", false);
  });
  EXPECT_EQ(c.attention.q_lora_rank, 0);
  EXPECT_TRUE(c.attention.latent_bias);
  EXPECT_EQ(c.moe.shared_width, 34);
  EXPECT_EQ(c.attention.rope.style, kernels::RopeStyle::halves);
}

// Where null and an absent key mean different things, and where transformers guesses a shape that a file leaves out.
TEST(ModelConfig, AbsentKeysAndNull) {
  const auto without = [](const char* key) { return [key](JsonObject& o) { o.erase(key); }; };
  const auto null = [](const char* key) { return [key](JsonObject& o) { o.set(key, nullptr); }; };
  expect_has(refusal(kDeepseek, without("q_lora_rank")), {"q_lora_rank is missing", "null"});
  EXPECT_EQ(with(kDeepseek, null("q_lora_rank")).attention.q_lora_rank, 0);
  for (const char* path : {kQwen, kGlm}) {
    expect_has(refusal(path, without("num_key_value_heads")), {"num_key_value_heads is missing", "null"});
    EXPECT_EQ(with(path, null("num_key_value_heads")).attention.num_kv_heads, 4);
  }
  for (const char* path : {kDeepseek, kGlm}) {
    EXPECT_GT(with(path, without("n_shared_experts")).moe.shared_width, 0);
    EXPECT_EQ(with(path, null("n_shared_experts")).moe.shared_width, 0);
  }
  for (const char* path : {kDeepseek, kGlm, kQwen})
    expect_has(refusal(path, null("norm_topk_prob")), {"norm_topk_prob is null"});
  expect_has(refusal(kDeepseek, null("rope_interleave")), {"rope_interleave is null"});
  const auto window = [](const Edit& more) {
    return with(kQwen,
                [&](JsonObject& o) {
                  o.set("use_sliding_window", true);
                  more(o);
                })
        .attention.window;
  };
  EXPECT_EQ(window(without("sliding_window")), 4096);
  EXPECT_EQ(window(null("sliding_window")), 0);
}

// The defaults of transformers' configuration classes (4.57 and 5.23), for the keys that a file may leave out.
TEST(ModelConfig, DefaultsAreThoseOfTransformers) {
  const auto bare = [](const char* path, std::initializer_list<const char*> keys) {
    return with(path, [&](JsonObject& o) {
      for (const char* key : keys) o.erase(key);
    });
  };
  const auto shared = {"attention_bias", "attention_dropout",       "hidden_act",        "rms_norm_eps",
                       "norm_topk_prob", "tie_word_embeddings",     "initializer_range", "pad_token_id",
                       "rope_scaling",   "max_position_embeddings", "rope_theta"};
  const ModelConfig d = bare(kDeepseek, shared), g = bare(kGlm, shared), q = bare(kQwen, shared);
  EXPECT_EQ(std::tuple(d.norm_eps, g.norm_eps, q.norm_eps), std::tuple(1e-6, 1e-5, 1e-6));
  EXPECT_EQ(std::tuple(d.moe.router.normalize, g.moe.router.normalize, q.moe.router.normalize),
            std::tuple(true, true, false));
  EXPECT_EQ(std::tuple(d.max_positions, g.max_positions, q.max_positions), std::tuple(4096, 131072, 32768));
  for (const ModelConfig& c : {d, g, q}) {
    EXPECT_FALSE(c.attention.qkv_bias || c.attention.o_bias || c.attention.latent_bias || c.tie_embeddings);
    EXPECT_EQ(c.attention.rope.theta, 10000.0);
    EXPECT_EQ(c.initializer_range, 0.02);
  }
  const ModelConfig more = bare(kGlm, {"n_group", "topk_group", "routed_scaling_factor", "use_qk_norm",
                                       "partial_rotary_factor", "n_shared_experts"});
  EXPECT_EQ(more.moe.router.scaling, 1.0);
  EXPECT_EQ(more.moe.router.num_groups, 1);
  EXPECT_FALSE(more.attention.qk_norm);
  EXPECT_EQ(more.attention.rope.rotary_dim, 6);
  EXPECT_EQ(more.moe.shared_width, 16);
  EXPECT_EQ(bare(kQwen, {"router_aux_loss_coef", "decoder_sparse_step", "mlp_only_layers"}).num_moe_layers(),
            3);
}

// TOML has no null: what a table leaves out is null, and is so in the config.json that a checkpoint holds.
TEST(ModelConfig, AnInlineTableBecomesAConfigFile) {
  const auto file = [](const char* path, std::initializer_list<const char*> left_out) {
    return complete_inline_config(edited(path, [&](JsonObject& o) {
      for (const char* key : left_out) o.erase(key);
    }));
  };
  JsonValue table = golden_json(kDeepseek);
  for (const char* key : {"q_lora_rank", "architectures"}) table.as_object("table").erase(key);
  table.as_object("table").set("num_key_value_heads", 1);
  const JsonValue mla = complete_inline_config(table);
  ASSERT_NE(mla.find("q_lora_rank"), nullptr);
  EXPECT_TRUE(mla.find("q_lora_rank")->is_null());
  EXPECT_EQ(*mla.find("num_key_value_heads"), JsonValue(3));
  EXPECT_EQ(*mla.find("architectures"), JsonValue(JsonArray{"DeepseekV3ForCausalLM"}));
  EXPECT_EQ(read_model_config(mla, "config.json").attention.q_lora_rank, 0);
  EXPECT_EQ(*file(kGlm, {"num_key_value_heads"}).find("num_key_value_heads"), JsonValue(4));
  EXPECT_EQ(file(kQwen, {}), golden_json(kQwen));
}

// A key that other models compute with is never passed over when it would change this one.
TEST(ModelConfig, KeysOfOtherModelsAreRefused) {
  const std::vector<std::tuple<const char*, const char*, JsonValue, JsonValue>> cases = {
      // file, key, refused, harmless
      {kQwen, "n_shared_experts", 1, 0},
      {kQwen, "first_k_dense_replace", 1, 0},
      {kQwen, "n_group", 2, 1},
      {kQwen, "routed_scaling_factor", 2.5, 1.0},
      {kQwen, "num_nextn_predict_layers", 1, 0},
      {kQwen, "scoring_func", "sigmoid", "softmax"},
      {kQwen, "topk_method", "noaux_tc", "greedy"},
      {kQwen, "use_qk_norm", false, true},
      {kGlm, "scoring_func", "softmax", "sigmoid"},
      {kGlm, "topk_method", "greedy", "noaux_tc"},
      {kGlm, "mlp_only_layers", JsonArray{1}, JsonArray()},
      {kGlm, "decoder_sparse_step", 2, 1},
      {kGlm, "moe_layer_freq", 2, 1},
      {kGlm, "use_sliding_window", true, false},
      {kGlm, "sliding_window", 128, 0},
      {kGlm, "kv_lora_rank", 16, nullptr},
      {kGlm, "rope_interleave", true, false},
      {kDeepseek, "sliding_window", 128, nullptr},
      {kDeepseek, "mlp_only_layers", JsonArray{0}, nullptr},
      {kDeepseek, "use_qk_norm", true, false},
      {kDeepseek, "moe_layer_freq", 2, 1},
      {kDeepseek, "qk_head_dim", 20, 18},
      {kQwen, "attn_logit_softcapping", 50.0, nullptr},
      {kQwen, "hidden_act", "gelu", "swish"},
      {kQwen, "attention_dropout", 0.1, 0},
  };
  for (const auto& [path, key, wrong, harmless] : cases) {
    expect_has(refusal(path, [&, k = key, &v = wrong](JsonObject& o) { o.set(k, v); }), {key, "config.json"});
    EXPECT_EQ(refusal(path, [&, k = key, &v = harmless](JsonObject& o) { o.set(k, v); }), "") << path << key;
  }
  EXPECT_EQ(refusal(kGlm,
                    [](JsonObject& o) {
                      o.set("use_sliding_window", false);
                      o.set("sliding_window", 4096);
                    }),
            "");
  expect_has(refusal(kQwen,
                     [](JsonObject& o) {
                       o.set("use_sliding_window", true);
                       o.set("sliding_window", 8);
                       o.set("max_window_layers", 2);
                     }),
             {"max_window_layers = 2"});
}

TEST(ModelConfig, ListsOfLayersMustAgreeWithTheOtherKeys) {
  const auto mlp = [](JsonArray kinds) {
    return [kinds](JsonObject& o) { o.set("mlp_layer_types", kinds); };
  };
  EXPECT_EQ(refusal(kGlm, mlp({"dense", "sparse", "sparse"})), "");
  expect_has(refusal(kGlm, mlp({"dense", "dense", "sparse"})),
             {"mlp_layer_types: layer 1", "\"dense\"", "\"sparse\""});
  expect_has(refusal(kGlm, mlp({"dense", "sparse"})),
             {"mlp_layer_types has 2 entries", "num_hidden_layers = 3"});
  const auto attention = [](const char* kind) {
    return [kind](JsonObject& o) { o.set("layer_types", JsonArray{kind, kind, kind}); };
  };
  EXPECT_EQ(refusal(kQwen, attention("full_attention")), "");
  expect_has(refusal(kQwen, attention("sliding_attention")), {"layer_types: layer 0", "full_attention"});
}

TEST(ModelConfig, MtpModulesFollowTheRuleOfTheLayers) {
  const char* const path = "deepseek_v3_mtp-a/config.json";
  EXPECT_TRUE(with(path, [](JsonObject& o) { o.set("first_k_dense_replace", 2); }).is_moe(2));
  const ModelConfig c = with(path, [](JsonObject& o) { o.set("first_k_dense_replace", 3); });
  using enum MlpKind;
  EXPECT_EQ(c.mlp, (std::vector{dense, dense, dense, moe}));
  std::int64_t elements = 0;
  for (const ParameterSpec& p : parameter_specs(c))
    elements += p.trainable && p.block >= c.num_layers ? p.elements() : 0;
  EXPECT_EQ(count_parameters(c).mtp, elements);
  const auto renamed = [](JsonObject& o) {
    o.erase("num_nextn_predict_layers");
    o.set("num_mtp_layers", 1);
  };
  EXPECT_EQ(with(path, renamed).num_mtp, 1);
}

TEST(ModelConfig, SpecialTokensLieInTheVocabulary) {
  for (const std::int64_t id :
       {std::int64_t{-2}, std::int64_t{151}, std::int64_t{1} << 31, std::int64_t{1} << 62}) {
    const std::string bos = "bos_token_id = " + std::to_string(id) + "; legal: 0 .. vocab_size - 1 = 150";
    expect_has(refusal(kQwen, [&](JsonObject& o) { o.set("bos_token_id", id); }), {bos.c_str()});
    const std::string eos = "eos_token_id = " + std::to_string(id) + "; legal";
    expect_has(refusal(kQwen,
                       [&](JsonObject& o) {
                         o.set("eos_token_id", JsonArray{1, id});
                       }),
               {eos.c_str()});
  }
}

TEST(ModelConfig, AllMistakesTogether) {
  const std::string missing = refusal(kDeepseek, [](JsonObject& o) {
    o.erase("hidden_size");
    o.set("vocab_size", "many");
    o.set("norm_topk_prob", 1);
  });
  expect_has(missing, {"config.json: 3 mistakes", "hidden_size is missing", "vocab_size is \"many\"",
                       "norm_topk_prob is 1"});
  const std::string values = refusal(kGlm, [](JsonObject& o) {
    o.set("hidden_act", "gelu");
    o.set("rms_norm_eps", 0);
    o.set("pad_token_id", 119);
    o.set("num_key_value_heads", 3);
    o.set("partial_rotary_factor", 0.25);
    o.set("rope_theta", -1);
  });
  expect_has(values, {"hidden_act \"gelu\"", "rms_norm_eps = 0", "pad_token_id = 119",
                      "num_key_value_heads = 3", "3 of 12 elements", "rope_theta = -1"});
}

TEST(ModelConfig, AbsurdSizesAreRefused) {
  expect_has(refusal(kQwen, [](JsonObject& o) { o.set("hidden_size", std::int64_t{1} << 40); }),
             {"hidden_size = "});
  expect_has(refusal(kQwen, [](JsonObject& o) { o.set("num_hidden_layers", 1000000); }),
             {"num_hidden_layers = "});
  expect_has(refusal(kQwen,
                     [](JsonObject& o) {
                       o.set("num_attention_heads", 1 << 20);
                       o.set("head_dim", 32);
                     }),
             {"1048576 heads of 32"});
  expect_has(refusal(kQwen, [](JsonObject& o) { o.set("vocab_size", -151); }), {"vocab_size = -151"});
  expect_has(refusal(kQwen,
                     [](JsonObject& o) {
                       o.set("hidden_size", 1 << 20);
                       o.set("moe_intermediate_size", 1 << 20);
                       o.set("num_experts", 1 << 10);
                       o.set("num_hidden_layers", 1 << 13);
                     }),
             {"elements"});
}

TEST(ModelConfig, PublishedFilesAreReadAsTheyAre) {
  const ModelConfig v3 = read_model_config(golden_json("configs/DeepSeek-V3/config.json"), "config.json");
  EXPECT_EQ(v3.num_mtp, 1);
  EXPECT_EQ(v3.num_moe_layers(), 58);
  EXPECT_EQ(v3.num_blocks(), 62);
  const ModelConfig glm = read_model_config(golden_json("configs/GLM-4.5-Air/config.json"), "config.json");
  EXPECT_EQ(glm.pad_token_id, 151329);
  EXPECT_EQ(glm.eos_token_ids, (std::vector<std::int64_t>{151329, 151336, 151338}));
  EXPECT_FALSE(glm.attention.qk_norm);
  EXPECT_EQ(with_mtp(glm, 0).num_blocks(), 46);
  EXPECT_NO_THROW(read_model_config(golden_json("configs/Qwen3-30B-A3B/config.json"), "config.json"));
}

}  // namespace
}  // namespace planalto
