// SPDX-License-Identifier: Apache-2.0
// rope.h: rotary position embedding applied in place to heads, forward or its inverse (the backward pass).
// Shapes      x: head h of token t begins at data + t*row_stride + h*head_stride; elements [first, first + 2*half) of
//             a head rotate, the others are not touched (MLA: the last ones rotate, GLM: the first)
//             table [max_positions, 2*half] fp32: cos for half pairs, then sin, each times the cos/sin scale
// Invariants  style interleaved pairs (2i, 2i+1), style halves pairs (i, i + half), counted from first;
//             0 <= positions[t] < max_positions of the table; tokens past tokens.get() are neither read nor written
// Numerics    the table in double, rounded once; the rotation in fp32, rounded once; inverse multiplies by the
//             transposed matrix (same scale)
// Reference   kernels/ref/rope.cpp
// Source      arXiv 2104.09864
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/isa.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

enum class RopeStyle { interleaved, halves };
struct RopeApply {
  void* x = nullptr;
  DType dtype = DType::f32;
  std::int64_t num_heads = 1;
  std::int64_t head_stride = 0, row_stride = 0;  // elements
  std::int64_t first = 0, half = 0;
  RopeStyle style = RopeStyle::halves;
  bool inverse = false;
  const float* table = nullptr;
  const std::int32_t* positions = nullptr;  // [T]
  RowCount tokens{};
};
// Fills table for positions 0 .. max_positions-1 from inv_freq [half] (double) and the cos/sin scale; angles
// in double.
struct RopeTable {
  const double* inv_freq = nullptr;
  std::int64_t half = 0;
  double scale = 1.0;
  std::int64_t max_positions = 0;
  float* table = nullptr;
};
void rope_apply(const ExecContext& ctx, const RopeApply& a);
void rope_table(const RopeTable& a);  // not per ISA: runs once at launch

}  // namespace planalto::kernels
