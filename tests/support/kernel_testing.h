// SPDX-License-Identifier: Apache-2.0
// kernel_testing.h: matrices, fills, comparisons, contexts and numeric gradients for the tests of kernels.
// Invariants  a HostMatrix is born poisoned: each byte of it, the gaps between rows too, is 0xff (NaN in f32, bf16, f64)
// Numerics    fill_integers gives sums that are exact in fp32: compare with no tolerance; fill_random needs a Bound
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/exec_context.h"
#include "base/view.h"
#include "kernels/isa.h"

namespace planalto::test {

// The same numbers on every machine and library (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  double uniform(double low, double high);
  std::int64_t below(std::int64_t n);  // 0 .. n-1

 private:
  std::uint64_t state_;
};

class HostMatrix {
 public:
  HostMatrix(DType dtype, std::int64_t rows, std::int64_t cols,
             std::int64_t row_stride = 0);  // stride 0: cols

  Matrix view();
  ConstMatrix view() const;
  operator Matrix() { return view(); }
  operator ConstMatrix() const { return view(); }
  template <class T>
  T* data() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  const T* data() const {
    return reinterpret_cast<const T*>(data_);
  }
  DType dtype() const { return dtype_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t size() const { return rows_ * cols_; }

  double at(std::int64_t r, std::int64_t c) const;
  void set(std::int64_t r, std::int64_t c, double value);  // rounded to the dtype, nearest even
  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(bytes_)}; }
  void poison();

  // A copy is deep (the view of the copy points into the copy).
  HostMatrix(const HostMatrix& other);
  HostMatrix& operator=(const HostMatrix& other);

 private:
  DType dtype_;
  std::int64_t rows_, cols_, row_stride_, bytes_;
  std::vector<std::byte> storage_;
  std::byte* data_ = nullptr;  // the first 64-byte boundary of storage_
};

void fill_zero(HostMatrix& m);
// Integers of [low, high]: exact in bf16 while |value| <= 256, their sums exact in fp32 below 2^24.
void fill_integers(HostMatrix& m, std::uint64_t seed, std::int64_t low = -3, std::int64_t high = 3);
void fill_random(HostMatrix& m, std::uint64_t seed, double low = -1.0, double high = 1.0);
HostMatrix converted(const HostMatrix& m, DType dtype);
// Scratch of exactly `bytes`, 64-byte aligned and poisoned.
HostMatrix scratch(std::int64_t bytes);
Workspace workspace(HostMatrix& scratch);

// |got - want| <= absolute + relative * |want|
struct Bound {
  double absolute = 0.0;
  double relative = 0.0;
  bool may_be_zero = false;  // else a `want` that is mostly zero is refused: such a comparison shows little
};
// For values rounded once to `dtype` after a sum of `length` fp32 products whose terms are at most
// `magnitude`.
Bound bound_for(DType dtype, std::int64_t length = 1, double magnitude = 1.0);

// The first `rows` rows (-1: all). Counts what differs, NaN where a number is wanted, and zeros where none
// is.
::testing::AssertionResult close(const HostMatrix& got, const HostMatrix& want, Bound bound = {},
                                 std::int64_t rows = -1);
::testing::AssertionResult same_bits(const HostMatrix& got, const HostMatrix& want);
// Rows from `first_row` on still hold the poison, as do the gaps between rows.
::testing::AssertionResult untouched(const HostMatrix& m, std::int64_t first_row = 0);

void poison_rows(HostMatrix& m, std::int64_t first_row);  // rows from first_row on become NaN again

// body once for each ISA of this machine and each of 1, 2, 3 threads; failures say which.
void for_each_context(const std::function<void(const ExecContext&)>& body);

// Results of one ISA must not depend on the number of threads: holds each to the first that it saw of that ISA.
class SameBitsPerIsa {
 public:
  ::testing::AssertionResult operator()(const ExecContext& ctx, const HostMatrix& result);

 private:
  std::map<kernels::Isa, HostMatrix> first_;
};

// d loss / d x[i] by central differences; x should be f64, and loss evaluate a reference body.
HostMatrix numeric_gradient(HostMatrix& x, const std::function<double()>& loss, double step = 1e-5);
// sum of y * dy in double: its gradient by y is dy.
double weighted_sum(const HostMatrix& y, const HostMatrix& dy, std::int64_t rows = -1);

}  // namespace planalto::test
