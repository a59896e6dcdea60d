// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include "kernels/elementwise.h"

namespace planalto::ops {

namespace {

struct HeadsOperand {
  Operand operand;
  std::int64_t head_stride;
  HeadsOperand(const Builder& b, const Heads& h) : operand(b, h.cols), head_stride(h.head_stride) {}
  kernels::HeadsView at(const RunContext& ctx) const {
    const Matrix m = operand.at(ctx);
    return {m.data, m.row_stride, head_stride};
  }
};

struct DocumentsOperand {
  Buffer q, kv;
  Rows rows;
  kernels::Documents at(const RunContext& ctx) const {
    return {ctx.data<std::int32_t>(q), ctx.data<std::int32_t>(kv), rows.at(ctx)};
  }
};

// Products over the pairs that the causal mask keeps: scores and values forward; five products backward.
std::function<Cost(const RunCounts&)> pair_cost(const kernels::AttentionShape& s, double qk_products,
                                                double v_products, double row_bytes) {
  const double per_pair =
      2.0 * static_cast<double>(s.num_heads) *
      (qk_products * static_cast<double>(s.qk_dim) + v_products * static_cast<double>(s.v_dim));
  return [=](const RunCounts& c) { return Cost{c.attention_pairs * per_pair, c.tokens * row_bytes, 0}; };
}

}  // namespace

void attention(Builder& b, const std::string& name, const AttentionOperands& a) {
  const HeadsOperand q(b, a.q), k(b, a.k), v(b, a.v), out(b, a.out);
  const DocumentsOperand documents{a.q_offsets, a.kv_offsets, a.documents};
  const kernels::AttentionShape shape = a.shape;
  const Buffer lse = a.lse;
  const WorkspaceOperand scratch(
      b, kernels::attention_forward_workspace_bytes(shape, b.target().isa, b.target().num_threads));
  b.emit(
      {.name = name,
       .kind = "attention_forward",
       .accesses = {reads(q.operand.buffer), reads(k.operand.buffer), reads(v.operand.buffer),
                    reads(a.q_offsets), reads(a.kv_offsets), reads(a.documents.counts),
                    writes(out.operand.buffer), writes(lse), writes(scratch.buffer)},
       .cost = pair_cost(shape, 1, 1,
                         q.operand.bytes(1) + k.operand.bytes(1) + v.operand.bytes(1) + out.operand.bytes(1)),
       .run = [=](const RunContext& ctx) {
         kernels::attention_forward(*ctx.exec, {.shape = shape,
                                                .q = q.at(ctx),
                                                .k = k.at(ctx),
                                                .v = v.at(ctx),
                                                .out = out.at(ctx),
                                                .lse = ctx.data<float>(lse),
                                                .documents = documents.at(ctx),
                                                .workspace = scratch.at(ctx)});
       }});
}

void attention_backward(Builder& b, const std::string& name, const AttentionOperands& a,
                        const Heads& dout_heads, const Heads& dq_heads, const Heads& dk_heads,
                        const Heads& dv_heads) {
  const HeadsOperand q(b, a.q), k(b, a.k), v(b, a.v), out(b, a.out);
  const HeadsOperand dout(b, dout_heads), dq(b, dq_heads), dk(b, dk_heads), dv(b, dv_heads);
  const DocumentsOperand documents{a.q_offsets, a.kv_offsets, a.documents};
  const kernels::AttentionShape shape = a.shape;
  const Buffer lse = a.lse;
  const WorkspaceOperand scratch(
      b, kernels::attention_backward_workspace_bytes(shape, b.target().isa, b.target().num_threads));
  const double row_bytes =
      2 * (q.operand.bytes(1) + k.operand.bytes(1) + v.operand.bytes(1) + out.operand.bytes(1));
  b.emit({.name = name,
          .kind = "attention_backward",
          .accesses = {reads(q.operand.buffer), reads(k.operand.buffer), reads(v.operand.buffer),
                       reads(out.operand.buffer), reads(lse), reads(dout.operand.buffer), reads(a.q_offsets),
                       reads(a.kv_offsets), reads(a.documents.counts), writes(dq.operand.buffer),
                       writes(dk.operand.buffer), writes(dv.operand.buffer), writes(scratch.buffer)},
          .cost = pair_cost(shape, 3, 2, row_bytes),
          .run = [=](const RunContext& ctx) {
            kernels::attention_backward(*ctx.exec, {.shape = shape,
                                                    .q = q.at(ctx),
                                                    .k = k.at(ctx),
                                                    .v = v.at(ctx),
                                                    .out = out.at(ctx),
                                                    .lse = ctx.data<float>(lse),
                                                    .dout = dout.at(ctx),
                                                    .dq = dq.at(ctx),
                                                    .dk = dk.at(ctx),
                                                    .dv = dv.at(ctx),
                                                    .documents = documents.at(ctx),
                                                    .workspace = scratch.at(ctx)});
          }});
}

void mla_keys(Builder& b, const std::string& name, Buffer kv, const Cols& rope_cols, Buffer keys,
              const Rows& rows, const MlaKeysShape& s) {
  const Operand rope(b, rope_cols);
  const double bytes = 2.0 * static_cast<double>(b.info(keys).cols * dtype_bytes(rope.dtype));
  b.emit({.name = name,
          .kind = "mla_keys_forward",
          .accesses = {reads(kv), reads(rope.buffer), reads(rows.counts), writes(keys)},
          .cost =
              [=](const RunCounts& c) {
                return Cost{0, rows.value(c) * bytes, 0};
              },
          .run =
              [=](const RunContext& ctx) {
                kernels::mla_keys_forward(*ctx.exec, {.dtype = rope.dtype,
                                                      .num_heads = s.heads,
                                                      .nope = s.nope,
                                                      .rope_dim = s.rope_dim,
                                                      .kv_head_stride = s.kv_head_stride,
                                                      .kv = ctx.data<void>(kv),
                                                      .rope = rope.at(ctx),
                                                      .keys = ctx.data<void>(keys),
                                                      .tokens = rows.at(ctx)});
              }});
}

void mla_keys_backward(Builder& b, const std::string& name, Buffer dkeys, Buffer dkv, const Cols& drope_cols,
                       const Rows& rows, const MlaKeysShape& s) {
  const Operand drope(b, drope_cols);
  const auto key_cols = static_cast<double>(b.info(dkeys).cols);
  const double bytes = 2.0 * key_cols * static_cast<double>(dtype_bytes(drope.dtype));
  b.emit({.name = name,
          .kind = "mla_keys_backward",
          .accesses = {reads(dkeys), reads(rows.counts), writes(dkv), writes(drope.buffer)},
          .cost =
              [=](const RunCounts& c) {
                return Cost{rows.value(c) * key_cols, rows.value(c) * bytes, 0};
              },
          .run =
              [=](const RunContext& ctx) {
                kernels::mla_keys_backward(*ctx.exec, {.dtype = drope.dtype,
                                                       .num_heads = s.heads,
                                                       .nope = s.nope,
                                                       .rope_dim = s.rope_dim,
                                                       .kv_head_stride = s.kv_head_stride,
                                                       .dkeys = ctx.data<void>(dkeys),
                                                       .dkv = ctx.data<void>(dkv),
                                                       .drope = drope.at(ctx),
                                                       .tokens = rows.at(ctx)});
              }});
}

}  // namespace planalto::ops
