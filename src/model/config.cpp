// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "base/json.h"
#include "model/config_reader.h"
#include "model/families/family.h"

namespace planalto {
namespace {

// Far above any published model; their products stay below 2^63.
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;
constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 13;
constexpr std::int64_t kMaxVocab = (std::int64_t{1} << 31) - 1;

std::string known_model_types() {
  std::string all;
  for (const Family* family : families()) all += (all.empty() ? "" : ", ") + std::string(family->model_type);
  return all;
}

// Takes the first word off a list that is separated by spaces.
std::string_view next_word(std::string_view& words) {
  const std::size_t space = std::min(words.find(' '), words.size());
  const std::string_view word = words.substr(0, space);
  words.remove_prefix(std::min(space + 1, words.size()));
  return word;
}

std::string read_model_type(ConfigReader& reader) {
  std::string model_type;
  if (const JsonValue* value = reader.find("model_type")) reader.read(*value, "model_type", model_type);
  return model_type;
}

std::vector<std::string> read_architectures(const ConfigReader& reader) {
  std::vector<std::string> architectures;
  const JsonValue* list = reader.find("architectures");
  if (list == nullptr || !list->is_array()) return {};
  for (const JsonValue& name : list->as_array("architectures")) {
    if (name.is_string()) architectures.push_back(name.as_string("architectures"));
  }
  return architectures;
}

// By model_type; a foreign model_type gives way to the architecture. Null: unknown.
const Family* find_family(ConfigReader& reader) {
  const std::string model_type = read_model_type(reader);
  for (const Family* family : families()) {
    if (family->model_type == model_type) return family;
  }
  for (const Family* family : families()) {
    for (const std::string& architecture : read_architectures(reader)) {
      if (architecture == family->architecture) return family;
    }
  }
  return nullptr;
}

const Family& select_family(ConfigReader& reader) {
  if (const Family* family = find_family(reader)) return *family;
  const std::string model_type = read_model_type(reader);
  const std::vector<std::string> architectures = read_architectures(reader);
  if (model_type.empty() && architectures.empty()) {
    reader.mistake("model_type is missing; known: {}", known_model_types());
  } else {
    std::string also;
    for (const std::string& architecture : architectures) also += (also.empty() ? "" : ", ") + architecture;
    reader.mistake("model_type \"{}\"{} is unknown; known: {}", model_type,
                   also.empty() ? "" : " (architectures: " + also + ")", known_model_types());
  }
  reader.finish();
  return *families().front();  // not reached: finish throws
}

// The first spelling that is given; spellings that disagree are a mistake.
const JsonValue* find_spelling(ConfigReader& reader, const ConfigKey& key, std::string& spelling) {
  const JsonValue* found = reader.find(key.key);
  spelling = key.key;
  std::string_view rest = key.also;
  while (!rest.empty()) {
    const std::string_view name = next_word(rest);
    const JsonValue* other = reader.find(name);
    if (other == nullptr) continue;
    if (found == nullptr) {
      found = other;
      spelling = name;
    } else if (!(*found == *other)) {
      reader.mistake("{} = {} and {} = {} mean the same and differ", spelling, write_json(*found), name,
                     write_json(*other));
    }
  }
  return found;
}

void set_default(ConfigReader& reader, const ConfigKey& key, ConfigKeys& values) {
  if (key.null != KeyNull::as_absent && reader.holds_null(key.key)) {
    reader.require(key.null == KeyNull::keep, "{} is null; a value is expected", key.key);
    return;
  }
  if (std::holds_alternative<std::monostate>(key.otherwise)) {
    reader.mistake(
        "{} is missing{}", key.key,
        key.null == KeyNull::keep ? " (it may be null, but transformers has another default)" : "");
    return;
  }
  std::visit(
      [&](auto field) {
        using T = std::remove_reference_t<decltype(values.*field)>;
        if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, double> ||
                      std::is_same_v<T, bool>) {
          if (const T* value = std::get_if<T>(&key.otherwise)) values.*field = *value;
        }
      },
      key.field);
}

ConfigKeys read_keys(ConfigReader& reader, const Family& family) {
  ConfigKeys values;
  for (const ConfigKey& key : family.keys) {
    std::string spelling;
    const JsonValue* value = find_spelling(reader, key, spelling);
    if (value == nullptr) {
      set_default(reader, key, values);
    } else {
      std::visit([&](auto field) { reader.read(*value, spelling, values.*field); }, key.field);
    }
  }
  return values;
}

// The spelling that the family's own table uses for a field.
std::string_view key_of(const Family& family, std::int64_t ConfigKeys::*field) {
  for (const ConfigKey& key : family.keys) {
    const auto* candidate = std::get_if<std::int64_t ConfigKeys::*>(&key.field);
    if (candidate != nullptr && *candidate == field) return key.key;
  }
  return "?";
}

class Builder {
 public:
  Builder(ConfigReader& reader, const Family& family)
      : reader_(reader), family_(family), keys_(read_keys(reader, family)) {}
  ModelConfig build();

