// SPDX-License-Identifier: Apache-2.0
// operand.h: how an op names what it works on: columns of a buffer, a run-time number of rows, the batch of a microbatch.
// Shapes      Cols: columns [first, first + num) of a buffer; Batch: ids, labels, positions [T] int32, doc_offsets [T + 1] int32,
//             counts int64 [kNumCounts], aux_scale double [1 + MTP depths, kNumScales]
// Invariants  tokens of a batch are packed: rows [0, num_tokens) are real, cut into documents by doc_offsets
// Memory      nothing here owns memory; an Operand resolves to a view when the op runs
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/packed_weight.h"
#include "program/builder.h"

namespace planalto::ops {

struct Cols {
  Buffer buffer;
  std::int64_t first = 0;
  std::int64_t num = -1;  // -1: all
  Cols() = default;
  Cols(Buffer b) : buffer(b) {}  // NOLINT(google-explicit-constructor): a whole buffer is its columns
  Cols(Buffer b, std::int64_t first_col, std::int64_t num_cols)
      : buffer(b), first(first_col), num(num_cols) {}
};

enum class RowKind : std::uint8_t { tokens, documents, fixed };

// A run-time count: counts[index] rows, times multiplier. counts invalid: always capacity.
struct Rows {
  Buffer counts;
  std::int64_t index = 0;
  std::int64_t capacity = 0;
  std::int64_t multiplier = 1;
  RowKind kind = RowKind::tokens;

  RowCount at(const RunContext& ctx) const {
    return {counts.valid() ? ctx.data<std::int64_t>(counts) + index : nullptr, capacity, multiplier};
  }
  Rows times(std::int64_t factor) const {
    Rows r = *this;
    r.multiplier *= factor;
    return r;
  }
  double value(const RunCounts& c) const;
  std::int64_t max_rows() const { return capacity * multiplier; }
};

constexpr std::int64_t kNumTokens = 0, kNumDocuments = 1, kNumTrained = 2, kNumCounts = 3;
constexpr std::int64_t kAuxScale = 0, kZScale = 1, kNumScales = 2;

struct Batch {
  Buffer ids, labels, positions, doc_offsets, counts, aux_scale;
  std::int64_t max_tokens = 0;

  Rows tokens() const { return {counts, kNumTokens, max_tokens, 1, RowKind::tokens}; }
  Rows documents() const { return {counts, kNumDocuments, max_tokens, 1, RowKind::documents}; }
};

// What an op's body captures instead of a view: enough to make the view when the addresses are known.
struct Operand {
  Buffer buffer;
  DType dtype = DType::f32;
  std::int64_t rows = 0, cols = 0, row_stride = 0, first = 0;

  Operand() = default;
  Operand(const Builder& b, const Cols& c);
  Matrix at(const RunContext& ctx) const;  // data null when the buffer is invalid
  double bytes(double num_rows) const {
    return num_rows * static_cast<double>(cols) * static_cast<double>(dtype_bytes(dtype));
  }
};

// A weight [rows, cols] in the form that products read: plain rows, or packed copies (kernels/packed_weight.h).
struct Weight {
  Buffer plain;              // valid: the copies are not
  Buffer forward, backward;  // bf16, of `num` matrices one below the other
  std::int64_t num = 1, rows = 0, cols = 0;

  Weight(Buffer w) : plain(w) {}  // NOLINT(google-explicit-constructor): a buffer of rows is a weight
  Weight(Buffer forward_copy, Buffer backward_copy, std::int64_t matrices, std::int64_t all_rows,
         std::int64_t num_cols)
      : forward(forward_copy), backward(backward_copy), num(matrices), rows(all_rows), cols(num_cols) {}
  // For the kernels that write the copies; of a plain weight there are none.
  kernels::PackedCopies copies(const RunContext& ctx) const;
};

// A weight as one op reads it: plain, or the copies it names; of a packed one the view has the shape alone.
struct WeightOperand {
  Operand plain;
  std::int64_t rows = 0, cols = 0;
  WeightOperand(const Builder& b, const Weight& w);
  ConstMatrix at(const RunContext& ctx) const {
    if (plain.buffer.valid()) return plain.at(ctx);
    return {nullptr, DType::bf16, rows, cols, cols};
  }
  double bytes() const;
};

inline Access reads(Buffer b) {
  return {b, AccessKind::read};
}
inline Access writes(Buffer b) {
  return {b, AccessKind::write};
}
inline Access updates(Buffer b) {
  return {b, AccessKind::update};
}
inline Access writes_or_adds(Buffer b, bool accumulate) {
  return accumulate ? updates(b) : writes(b);
}

struct WorkspaceOperand {
  Buffer buffer;
  std::int64_t bytes = 0;
  WorkspaceOperand(Builder& b, std::int64_t num_bytes)
      : buffer(b.workspace("workspace", num_bytes)), bytes(num_bytes) {}
  Workspace at(const RunContext& ctx) const { return {ctx.data<void>(buffer), bytes}; }
};

}  // namespace planalto::ops
