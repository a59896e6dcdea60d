// SPDX-License-Identifier: Apache-2.0
// compare.h: measures how far values are from reference values, and collects the verdicts as rows.
// Numerics    differences in double; a NaN on either side is an infinite error
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace planalto {

struct VerifyRow {
  std::string quantity;
  double error = 0.0;
  double tolerance = 0.0;
  bool passed = false;
  std::string note;  // where the worst error is
};

struct Difference {
  double max_abs = 0.0;        // largest |ours - reference|
  double max_reference = 0.0;  // largest |reference|
  double rms = 0.0;
  double l2 = 0.0, l2_reference = 0.0;
  double max_relative = 0.0;  // largest |ours - reference| / |reference| over elements that are not zero
  std::int64_t worst = -1;    // index of max_abs
};
Difference difference(std::span<const float> ours, std::span<const float> reference);

// The worst of several comparisons under one name.
class Worst {
 public:
  Worst(std::string quantity, double tolerance) : row_{std::move(quantity), 0.0, tolerance, true, ""} {}
  void add(double error, const std::string& note);
  bool any() const { return any_; }
  const VerifyRow& row() const { return row_; }

 private:
  VerifyRow row_;
  bool any_ = false;
};

}  // namespace planalto
