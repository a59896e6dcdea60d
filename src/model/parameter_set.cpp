// SPDX-License-Identifier: Apache-2.0
#include "model/parameter_set.h"

#include "base/error.h"
#include "kernels/packed_weight.h"

namespace planalto {

namespace {

// The choice of experts must not move with the rounding of a weight: the router computes in fp32 throughout.
bool always_fp32(const ParameterSpec& spec) {
  return spec.role == ParameterRole::router || spec.role == ParameterRole::router_bias;
}

// What only products read. The embedding is read by row too (and it is the head where the two are tied), vectors by norms.
bool is_product_weight(const ParameterSpec& spec) {
  if (spec.kind == ParameterKind::vector) return false;
  switch (spec.role) {
    case ParameterRole::attention:
    case ParameterRole::dense_mlp:
    case ParameterRole::routed_expert:
    case ParameterRole::shared_expert:
    case ParameterRole::mtp:
    case ParameterRole::head:
      return true;
    default:
      return false;
  }
}

}  // namespace

ParameterSet::ParameterSet(BufferTable& table, const ModelConfig& config, const ParameterOptions& options) {
  const Precision precision = options.precision;
  const bool packs = options.packed && options.training && precision == Precision::bf16;
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
    if (packs && is_product_weight(spec)) {
      const std::int64_t n = spec.rows / spec.num_stacked,
                         lines = kernels::packed_panel_lines(options.target.isa);
      auto add_copy = [&](const char* kind, std::int64_t num_lines, std::int64_t depth) {
        return table.add({.name = kind + spec.name,
                          .dtype = DType::bf16,
                          .rows = spec.num_stacked * ((num_lines + lines - 1) / lines),
                          .cols = lines * kernels::packed_depth(depth),
                          .role = Role::parameter,
                          .persistent = true});
      };
      p.packed_forward = add_copy("packed_forward.", n, spec.cols);
      p.packed_backward = add_copy("packed_backward.", spec.cols, n);
    } else {
      p.weight = add("weight", dtype, Role::parameter);
    }
    if (options.training && spec.trainable) {
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
