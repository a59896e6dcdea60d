// SPDX-License-Identifier: Apache-2.0
// moe.h: the Mixture-of-Experts layer: route, permute, grouped SwiGLU with early route weights, combine, shared expert.
// Shapes      x, y [T, D]; R = T * K rows sorted by expert; gate_up [R, 2F]; weights router [E, D] fp32, experts.gate_up [E*2F, D],
//             experts.down [E*D, F]
// Numerics    router in fp32 (x is cast once); combine sums a token's K rows in slot order in fp32
// Memory      keeps x, routes and gate_up [R, 2F]; sorted x and act are made again in backward
#pragma once

#include <optional>
#include <string>

#include "model/context.h"
#include "model/mlp.h"

namespace planalto {

class MoeLayer {
 public:
  MoeLayer() = default;
  MoeLayer(const ModelContext& m, std::int64_t block, std::int64_t moe_idx);

  // y = moe(x), overwritten
  void forward(Builder& b, const ops::Batch& batch, Buffer x, Buffer y, Pass pass);
  // dx = gradient, overwritten
  void backward(Builder& b, const ops::Batch& batch, Buffer dy, Buffer dx);

  const ops::Routes& routes() const { return routes_; }

 private:
  Buffer in_fp32(Builder& b, const ops::Rows& rows, Buffer x) const;
  void choose_experts(Builder& b, const ops::Batch& batch, Buffer x, Pass pass);
  void replay_ids(Builder& b, Buffer ids) const;
  void record_ids(Builder& b, const ops::Rows& tokens, Buffer ids) const;
  void router_backward(Builder& b, const ops::Batch& batch, Buffer drow_weights, Buffer dx);

  const ModelContext* m_ = nullptr;
  std::int64_t block_ = 0, moe_idx_ = 0;
  const Parameter* router_ = nullptr;
  const Parameter* correction_bias_ = nullptr;  // null: none
  const Parameter* gate_up_ = nullptr;
  const Parameter* down_ = nullptr;
  std::optional<Mlp> shared_;
  ops::Routes routes_;
  Buffer x_, hidden_;
};

}  // namespace planalto
