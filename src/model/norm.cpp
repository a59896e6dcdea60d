// SPDX-License-Identifier: Apache-2.0
#include "model/norm.h"

namespace planalto {

Norm::Norm(const ModelContext& m, const std::string& parameter, double eps, std::int64_t heads)
    : m_(&m), weight_(&m.parameters->at(parameter)), shape_{heads, static_cast<float>(eps)} {
  name_ = parameter.substr(parameter.rfind('.') + 1);
}

Buffer Norm::forward(Builder& b, const ops::Rows& rows, const ops::Cols& x) {
  const std::int64_t cols = weight_->spec.elements() * shape_.heads;
  const Buffer y = b.transient(name_, m_->dtype, rows.max_rows(), cols);
  forward(b, rows, x, y);
  return y;
}

void Norm::forward(Builder& b, const ops::Rows& rows, const ops::Cols& x, const ops::Cols& y) {
  x_ = x;
  rstd_ = m_->options.training ? b.transient(name_ + ".rstd", DType::f32, rows.max_rows(), shape_.heads)
                               : Buffer{};
  ops::rms_norm(b, name_, x, weight_->weight, y, rstd_, rows, shape_);
}

void Norm::backward(Builder& b, const ops::Rows& rows, const ops::Cols& dy, const ops::Cols& dx,
                    bool accumulate_dx) const {
  ops::rms_norm_backward(b, name_ + ".backward", x_, weight_->weight, rstd_, dy, dx, accumulate_dx,
                         weight_->gradient, rows, shape_);
}

}  // namespace planalto
