// SPDX-License-Identifier: Apache-2.0
#include "model/parameter_set.h"

#include "base/error.h"

namespace planalto {

namespace {

// The choice of experts must not move with the rounding of a weight: the router computes in fp32 throughout.
bool always_fp32(const ParameterSpec& spec) {
  return spec.role == ParameterRole::router || spec.role == ParameterRole::router_bias;
}

}  // namespace

ParameterSet::ParameterSet(BufferTable& table, const ModelConfig& config, Precision precision,
                           bool training) {
  for (ParameterSpec& spec : parameter_specs(config)) {
    Parameter p;
    const DType dtype = always_fp32(spec) ? DType::f32 : compute_dtype(precision);
    auto add = [&](const std::string& kind, DType type, Role role) {
      return table.add({.name = kind + "." + spec.name,
                        .dtype = type,
                        .rows = spec.rows,
                        .cols = spec.cols,
                        .role = role,
                        .persistent = true});
    };
    p.weight = add("weight", dtype, Role::parameter);
    if (training && spec.trainable) {
      p.gradient = add("gradient", DType::f32, Role::gradient);
      p.master = dtype == DType::f32 ? p.weight : add("master", DType::f32, Role::optimizer_state);
      p.m = add("m", DType::f32, Role::optimizer_state);
      p.v = add("v", DType::f32, Role::optimizer_state);
    }
    index_.emplace(spec.name, parameters_.size());
    p.spec = std::move(spec);
    parameters_.push_back(std::move(p));
  }
}

const Parameter& ParameterSet::at(const std::string& name) const {
  const auto it = index_.find(name);
  PLANALTO_CHECK(it != index_.end(), "no parameter is named {}", name);
  return parameters_[it->second];
}

}  // namespace planalto