 private:
  bool in_range(std::int64_t ConfigKeys::*field, std::int64_t low, std::int64_t high) {
    const std::int64_t value = keys_.*field;
    return reader_.require(value >= low && value <= high, "{} = {}; legal: {} to {}", key_of(family_, field),
                           value, low, high);
  }
  void general(ModelConfig& model);
  void attention(ModelConfig& model);
  void gqa(AttentionConfig& a);
  void mla(AttentionConfig& a);
  void rope(AttentionConfig& a);
  void layers(ModelConfig& model);
  void experts(ModelConfig& model);
  void router(MoeConfig& moe);
  void fixed_router();
  void keys_of_others();
  void layer_lists(const ModelConfig& model);

  ConfigReader& reader_;
  const Family& family_;
  ConfigKeys keys_;
};

void Builder::general(ModelConfig& model) {
  in_range(&ConfigKeys::hidden_size, 1, kMaxWidth);
  in_range(&ConfigKeys::num_layers, 1, kMaxBlocks);
  in_range(&ConfigKeys::vocab_size, 1, kMaxVocab);
  in_range(&ConfigKeys::max_positions, 1, kMaxVocab);
  reader_.require(keys_.norm_eps > 0.0 && keys_.norm_eps < 1.0, "rms_norm_eps = {}; legal: above 0, below 1",
                  keys_.norm_eps);
  reader_.require(keys_.initializer_range >= 0.0 && std::isfinite(keys_.initializer_range),
                  "initializer_range = {}; a number not below 0 is expected", keys_.initializer_range);
  reader_.require(keys_.activation == "silu" || keys_.activation == "swish",
                  "hidden_act \"{}\" is unknown; legal: silu, swish (the same)", keys_.activation);
  reader_.require(keys_.attention_dropout == 0.0,
                  "attention_dropout = {}; there is no dropout here, legal: 0", keys_.attention_dropout);
  if (keys_.pad_token_id != -1) {
    reader_.require(keys_.pad_token_id >= 0 && keys_.pad_token_id < keys_.vocab_size,
                    "pad_token_id = {}; legal: null, or 0 to vocab_size - 1 = {}", keys_.pad_token_id,
                    keys_.vocab_size - 1);
  }
  model.family = &family_;
  model.hidden_size = keys_.hidden_size;
  model.num_layers = keys_.num_layers;
  model.vocab_size = keys_.vocab_size;
  model.norm_eps = keys_.norm_eps;
  model.tie_embeddings = keys_.tie_embeddings;
  model.pad_token_id = keys_.pad_token_id;
  const auto is_token = [&](std::int64_t id) {
    return id >= -1 && id < std::max<std::int64_t>(keys_.vocab_size, 0);
  };
  reader_.require(is_token(keys_.bos_token_id), "bos_token_id = {}; legal: 0 .. vocab_size - 1 = {}, null",
                  keys_.bos_token_id, keys_.vocab_size - 1);
  for (const std::int64_t id : keys_.eos_token_ids) {
    reader_.require(is_token(id), "eos_token_id = {}; legal: 0 .. vocab_size - 1 = {}, null", id,
                    keys_.vocab_size - 1);
  }
  model.bos_token_id = keys_.bos_token_id;
  model.eos_token_ids = keys_.eos_token_ids;
  model.initializer_range = keys_.initializer_range;
  model.max_positions = keys_.max_positions;
}

void Builder::gqa(AttentionConfig& a) {
  a.num_kv_heads = keys_.num_kv_heads == 0 ? keys_.num_heads : keys_.num_kv_heads;
  if (reader_.require(a.num_kv_heads >= 1, "num_key_value_heads = {}; at least 1 is expected",
                      a.num_kv_heads) &&
      keys_.num_heads >= 1) {
    reader_.require(keys_.num_heads % a.num_kv_heads == 0,
                    "num_attention_heads = {} is no multiple of num_key_value_heads = {}", keys_.num_heads,
                    a.num_kv_heads);
  }
  std::int64_t head_dim = keys_.head_dim;
  if (head_dim == 0 && keys_.num_heads >= 1) {
    reader_.require(keys_.hidden_size % keys_.num_heads == 0,
                    "head_dim is not given and hidden_size = {} is no multiple of num_attention_heads = {}",
                    keys_.hidden_size, keys_.num_heads);
    head_dim = keys_.hidden_size / keys_.num_heads;
  } else {
    in_range(&ConfigKeys::head_dim, 1, kMaxWidth);
  }
  a.qk_dim = a.v_dim = head_dim;
  a.qk_norm = family_.options.always_qk_norm || keys_.qk_norm;
  a.qkv_bias = keys_.attention_bias;
  a.o_bias = keys_.attention_bias && family_.options.o_bias;
  // transformers writes a window that is off as null, as 0, or as a width with use_sliding_window false.
  if (keys_.use_window && keys_.window != 0) {
    in_range(&ConfigKeys::window, 1, kMaxVocab);
    a.window = keys_.window;
    // Versions of transformers differ: some leave the first layers without a window, the present ones none.
    const JsonValue* full = reader_.find("max_window_layers");
    reader_.require(
        full == nullptr || (full->is_integer() && full->as_int64("max_window_layers") == 0),
        "max_window_layers = {} with use_sliding_window; every layer has the window, legal: 0, null",
        full == nullptr ? "null" : write_json(*full));
  }
}

void Builder::mla(AttentionConfig& a) {
  a.num_kv_heads =
      keys_.num_heads;  // whatever the file says: each head has its own, made from the one latent
  in_range(&ConfigKeys::q_lora_rank, 0, kMaxWidth);
  in_range(&ConfigKeys::kv_lora_rank, 1, kMaxWidth);
  in_range(&ConfigKeys::nope_dim, 1, kMaxWidth);
  in_range(&ConfigKeys::rope_dim, 2, kMaxWidth);
  in_range(&ConfigKeys::v_dim, 1, kMaxWidth);
  a.q_lora_rank = keys_.q_lora_rank;
  a.kv_lora_rank = keys_.kv_lora_rank;
  a.nope_dim = keys_.nope_dim;
  a.rope_dim = keys_.rope_dim;
  a.qk_dim = keys_.nope_dim + keys_.rope_dim;
  reader_.require(keys_.qk_dim == 0 || keys_.qk_dim == a.qk_dim,
                  "qk_head_dim = {}, but qk_nope_head_dim = {} and qk_rope_head_dim = {}", keys_.qk_dim,
                  keys_.nope_dim, keys_.rope_dim);
  a.v_dim = keys_.v_dim;
  a.latent_bias = keys_.attention_bias;
  a.o_bias = keys_.attention_bias && family_.options.o_bias;
}

void Builder::rope(AttentionConfig& a) {
  const bool latent = a.kind == AttentionKind::mla;
  RopeRequest request;
  request.head_dim = latent ? a.rope_dim : a.qk_dim;
  request.max_positions = keys_.max_positions;
  request.partial_allowed = family_.options.partial_rotary;
  request.default_partial = family_.options.default_partial;
  request.style =
      latent && keys_.rope_interleave ? kernels::RopeStyle::interleaved : kernels::RopeStyle::halves;
  request.mscale_in_softmax = family_.options.mscale_in_softmax;
  a.rope = read_rope_config(reader_, request);
  a.softmax_scale = a.rope.softmax_factor / std::sqrt(static_cast<double>(a.qk_dim));
}

void Builder::attention(ModelConfig& model) {
  AttentionConfig& a = model.attention;
  a.kind = family_.options.attention;
  in_range(&ConfigKeys::num_heads, 1, kMaxWidth);
  a.num_heads = keys_.num_heads;
  if (a.kind == AttentionKind::mla) {
    mla(a);
  } else {
    gqa(a);
  }
  const std::int64_t width = std::max(a.qk_dim, a.v_dim);
  if (width >= 1 && a.num_heads >= 1) {
    reader_.require(a.num_heads <= kMaxWidth * 16 / width,
                    "{} heads of {} elements are more than this engine can address", a.num_heads, width);
  }
  const std::int64_t rotating = a.kind == AttentionKind::mla ? a.rope_dim : a.qk_dim;
  if (rotating >= 1 && rotating <= kMaxWidth) rope(a);
}

void Builder::layers(ModelConfig& model) {
  in_range(&ConfigKeys::first_dense, 0, kMaxBlocks);
  in_range(&ConfigKeys::num_mtp, 0, kMaxBlocks);
  in_range(&ConfigKeys::moe_layer_freq, 1, 1);
  if (!in_range(&ConfigKeys::sparse_step, 1, kMaxBlocks) || !reader_.clean()) return;
  model.num_mtp = keys_.num_mtp;
  for (std::int64_t i = 0; i < model.num_blocks(); ++i) {
    const bool listed =
        std::find(keys_.dense_layers.begin(), keys_.dense_layers.end(), i) != keys_.dense_layers.end();
    const bool moe = i >= keys_.first_dense && !listed && (i + 1) % keys_.sparse_step == 0;
    model.mlp.push_back(moe ? MlpKind::moe : MlpKind::dense);
  }
  if (std::find(model.mlp.begin(), model.mlp.end(), MlpKind::dense) != model.mlp.end()) {
    in_range(&ConfigKeys::dense_width, 1, kMaxWidth);
    model.dense_width = keys_.dense_width;
  }
}

// The family has one router: keys that name another are of another model.
void Builder::fixed_router() {
  const bool sigmoid = family_.options.score == kernels::RouterScore::sigmoid;
  const auto only = [&](const char* key, const char* legal) {
    const JsonValue* value = reader_.find(key);
    reader_.require(value == nullptr || *value == JsonValue(legal), "{} = {}; a {} model has {}", key,
                    value == nullptr ? "null" : write_json(*value), family_.model_type, legal);
  };
  only("scoring_func", sigmoid ? "sigmoid" : "softmax");
  only("topk_method", family_.options.correction_bias ? "noaux_tc" : "greedy");
}

void Builder::router(MoeConfig& moe) {
  kernels::RouterOptions& r = moe.router;
  r.num_experts = keys_.num_experts;
  r.top_k = keys_.top_k;
  r.num_groups = keys_.num_groups;
  r.top_groups = keys_.top_groups;
  r.score = family_.options.score;
  r.normalize = keys_.normalize;
  r.scaling = keys_.routed_scaling;
  moe.correction_bias = family_.options.correction_bias;
  reader_.require(r.scaling > 0.0 && std::isfinite(r.scaling),
                  "routed_scaling_factor = {}; a number above 0 is expected", r.scaling);
  if (!family_.options.topk_method_key) {
    fixed_router();
    return;
  }
  if (keys_.scoring == "softmax") r.score = kernels::RouterScore::softmax;
  reader_.require(keys_.scoring == "sigmoid" || keys_.scoring == "softmax",
                  "scoring_func \"{}\" is unknown; legal: sigmoid, softmax", keys_.scoring);
  const std::string& method = keys_.topk_method;
  moe.correction_bias = method == "noaux_tc";
  if (method == "group_limited_greedy") r.group_score = kernels::GroupScore::best;
  if (method == "greedy") r.num_groups = r.top_groups = 1;
  reader_.require(method == "noaux_tc" || method == "group_limited_greedy" || method == "greedy",
                  "topk_method \"{}\" is unknown; legal: noaux_tc, group_limited_greedy, greedy", method);
}

void Builder::experts(ModelConfig& model) {
  const std::string_view experts_key = key_of(family_, &ConfigKeys::num_experts);
  const bool counted = in_range(&ConfigKeys::num_experts, 1, kernels::kMaxExperts);
  in_range(&ConfigKeys::expert_width, 1, kMaxWidth);
  in_range(&ConfigKeys::num_shared, 0, 64);
  MoeConfig& moe = model.moe;
  moe.num_experts = keys_.num_experts;
  moe.top_k = keys_.top_k;
  moe.width = keys_.expert_width;
  moe.shared_width = keys_.num_shared * keys_.expert_width;
  moe.aux_coefficient = keys_.aux_coefficient;
  router(moe);
  if (!counted) return;
  const kernels::RouterOptions& r = moe.router;
  const std::int64_t most = std::min(r.num_experts, kernels::kMaxTopK);
  const bool chosen = reader_.require(r.top_k >= 1 && r.top_k <= most,
                                      "num_experts_per_tok = {} with {} = {}; legal: 1 to {}", r.top_k,
                                      experts_key, r.num_experts, most);
  if (!reader_.require(r.num_groups >= 1 && r.num_experts % r.num_groups == 0,
                       "n_group = {} does not divide {} = {}", r.num_groups, experts_key, r.num_experts)) {
    return;
  }
  const std::int64_t group = r.num_experts / r.num_groups;
  if (!reader_.require(r.top_groups >= 1 && r.top_groups <= r.num_groups,
                       "topk_group = {} with n_group = {}; legal: 1 to {}", r.top_groups, r.num_groups,
                       r.num_groups)) {
    return;
  }
  if (chosen) {
    reader_.require(r.top_k <= r.top_groups * group,
                    "num_experts_per_tok = {}, but topk_group = {} of n_group = {} keep {} of {} = {}",
                    r.top_k, r.top_groups, r.num_groups, r.top_groups * group, experts_key, r.num_experts);
  }
  if (r.num_groups > 1 && r.group_score == kernels::GroupScore::top2_sum) {
    reader_.require(
        group >= 2,
        "n_group = {} leaves 1 of {} = {} in a group, where the two best are added; legal: up to {}",
        r.num_groups, experts_key, r.num_experts, r.num_experts / 2);
  }
}

// Keys that mean something in other models, with the values under which they mean nothing: a file of this family that gives
// another value is of a model that this engine would compute wrongly.
struct ForeignKey {
  std::string_view key;
  std::string_view harmless;  // words: numbers, true, false, [] or strings; null always is
};
constexpr ForeignKey kForeignKeys[] = {
    {"first_k_dense_replace", "0"},
    {"mlp_only_layers", "[]"},
    {"decoder_sparse_step", "1"},
    {"moe_layer_freq", "1"},
    {"n_shared_experts", "0"},
    {"shared_expert_intermediate_size", "0"},
    {"n_group", "0 1"},
    {"topk_group", "0 1"},
    {"routed_scaling_factor", "1"},
    {"num_nextn_predict_layers", "0"},
    {"num_mtp_layers", "0"},
    {"use_sliding_window", "false"},
    {"sliding_window", "0"},
    {"kv_lora_rank", ""},
    {"q_lora_rank", ""},
    {"rope_interleave", "false"},
    {"use_qk_norm", "false"},
    {"clip_qkv", ""},
    {"mlp_bias", "false"},
    {"attention_chunk_size", ""},
    {"attn_logit_softcapping", ""},
    {"final_logit_softcapping", ""},
    {"swiglu_limit", ""},
    {"logits_scaling", "1"},
    {"residual_multiplier", "1"},
    {"embedding_multiplier", "1"},
};

bool is_harmless(const JsonValue& value, std::string_view words) {
  while (!words.empty()) {
    const std::string_view word = next_word(words);
    const bool number = value.is_number() && word.find_first_not_of("0123456789") == std::string_view::npos;
    if (number && value.as_double("a key") == static_cast<double>(word.front() - '0')) return true;
    if (!number && write_json(value) == word) return true;
  }
  return false;
}

void Builder::keys_of_others() {
  for (const ForeignKey& foreign : kForeignKeys) {
    const JsonValue* value = reader_.find(foreign.key);
    const bool ours = std::any_of(family_.keys.begin(), family_.keys.end(), [&](const ConfigKey& k) {
      return k.key == foreign.key || k.also == foreign.key;
    });
    if (value == nullptr || ours) continue;
    std::string_view harmless = foreign.harmless;
    if (foreign.key == "use_qk_norm" && family_.options.always_qk_norm) harmless = "true";
    if (foreign.key == "sliding_window" && !keys_.use_window && reader_.find("use_sliding_window") != nullptr)
      continue;
    reader_.require(is_harmless(*value, harmless), "{} = {}: a {} model has no such thing; legal: null{}{}",
                    foreign.key, write_json(*value), family_.model_type, harmless.empty() ? "" : " ",
                    harmless);
  }
}

// Files of some versions list the kind of each layer; a list must say what the other keys say.
void Builder::layer_lists(const ModelConfig& model) {
  const auto check = [&](const char* key, const auto& kind_of) {
    const JsonValue* list = reader_.find(key);
    if (list == nullptr) return;
    if (!reader_.require(list->is_array(), "{} is {}; a list of strings is expected", key, write_json(*list)))
      return;
    const JsonArray& kinds = list->as_array(key);
    if (!reader_.require(static_cast<std::int64_t>(kinds.size()) == model.num_layers,
                         "{} has {} entries; num_hidden_layers = {}", key, kinds.size(), model.num_layers)) {
      return;
    }
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const std::string kind = kind_of(static_cast<std::int64_t>(i));
      if (!reader_.require(kinds[i] == JsonValue(kind), "{}: layer {} is {}, but \"{}\" by the other keys",
                           key, i, write_json(kinds[i]), kind)) {
        return;
      }
    }
  };
  check("mlp_layer_types", [&](std::int64_t i) { return model.is_moe(i) ? "sparse" : "dense"; });
  check("layer_types",
        [&](std::int64_t) { return model.attention.window > 0 ? "sliding_attention" : "full_attention"; });
}

