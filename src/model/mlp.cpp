// SPDX-License-Identifier: Apache-2.0
#include "model/mlp.h"

#include "ops/linear.h"
#include "ops/rows.h"

namespace planalto {

Mlp::Mlp(const ModelContext& m, const std::string& prefix)
    : m_(&m), gate_up_(&m.parameters->at(prefix + ".gate_up")), down_(&m.parameters->at(prefix + ".down")) {
  name_ = prefix.substr(prefix.rfind('.') + 1);
}

void Mlp::forward(Builder& b, const ops::Rows& rows, Buffer x, Buffer y, bool accumulate) {
  const auto scope = b.scope(name_);
  const std::int64_t width = down_->spec.cols;
  x_ = x;
  hidden_ = b.transient("hidden", m_->dtype, rows.max_rows(), 2 * width);
  ops::linear(b, "gate_up", x, gate_up_->matrix(), hidden_, rows);
  const Buffer act = b.transient("act", m_->dtype, rows.max_rows(), width);
  ops::swiglu(b, "swiglu", hidden_, {}, act, rows);
  ops::linear(b, "down", act, down_->matrix(), y, rows, {}, accumulate);
}

void Mlp::backward(Builder& b, const ops::Rows& rows, Buffer dy, Buffer dx, bool accumulate) {
  const auto scope = b.scope(name_);
  const std::int64_t width = down_->spec.cols;
  const Buffer dact = b.transient("dact", m_->dtype, rows.max_rows(), width);
  ops::linear_grad_input(b, "down.grad_input", dy, down_->matrix(), dact, rows);
  const Buffer act = b.transient("act_again", m_->dtype, rows.max_rows(), width);
  ops::swiglu_backward(b, "swiglu.backward", hidden_, {}, dact, hidden_, {}, act,
                       rows);  // hidden_ now holds its gradient
  ops::linear_grad_weight(b, "down.grad_weight", dy, act, down_->gradient, rows);
  ops::linear_grad_weight(b, "gate_up.grad_weight", hidden_, x_, gate_up_->gradient, rows);
  ops::linear_grad_input(b, "gate_up.grad_input", hidden_, gate_up_->matrix(), dx, rows, accumulate);
}

}  // namespace planalto
