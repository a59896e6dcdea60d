// SPDX-License-Identifier: Apache-2.0
#include "model/rope_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "base/json.h"
#include "model/config_reader.h"

namespace planalto {
namespace {

// Growth of the attention's temperature with the stretch of the context (YaRN, section 3.4).
double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

constexpr std::string_view kRopeKeys[] = {"rope_type",        "type",
                                          "rope_theta",       "partial_rotary_factor",
                                          "factor",           "original_max_position_embeddings",
                                          "attention_factor", "beta_fast",
                                          "beta_slow",        "mscale",
                                          "mscale_all_dim",   "truncate",
                                          "low_freq_factor",  "high_freq_factor"};

// Keys of rope_parameters (transformers 5) and rope_scaling (4). A file may have both, and some keys beside them; what is given
// twice must agree.
class RopeKeys {
 public:
  explicit RopeKeys(ConfigReader& reader) : reader_(reader) {
    for (const char* name : {"rope_parameters", "rope_scaling"}) {
      const JsonValue* value = reader.find(name);
      if (value == nullptr || !reader.require(value->is_object(), "{} is no object", name)) continue;
      (tables_[0].value == nullptr ? tables_[0] : tables_[1]) = {name, value};
      refuse_unknown(name, *value);
    }
    if (tables_[1].value == nullptr) return;
    for (const std::string_view key : kRopeKeys)
      agree(key, find_in(tables_[1], key), full_name(tables_[1], key));
  }
  const JsonValue* find(std::string_view key) const {
    const JsonValue* value = find_in(tables_[0], key);
    return value != nullptr ? value : find_in(tables_[1], key);
  }
  // The name of a key in messages: in the table that has it.
  std::string full_name(std::string_view key) const {
    return full_name(
        find_in(tables_[0], key) == nullptr && find_in(tables_[1], key) != nullptr ? tables_[1] : tables_[0],
        key);
  }
  // A mistake unless `other`, where it is given, is what the tables say.
  void agree(std::string_view key, const JsonValue* other, const std::string& other_name) {
    const JsonValue* value = find(key);
    if (value == nullptr || other == nullptr || same(*value, *other)) return;
    reader_.mistake("{} = {} and {} = {} mean the same and differ", full_name(key), write_json(*value),
                    other_name, write_json(*other));
  }
  // True when the key is there and has the right type.
  template <class T>
  bool read(std::string_view key, T& out) {
    const JsonValue* value = find(key);
    return value != nullptr && reader_.read(*value, full_name(key), out);
  }
  // The same, also looking beside the tables, where transformers 4 puts some keys.
  void read_anywhere(std::string_view key, double& out) {
    const JsonValue* beside = reader_.find(key);
    agree(key, beside, std::string(key));
    if (find(key) != nullptr) {
      read(key, out);
    } else if (beside != nullptr) {
      reader_.read(*beside, key, out);
    }
  }
  void need(std::string_view key, double& out) {
    if (find(key) == nullptr) {
      reader_.mistake("{} is missing: this rope type needs it", full_name(key));
    } else {
      read(key, out);
    }
  }

