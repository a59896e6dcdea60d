// SPDX-License-Identifier: Apache-2.0
// mlp.h: the SwiGLU MLP: dense layers and shared experts.
// Shapes      x, y [T, D]; gate_up [T, 2F]; act [T, F]; weights gate_up [2F, D], down [D, F]
// Memory      keeps x and gate_up; act is computed again in backward
#pragma once

#include <string>

#include "model/context.h"

namespace planalto {

class Mlp {
 public:
  Mlp() = default;
  Mlp(const ModelContext& m, const std::string& prefix);  // "layers.0.mlp"

  // y (+)= mlp(x)
  void forward(Builder& b, const ops::Rows& rows, Buffer x, Buffer y, bool accumulate);
  // dx (+)= gradient
  void backward(Builder& b, const ops::Rows& rows, Buffer dy, Buffer dx, bool accumulate);

 private:
  const ModelContext* m_ = nullptr;
  const Parameter* gate_up_ = nullptr;
  const Parameter* down_ = nullptr;
  std::string name_;
  Buffer x_, hidden_;  // hidden: gate and up before the activation
};

}  // namespace planalto
