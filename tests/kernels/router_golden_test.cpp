// SPDX-License-Identifier: Apache-2.0
// router_golden_test.cpp: the router against routing.safetensors, made by other implementations (tests/golden/README.md, 9).
#include <cstring>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "router_testing.h"

namespace planalto::test {
namespace {

using kernels::GroupScore, kernels::RouterOptions, kernels::RouterScore;

struct GoldenFile {
  MappedFile file{std::string(PLANALTO_GOLDEN) + "/routing/routing.safetensors"};
  JsonValue header;
  std::int64_t data = 0;

  GoldenFile() {
    std::uint64_t length = 0;
    std::memcpy(&length, file.bytes().data(), sizeof length);
    data = 8 + static_cast<std::int64_t>(length);
    header = parse_json(file.text().substr(8, length), "routing.safetensors");
  }
  template <class T>
  std::vector<T> tensor(const std::string& name) const {
    const JsonValue* entry = header.find(name);
    if (entry == nullptr) return {};
    const JsonArray& offsets = entry->at("data_offsets", name).as_array(name);
    const std::int64_t begin = offsets[0].as_int64(name), end = offsets[1].as_int64(name);
    std::vector<T> values(static_cast<std::size_t>(end - begin) / sizeof(T));
    std::memcpy(values.data(), file.bytes().data() + data + begin, static_cast<std::size_t>(end - begin));
    return values;
  }
};

std::int64_t integer(const JsonValue& config, std::initializer_list<const char*> keys,
                     std::int64_t otherwise) {
  for (const char* key : keys) {
    if (const JsonValue* v = config.find(key); v != nullptr) return v->as_int64(key);
  }
  return otherwise;
}

RouterOptions options_of(const JsonValue& config) {
  const std::string family = config.at("model_type", "config").as_string("model_type");
  RouterOptions o{.num_experts = integer(config, {"n_routed_experts", "num_experts", "num_local_experts"}, 0),
                  .top_k = integer(config, {"num_experts_per_tok"}, 0),
                  .num_groups = integer(config, {"n_group"}, 1),
                  .top_groups = integer(config, {"topk_group"}, 1)};
  if (const JsonValue* flag = config.find("norm_topk_prob"); flag != nullptr)
    o.normalize = flag->as_bool("norm_topk_prob");
  if (const JsonValue* factor = config.find("routed_scaling_factor"); factor != nullptr)
    o.scaling = factor->as_double("routed_scaling_factor");
  if (family == "deepseek_v3") o.score = RouterScore::sigmoid;
  if (family == "deepseek_v2") o.group_score = GroupScore::best;
  return o;
}

TEST(Router, GoldenRoutesOfOtherImplementations) {
  const GoldenFile golden;
  std::int64_t checked = 0;
  for (const JsonMember& tag : golden.header.at("__metadata__", "header").as_object("__metadata__")) {
    SCOPED_TRACE(tag.key);
    const RouterOptions o = options_of(parse_json(tag.value.as_string(tag.key), tag.key));
    const std::vector<std::int64_t> ids = golden.tensor<std::int64_t>(tag.key + ".topk_idx");
    const std::vector<float> weights = golden.tensor<float>(tag.key + ".topk_weight");
    Routing r(o, golden.tensor<float>(tag.key + ".logits"),
              golden.tensor<float>(tag.key + ".e_score_correction_bias"));
    ASSERT_EQ(r.tokens(), 64);
    EXPECT_EQ(r.bias.empty(), o.score == RouterScore::softmax);
    for_each_context([&](const ExecContext& ctx) {
      kernels::router_forward(ctx, r.forward());
      EXPECT_EQ(std::vector<std::int64_t>(r.ids.begin(), r.ids.end()), ids);
      ASSERT_EQ(r.weights.size(), weights.size());
      for (std::size_t i = 0; i < weights.size(); ++i)
        ASSERT_NEAR(r.weights[i], weights[i], 5e-5F * weights[i]) << i;
    });
    ++checked;
  }
  EXPECT_EQ(checked, 11);
}

}  // namespace
}  // namespace planalto::test
