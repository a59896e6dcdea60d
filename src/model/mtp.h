// SPDX-License-Identifier: Apache-2.0
// mtp.h: one multi-token prediction module: the next token's embedding and the hidden state of the depth before, through one block.
// Shapes      previous batch [T] and its hidden states h [T, D]; this depth keeps the rows that have a next token inside their
//             document: its own packed batch of the same capacity
// Invariants  ids, labels and rows of a depth come from the depth before by one shift inside each document
// Source      arXiv 2412.19437 section 2.2; tests/golden/README.md section 11 for where implementations differ
#pragma once

#include <string>

#include "model/block.h"

namespace planalto {

class MtpModule {
 public:
  MtpModule(const ModelContext& m, std::int64_t depth, std::int64_t moe_idx);

  // Returns h of this depth, normalised; `h_before` is that of the depth before (depth 0: the main model's final norm).
  Buffer forward(Builder& b, const ops::Batch& before, Buffer h_before);
  // grad: gradient of this depth's h, consumed; adds to grad_before the gradient of h_before.
  void backward(Builder& b, Buffer grad, Buffer grad_before);

  const ops::Batch& batch() const { return batch_; }

 private:
  void shift_batch(Builder& b, const ops::Batch& before);

  const ModelContext* m_;
  std::int64_t depth_;
  std::string scope_;
  const Parameter* embedding_;
  const Parameter* projection_;  // eh_proj [D, 2D], the embedding's columns first
  Norm embedding_norm_, hidden_norm_, final_norm_;
  Block block_;
  ops::Batch batch_;
  Buffer source_row_;  // [T] row of the depth before
  Buffer joined_;      // [T, 2D]
};

}  // namespace planalto