ModelConfig Builder::build() {
  reader_.finish();  // what is missing or of a wrong type would only lead to more messages below
  ModelConfig model;
  general(model);
  attention(model);
  layers(model);
  experts(model);
  keys_of_others();
  reader_.finish();
  layer_lists(model);
  const auto square = static_cast<double>(model.hidden_size);
  const double elements = square * 3.0 *
                          (static_cast<double>(model.moe.num_experts * model.moe.width + model.dense_width) *
                           static_cast<double>(model.num_blocks()));
  reader_.require(elements < 4e18, "the weights of this model would have {:.3g} elements", elements);
  reader_.finish();
  return model;
}

}  // namespace

std::span<const Family* const> families() {
  static const std::array<const Family*, 3> all = {&deepseek_v3_family(), &qwen3_moe_family(),
                                                   &glm4_moe_family()};
  return all;
}

std::int64_t ModelConfig::num_moe_layers() const {
  return std::count(mlp.begin(), mlp.begin() + num_layers, MlpKind::moe);
}

ModelConfig read_model_config(const JsonValue& config, const std::string& source) {
  ConfigReader reader(config, source);
  const Family& family = select_family(reader);
  return Builder(reader, family).build();
}

JsonValue complete_inline_config(const JsonValue& keys) {
  if (!keys.is_object()) return keys;
  ConfigReader reader(keys, "config");
  const Family* family = find_family(reader);
  if (family == nullptr) return keys;
  JsonObject complete = keys.as_object("config");
  // A number: transformers 5 takes no null there. Latent attention has as many as heads, and transformers insists on it.
  const JsonValue* heads = keys.find("num_attention_heads");
  const bool latent = family->options.attention == AttentionKind::mla;
  if (heads != nullptr && (latent || keys.find("num_key_value_heads") == nullptr))
    complete.set("num_key_value_heads", *heads);
  for (const ConfigKey& key : family->keys) {
    const bool nullable = key.null == KeyNull::keep && std::holds_alternative<std::monostate>(key.otherwise);
    if (nullable && complete.find(key.key) == nullptr) complete.set(key.key, nullptr);
  }
  if (keys.find("architectures") == nullptr) complete.set("architectures", JsonArray{family->architecture});
  return complete;
}

