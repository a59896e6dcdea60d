// SPDX-License-Identifier: Apache-2.0
// mxfp8_testing.h: quantized copies with their storage, for the tests of kernels/mxfp8.h.
#pragma once

#include <numeric>
#include <vector>

#include "kernels/mxfp8.h"
#include "kernels/ref/mxfp8.h"
#include "support/kernel_testing.h"

namespace planalto::test {

inline std::vector<std::int64_t> offsets_of(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> offsets(sizes.size() + 1, 0);
  std::partial_sum(sizes.begin(), sizes.end(), offsets.begin() + 1);
  return offsets;
}

// Both copies of one matrix, poisoned until quantized, and with gaps between rows.
struct Mxfp8Copies {
  HostMatrix row_codes, row_scales, column_codes, column_scales;

  Mxfp8Copies(std::int64_t rows, std::int64_t padded_rows, std::int64_t cols, std::int64_t gap = 0)
      : row_codes(DType::u8, rows, cols, cols + gap),
        row_scales(DType::u8, rows, kernels::mxfp8_blocks(cols), kernels::mxfp8_blocks(cols) + gap),
        column_codes(DType::u8, padded_rows, cols, cols + gap),
        column_scales(DType::u8, padded_rows / 32, cols, cols + gap) {}

  void into(kernels::Mxfp8Quantize* a, bool by_rows = true, bool by_columns = true) {
    a->row_codes = by_rows ? row_codes.view() : Matrix{};
    a->row_scales = by_rows ? row_scales.view() : Matrix{};
    a->column_codes = by_columns ? column_codes.view() : Matrix{};
    a->column_scales = by_columns ? column_scales.view() : Matrix{};
  }
};

inline int code_at(const HostMatrix& codes, std::int64_t r, std::int64_t c) {
  return static_cast<int>(codes.at(r, c));
}

}  // namespace planalto::test
