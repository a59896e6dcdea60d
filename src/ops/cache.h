// SPDX-License-Identifier: Apache-2.0
// cache.h: emits the moves that generation needs: rows appended to a cache, products per head with slices of one weight.
// Shapes      append: rows [T, cols] to cache rows length[0] .. ; per-head: see below
#pragma once

#include <string>

#include "ops/operand.h"

namespace planalto::ops {

// cache[length[0] + r] = rows[r]; length int64: {rows before, rows after}
void append_rows(Builder& b, const std::string& name, const Cols& rows, const Cols& cache, Buffer length,
                 const Rows& num_rows);

// For each head h: y[:, columns of h] = x[:, columns of h] (w rows of h) or its transpose.
// w holds, from row first_row + h * row_stride, `rows` rows of K columns.
struct PerHeadProduct {
  std::int64_t heads = 1;
  std::int64_t first_row = 0, row_stride = 0, rows = 0;
  std::int64_t x_first = 0, x_stride = 0;  // columns of x
  std::int64_t y_first = 0, y_stride = 0;
  bool transposed =
      false;  // false: y = x w (x has `rows` columns a head); true: y = x w^T (x has K columns a head)
};
void per_head_product(Builder& b, const std::string& name, Buffer x, Buffer w, Buffer y, const Rows& num_rows,
                      const PerHeadProduct& p);

}  // namespace planalto::ops
