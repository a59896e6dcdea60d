// SPDX-License-Identifier: Apache-2.0
// view.h: how kernels see memory: a pointer, a dtype, extents and a row stride; nothing here owns memory.
// Units       rows, cols, row_stride in elements; 64-bit everywhere
// Invariants  row_stride >= cols; rows or cols may be zero
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace planalto {

struct ConstMatrix {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;

  template <class T>
  [[gnu::always_inline]] const T* row(std::int64_t r) const {
    return static_cast<const T*>(data) + r * row_stride;
  }
};

struct Matrix {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;

  template <class T>
  [[gnu::always_inline]] T* row(std::int64_t r) const {
    return static_cast<T*>(data) + r * row_stride;
  }
  [[gnu::always_inline]] operator ConstMatrix() const { return {data, dtype, rows, cols, row_stride}; }
};

// A run-time number of rows that lives in a buffer of fixed capacity: `*count * multiplier` rows are valid (all of
// `capacity * multiplier` when count is null). A program never needs the value; a kernel reads it when it runs.
struct RowCount {
  const std::int64_t* count = nullptr;
  std::int64_t capacity = 0;
  std::int64_t multiplier = 1;

  [[gnu::always_inline]] std::int64_t get() const {
    return (count != nullptr ? *count : capacity) * multiplier;
  }
};

// Scratch that the caller owns; a kernel states what it needs in a `..._workspace_bytes` function. 64-byte aligned.
struct Workspace {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

}  // namespace planalto