 private:
  struct Table {
    std::string_view name = "rope_scaling";
    const JsonValue* value = nullptr;
  };
  static const JsonValue* find_in(const Table& table, std::string_view key) {
    const JsonValue* value = table.value != nullptr ? table.value->find(key) : nullptr;
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  static std::string full_name(const Table& table, std::string_view key) {
    return fmt::format("{}.{}", table.name, key);
  }
  static bool same(const JsonValue& a, const JsonValue& b) {
    if (a.is_number() && b.is_number()) return a.as_double("a") == b.as_double("b");
    return a == b;
  }
  static std::string known_keys() {
    std::string all;
    for (const std::string_view key : kRopeKeys) all.append(all.empty() ? "" : ", ").append(key);
    return all;
  }
  void refuse_unknown(const char* name, const JsonValue& table) {
    for (const JsonMember& m : table.as_object(name)) {
      const bool known = std::find(std::begin(kRopeKeys), std::end(kRopeKeys), m.key) != std::end(kRopeKeys);
      if (known || m.value.is_null()) continue;
      reader_.mistake("{}.{} is unknown; legal: {}", name, m.key, known_keys());
    }
  }

  ConfigReader& reader_;
  Table tables_[2];
};

RopeScaling read_type(ConfigReader& reader, RopeKeys& keys) {
  std::string type = "default";
  keys.agree("rope_type", keys.find("type"), keys.full_name("type"));
  if (!keys.read("rope_type", type)) keys.read("type", type);
  if (type == "default") return RopeScaling::none;
  if (type == "linear") return RopeScaling::linear;
  if (type == "dynamic") return RopeScaling::dynamic;
  if (type == "yarn") return RopeScaling::yarn;
  if (type == "llama3") return RopeScaling::llama3;
  reader.mistake("{} \"{}\" is unknown; legal: default, linear, dynamic, yarn, llama3",
                 keys.full_name("rope_type"), type);
  return RopeScaling::none;
}

void read_yarn(ConfigReader& reader, RopeKeys& keys, RopeConfig& rope) {
  keys.read("beta_fast", rope.beta_fast);
  keys.read("beta_slow", rope.beta_slow);
  keys.read("truncate", rope.truncate);
  reader.require(rope.beta_slow > 0.0 && rope.beta_fast >= rope.beta_slow,
                 "{} = {} and beta_fast = {}; legal: 0 < beta_slow <= beta_fast", keys.full_name("beta_slow"),
                 rope.beta_slow, rope.beta_fast);
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  double attention_factor = 0.0;
  keys.read("mscale", mscale);
  keys.read("mscale_all_dim", mscale_all_dim);
  if (keys.read("attention_factor", attention_factor)) {
    reader.require(attention_factor > 0.0, "{} = {}; a number above 0 is expected",
                   keys.full_name("attention_factor"), attention_factor);
    rope.cos_sin_scale = attention_factor;
  } else if (mscale != 0.0 && mscale_all_dim != 0.0) {
    rope.cos_sin_scale = yarn_mscale(rope.factor, mscale) / yarn_mscale(rope.factor, mscale_all_dim);
  } else {
    rope.cos_sin_scale = yarn_mscale(rope.factor, 1.0);
  }
}

void read_scaling(ConfigReader& reader, RopeKeys& keys, RopeConfig& rope, bool mscale_in_softmax) {
  rope.original_max_positions = rope.max_positions;
  if (keys.read("original_max_position_embeddings", rope.original_max_positions)) {
    reader.require(rope.original_max_positions >= 1, "{} = {}; at least 1 is expected",
                   keys.full_name("original_max_position_embeddings"), rope.original_max_positions);
  }
  if (rope.scaling == RopeScaling::none) return;
  // Without a factor, YaRN stretches the original context to the present one.
  if (rope.scaling == RopeScaling::yarn && keys.find("factor") == nullptr) {
    rope.factor = static_cast<double>(rope.max_positions) / static_cast<double>(rope.original_max_positions);
  } else {
    keys.need("factor", rope.factor);
  }
  reader.require(rope.factor > 0.0 && std::isfinite(rope.factor), "{} = {}; a number above 0 is expected",
                 keys.full_name("factor"), rope.factor);
  if (rope.scaling == RopeScaling::yarn) read_yarn(reader, keys, rope);
  double mscale_all_dim = 0.0;
  if (mscale_in_softmax && keys.read("mscale_all_dim", mscale_all_dim) && mscale_all_dim != 0.0) {
    const double temperature = yarn_mscale(rope.factor, mscale_all_dim);
    rope.softmax_factor = temperature * temperature;
  }
  if (rope.scaling == RopeScaling::llama3) {
    keys.need("low_freq_factor", rope.low_freq_factor);
    keys.need("high_freq_factor", rope.high_freq_factor);
    reader.require(rope.low_freq_factor > 0.0 && rope.high_freq_factor > rope.low_freq_factor,
                   "{} = {} and high_freq_factor = {}; legal: 0 < low_freq_factor < high_freq_factor",
                   keys.full_name("low_freq_factor"), rope.low_freq_factor, rope.high_freq_factor);
  }
  if (rope.scaling == RopeScaling::dynamic) {
    reader.require(rope.rotary_dim > 2,
                   "rope type dynamic needs more than 2 rotating elements a head, not {}", rope.rotary_dim);
  }
}

double power_frequency(double theta, std::int64_t pair, std::int64_t rotary_dim) {
  return 1.0 / std::pow(theta, static_cast<double>(2 * pair) / static_cast<double>(rotary_dim));
}

// The pair (as a real number) whose wave turns `rotations` times over the original context.
double yarn_pair_of(double rotations, const RopeConfig& rope) {
  const double context = static_cast<double>(rope.original_max_positions);
  return static_cast<double>(rope.rotary_dim) * std::log(context / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(rope.theta));
}

// Fast pairs keep their frequency, slow ones are stretched by the factor, a ramp lies between.
void stretch_yarn(const RopeConfig& rope, std::vector<double>& inv_freq) {
  double low = yarn_pair_of(rope.beta_fast, rope);
  double high = yarn_pair_of(rope.beta_slow, rope);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope.rotary_dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = inv_freq[i] / rope.factor * stretched + inv_freq[i] * (1.0 - stretched);
  }
}

// Bands by wavelength: short waves are kept, long ones stretched, the band between blends.
void stretch_llama3(const RopeConfig& rope, std::vector<double>& inv_freq) {
  const double context = static_cast<double>(rope.original_max_positions);
  for (double& f : inv_freq) {
    const double wavelength = 2.0 * std::numbers::pi / f;
    if (wavelength > context / rope.low_freq_factor) {
      f /= rope.factor;
    } else if (wavelength >= context / rope.high_freq_factor) {
      const double kept =
          (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      f = (1.0 - kept) * f / rope.factor + kept * f;
    }
  }
}

}  // namespace

std::vector<double> rope_frequencies(const RopeConfig& rope, std::int64_t sequence_length) {
  double theta = rope.theta;
  if (rope.scaling == RopeScaling::dynamic && sequence_length > rope.max_positions) {
    const double stretch = static_cast<double>(sequence_length) / static_cast<double>(rope.max_positions);
    const double dim = static_cast<double>(rope.rotary_dim);
    theta *= std::pow(rope.factor * stretch - (rope.factor - 1.0), dim / (dim - 2.0));
  }
  std::vector<double> inv_freq(static_cast<std::size_t>(rope.rotary_dim / 2));
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = power_frequency(theta, static_cast<std::int64_t>(i), rope.rotary_dim);
  }
  if (rope.scaling == RopeScaling::linear) {
    for (double& f : inv_freq) f /= rope.factor;
  }
  if (rope.scaling == RopeScaling::yarn) stretch_yarn(rope, inv_freq);
  if (rope.scaling == RopeScaling::llama3) stretch_llama3(rope, inv_freq);
  return inv_freq;
}

RopeConfig read_rope_config(ConfigReader& reader, const RopeRequest& request) {
  RopeConfig rope;
  rope.style = request.style;
  rope.theta = request.default_theta;
  rope.max_positions = request.max_positions;
  RopeKeys keys(reader);
  rope.scaling = read_type(reader, keys);
  keys.read_anywhere("rope_theta", rope.theta);
  reader.require(rope.theta > 1.0 && std::isfinite(rope.theta),
                 "rope_theta = {}; a number above 1 is expected", rope.theta);
  double partial = request.default_partial;
  keys.read_anywhere("partial_rotary_factor", partial);
  if (!request.partial_allowed) {
    reader.require(partial == 1.0, "partial_rotary_factor = {}; this family rotates whole heads, legal: 1",
                   partial);
  }
  if (!reader.require(partial > 0.0 && partial <= 1.0,
                      "partial_rotary_factor = {}; legal: above 0, at most 1", partial)) {
    partial = 1.0;
  }
  rope.rotary_dim = static_cast<std::int64_t>(static_cast<double>(request.head_dim) * partial);
  reader.require(rope.rotary_dim >= 2 && rope.rotary_dim % 2 == 0,
                 "{} of {} elements of a head would rotate; an even number, at least 2, is expected",
                 rope.rotary_dim, request.head_dim);
  read_scaling(reader, keys, rope, request.mscale_in_softmax);
  if (reader.clean()) rope.inv_freq = rope_frequencies(rope, rope.max_positions);
  return rope;
}

RopeCase read_rope_case(const JsonValue& config, const std::string& source) {
  ConfigReader reader(config, source);
  auto number = [&](const char* key) {
    std::int64_t value = 0;
    const JsonValue* found = reader.find(key);
    if (found != nullptr) reader.read(*found, key, value);
    return value;
  };
  RopeRequest request;
  std::int64_t qk_dim = number("head_dim");
  request.head_dim = number("qk_rope_head_dim");
  request.mscale_in_softmax = request.head_dim > 0;
  if (request.head_dim > 0) {
    request.style = kernels::RopeStyle::interleaved;
    qk_dim = request.head_dim + number("qk_nope_head_dim");
  } else {
    if (qk_dim == 0)
      qk_dim = number("hidden_size") / std::max<std::int64_t>(number("num_attention_heads"), 1);
    request.head_dim = qk_dim;
  }
  request.partial_allowed = true;
  request.max_positions = number("max_position_embeddings");
  RopeCase result;
  result.rope = read_rope_config(reader, request);
  reader.finish();
  result.softmax_scale = result.rope.softmax_factor / std::sqrt(static_cast<double>(qk_dim));
  return result;
}

}  // namespace planalto
