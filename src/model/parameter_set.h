// SPDX-License-Identifier: Apache-2.0
// parameter_set.h: the persistent buffers behind each parameter: compute weight, gradient, master and moments.
// Shapes      weight [rows, cols] in the compute dtype (router and its bias always fp32); gradient, master, m, v fp32
// Invariants  in fp32 the master is the weight itself; a parameter that is not trainable has a weight alone. In bf16 training the
//             matrices that only products read are packed copies instead of a weight, in the layout of the ISA
// Memory      names buffers in the table; owns no memory
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "model/parameters.h"
#include "ops/operand.h"
#include "program/buffer.h"

namespace planalto {

enum class Precision { fp32, bf16 };
inline DType compute_dtype(Precision p) {
  return p == Precision::fp32 ? DType::f32 : DType::bf16;
}

struct Parameter {
  ParameterSpec spec;
  Buffer weight;                           // invalid: packed
  Buffer packed_forward, packed_backward;  // invalid: a plain weight
  Buffer gradient;                         // invalid: not trainable, or an inference run
  Buffer master, m, v;

  bool packed() const { return packed_forward.valid(); }
  // For a product.
  ops::Weight matrix() const {
    if (!packed()) return weight;
    return {packed_forward, packed_backward, spec.num_stacked, spec.rows, spec.cols};
  }
};

struct ParameterOptions {
  Precision precision = Precision::fp32;
  bool training = false;
  // Whether bf16 training packs what products read, for the ISA of the target.
  bool packed = false;
  Target target{};
};

class ParameterSet {
 public:
  ParameterSet(BufferTable& table, const ModelConfig& config, const ParameterOptions& options);

  const std::vector<Parameter>& all() const { return parameters_; }
  bool has(const std::string& name) const { return index_.contains(name); }
  // Internal error when there is none of that name.
  const Parameter& at(const std::string& name) const;

 private:
  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace planalto
