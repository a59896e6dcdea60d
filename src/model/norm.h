// SPDX-License-Identifier: Apache-2.0
// norm.h: RMSNorm as a module: forward keeps its input and 1/rms, backward returns or adds the gradient.
// Shapes      x, y [T, D], or heads: [T, heads * d] with one weight [d] for all heads
#pragma once

#include <string>

#include "model/context.h"
#include "ops/rows.h"

namespace planalto {

class Norm {
 public:
  Norm() = default;
  Norm(const ModelContext& m, const std::string& parameter, double eps, std::int64_t heads = 1);

  Buffer forward(Builder& b, const ops::Rows& rows, const ops::Cols& x);
  // Into columns of a wider buffer.
  void forward(Builder& b, const ops::Rows& rows, const ops::Cols& x, const ops::Cols& y);
  // dx (+)= gradient; dx may be dy.
  void backward(Builder& b, const ops::Rows& rows, const ops::Cols& dy, const ops::Cols& dx,
                bool accumulate_dx) const;

 private:
  const ModelContext* m_ = nullptr;
  const Parameter* weight_ = nullptr;
  std::string name_;
  ops::NormShape shape_;
  ops::Cols x_;
  Buffer rstd_;
};

}  // namespace planalto
