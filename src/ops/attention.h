// SPDX-License-Identifier: Apache-2.0
// attention.h: emits causal attention over the documents of a batch, its backward, and the key assembly of MLA.
// Shapes      q [T, H * Dq], k [Tk, Hkv * Dq], v: head h of a row at columns first + h * head_stride; out [T, H * Dv]; lse [T, H]
// Reference   kernels/attention.h
#pragma once

#include <string>

#include "kernels/attention.h"
#include "ops/operand.h"

namespace planalto::ops {

// One of q, k, v, out: columns of a buffer, heads head_stride apart.
struct Heads {
  Cols cols;
  std::int64_t head_stride = 0;
};

struct AttentionOperands {
  kernels::AttentionShape shape;
  Heads q, k, v, out;
  Buffer lse;         // invalid: not wanted (forward only)
  Buffer q_offsets;   // int32, documents in query rows
  Buffer kv_offsets;  // int32, documents in key rows; the same buffer in training
  Rows documents;
};

void attention(Builder& b, const std::string& name, const AttentionOperands& a);
void attention_backward(Builder& b, const std::string& name, const AttentionOperands& a, const Heads& dout,
                        const Heads& dq, const Heads& dk, const Heads& dv);

struct MlaKeysShape {
  std::int64_t heads = 1, nope = 0, rope_dim = 0, kv_head_stride = 0;
};
void mla_keys(Builder& b, const std::string& name, Buffer kv, const Cols& rope, Buffer keys, const Rows& rows,
              const MlaKeysShape& s);
void mla_keys_backward(Builder& b, const std::string& name, Buffer dkeys, Buffer dkv, const Cols& drope,
                       const Rows& rows, const MlaKeysShape& s);

}  // namespace planalto::ops
