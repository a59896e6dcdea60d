// SPDX-License-Identifier: Apache-2.0
// attention.h: causal softmax attention over ragged documents, flash-style: memory grows with T, never with T
// x T. Shapes      q [T, H, Dq], k [Tk, Hkv, Dq], v [Tk, Hkv, Dv], out [T, H, Dv], lse [T, H] fp32; head h of
// row t
//             begins at data + t*row_stride + h*head_stride; query head h reads key head h / (H / Hkv)
// Invariants  document d owns query rows q_offsets[d] .. q_offsets[d+1] and key rows kv_offsets[d] ..
//             kv_offsets[d+1], either may be none; its last query sees its last key: query i sees keys
//             j <= i + (kv length - q length), with a window w > 0 only the last w of those. Rows of no
//             document are neither read nor written. v may lie inside the rows of k.
// Numerics    scores, softmax and sums in fp32, running maximum; one rounding of out. A row that sees no key
// gives
//             out 0, lse -inf (with sinks: the sink), gradient 0. Bits depend neither on threads, nor on
//             other documents, nor (forward) on how many queries of a document one call brings.
// Reference   kernels/ref/attention.h
// Source      arXiv 2205.14135, 2307.08691
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/isa.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

struct HeadsView {
  void* data = nullptr;
  std::int64_t row_stride = 0, head_stride = 0;  // elements
};
struct ConstHeadsView {
  const void* data = nullptr;
  std::int64_t row_stride = 0, head_stride = 0;
  ConstHeadsView() = default;
  ConstHeadsView(const void* d, std::int64_t row, std::int64_t head)
      : data(d), row_stride(row), head_stride(head) {}
  ConstHeadsView(const HeadsView& v) : data(v.data), row_stride(v.row_stride), head_stride(v.head_stride) {}
};
struct AttentionShape {
  DType dtype = DType::f32;  // of q, k, v, out and their gradients: f32 or bf16
  std::int64_t num_heads = 1, num_kv_heads = 1;
  std::int64_t qk_dim = 0, v_dim = 0;
  double scale = 1.0;
  std::int64_t window = 0;                       // 0: none
  std::int64_t max_q_rows = 0, max_kv_rows = 0;  // of all documents together: the capacity of the views
};
struct Documents {
  const std::int32_t* q_offsets = nullptr;   // [num + 1]
  const std::int32_t* kv_offsets = nullptr;  // [num + 1]
  RowCount num;
};
struct AttentionForward {
  AttentionShape shape;
  ConstHeadsView q, k, v;
  const float* sinks = nullptr;  // [H] one extra logit per head in the denominator; null: none
  HeadsView out;
  float* lse = nullptr;  // [T, H]; null: not wanted
  Documents documents;
  Workspace workspace;
};
struct AttentionBackward {
  AttentionShape shape;
  ConstHeadsView q, k, v, out;
  const float* lse = nullptr;
  const float* sinks = nullptr;
  ConstHeadsView dout;
  HeadsView dq, dk, dv;     // overwritten on the documents' rows
  float* dsinks = nullptr;  // [H], added to; null: not wanted
  Documents documents;
  Workspace workspace;
};
std::int64_t attention_forward_workspace_bytes(const AttentionShape& s, Isa isa, int num_threads);
std::int64_t attention_backward_workspace_bytes(const AttentionShape& s, Isa isa, int num_threads);
void attention_forward(const ExecContext& ctx, const AttentionForward& a);
void attention_backward(const ExecContext& ctx, const AttentionBackward& a);

}  // namespace planalto::kernels
