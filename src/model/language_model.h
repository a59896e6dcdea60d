// SPDX-License-Identifier: Apache-2.0
// language_model.h: the whole causal language model: embedding, blocks, final norm, loss head, MTP modules; forward and backward.
// Shapes      batch of T packed tokens; hidden states [T, D]; loss sums double: [0] main, [1 + d] MTP depth d, then auxiliary losses
// Numerics    loss_sums are sums over trained labels, not divided; gradients are scaled by grad_scales[i] (1 / labels of the step,
//             times lambda / depths for MTP)
// Memory      buffers only; one instance is built for one program at a time
#pragma once

#include <vector>

#include "model/block.h"
#include "model/mtp.h"

namespace planalto {

class LanguageModel {
 public:
  explicit LanguageModel(const ModelContext& m);

  // Embedding to final norm.
  Buffer hidden_states(Builder& b, const ops::Batch& batch);
  // The same for new tokens of one sequence, against one cache per layer.
  Buffer hidden_states_cached(Builder& b, const ops::Batch& batch, const std::vector<KvCache>& caches);
  // Adds the losses of the batch to m.loss_sums; with grad_scales valid, the loss head's gradients too, ready for backward().
  void losses(Builder& b, const ops::Batch& batch, Buffer grad_scales);
  void backward(Builder& b, const ops::Batch& batch);

  const Parameter& head() const { return *head_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  Buffer final_hidden() const { return final_hidden_; }
  const std::vector<MtpModule>& mtp() const { return mtp_; }

 private:
  void join_counts(Builder& b) const;

  const ModelContext* m_;
  const Parameter* embedding_;
  const Parameter* head_;  // the embedding when tied
  std::vector<Block> blocks_;
  Norm final_norm_;
  std::vector<MtpModule> mtp_;
  Buffer final_hidden_;
  std::vector<Buffer> grads_;  // of final_hidden and of each depth's h
};

// MoE blocks of the model, MTP modules included, in block order: rows of route_totals.
std::int64_t num_moe_blocks(const ModelConfig& config);

}  // namespace planalto
