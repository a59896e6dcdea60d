// SPDX-License-Identifier: Apache-2.0
// attention.h: self attention as a module, in its two kinds: grouped queries (GQA) and multi-head latent attention (MLA).
// Shapes      x, y, dx, dy [T, D]; documents of the batch do not see each other; positions restart in each
// Memory      keeps its input and what attention's backward needs: q, k, v, out, lse (MLA: the latents and the keys)
// Source      arXiv 2305.13245 (GQA), 2405.04434 (MLA)
#pragma once

#include <memory>
#include <string>

#include "model/context.h"
#include "model/norm.h"
#include "ops/attention.h"

namespace planalto {

// Past keys and values of one layer while generating; rows [0, length) are valid before the new tokens are appended.
struct KvCache {
  Buffer keys,
      values;  // gqa: [max_len, Hkv * Dqk], [max_len, Hkv * Dv]; mla: keys = [max_len, kv_lora + rope], values invalid
  Buffer kv_offsets;  // int32 [2]: {0, length with the new tokens}
  Buffer length;      // int64 [2]: {rows before, rows with the new tokens}
  std::int64_t max_len = 0;
};

class Attention {
 public:
  virtual ~Attention() = default;
  virtual Buffer forward(Builder& b, const ops::Batch& batch, Buffer x) = 0;
  // dx (+)= gradient
  virtual void backward(Builder& b, const ops::Batch& batch, Buffer dy, Buffer dx, bool accumulate) = 0;
  // The new tokens of one sequence against its cache; appends to the cache.
  virtual Buffer forward_cached(Builder& b, const ops::Batch& batch, Buffer x, const KvCache& cache) = 0;
};

std::unique_ptr<Attention> make_gqa(const ModelContext& m, std::int64_t block);
std::unique_ptr<Attention> make_mla(const ModelContext& m, std::int64_t block);
std::unique_ptr<Attention> make_attention(const ModelContext& m, std::int64_t block);
// A cache for one layer, as persistent buffers.
KvCache make_kv_cache(BufferTable& table, const ModelConfig& config, DType dtype, std::int64_t block,
                      std::int64_t max_len, Buffer kv_offsets, Buffer length);

}  // namespace planalto
