// SPDX-License-Identifier: Apache-2.0
// block.h: one decoder block: x + attention(norm(x)), then + mlp or MoE of the norm of that. Backward runs in place.
// Shapes      x, y, grad [T, D]
// Memory      keeps its input x; with options.recompute nothing else: forward is emitted again just before backward
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "model/attention.h"
#include "model/mlp.h"
#include "model/moe.h"
#include "model/norm.h"

namespace planalto {

class Block {
 public:
  // moe_idx: its place among the MoE blocks, -1 for a dense one
  Block(const ModelContext& m, std::int64_t block, std::int64_t moe_idx);

  Buffer forward(Builder& b, const ops::Batch& batch, Buffer x);
  // grad holds dy and becomes dx.
  void backward(Builder& b, const ops::Batch& batch, Buffer grad);
  Buffer forward_cached(Builder& b, const ops::Batch& batch, Buffer x, const KvCache& cache);

  const MoeLayer* moe() const { return moe_ ? &*moe_ : nullptr; }

 private:
  Buffer emit_forward(Builder& b, const ops::Batch& batch, Buffer x, Pass pass, const KvCache* cache);

  const ModelContext* m_;
  std::int64_t block_;
  std::string scope_;
  Norm attention_norm_, mlp_norm_;
  std::unique_ptr<Attention> attention_;
  std::optional<Mlp> mlp_;
  std::optional<MoeLayer> moe_;
  Buffer x_;
};

}  // namespace planalto