std::vector<std::string_view> known_config_keys(const JsonValue& config) {
  // Read in common, then what published files hold without influence on the computation.
  std::vector<std::string_view> keys = {"model_type",
                                        "architectures",
                                        "rope_theta",
                                        "rope_scaling",
                                        "rope_parameters",
                                        "text_config",
                                        "dtype",
                                        "torch_dtype",
                                        "transformers_version",
                                        "use_cache",
                                        "auto_map",
                                        "quantization_config",
                                        "ep_size",
                                        "pretraining_tp",
                                        "seq_aux",
                                        "aux_loss_alpha",
                                        "output_router_logits",
                                        "max_window_layers",
                                        "num_key_value_heads",
                                        "head_dim",
                                        "qk_head_dim",
                                        "partial_rotary_factor"};
  ConfigReader reader(config, "config");
  const Family* family = find_family(reader);
  if (family == nullptr) return {};
  for (const ConfigKey& key : family->keys) {
    keys.push_back(key.key);
    std::string_view rest = key.also;
    while (!rest.empty()) keys.push_back(next_word(rest));
  }
  return keys;
}

ModelConfig with_mtp(ModelConfig config, std::int64_t num_mtp) {
  PLANALTO_CHECK(num_mtp >= 0 && num_mtp <= config.num_mtp, "{} MTP modules of {}", num_mtp, config.num_mtp);
  config.num_mtp = num_mtp;
  config.mlp.resize(static_cast<std::size_t>(config.num_blocks()));
  return config;
}

}  // namespace planalto
