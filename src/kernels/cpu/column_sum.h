// SPDX-License-Identifier: Apache-2.0
// column_sum.h: sums over rows by the fixed blocks of kernels/column_blocks.h.
// Memory      partials [num_column_blocks, cols] fp32 in the workspace of the kernel
#pragma once

#include <cstring>

#include "kernels/column_blocks.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace planalto::kernels::PLANALTO_ISA_NS {
namespace {  // NOLINT: internal linkage is the purpose

// fold_rows(begin, end, partial) adds the rows of one block into partial [cols], which starts at zero;
// then sum[c] (+)= the partials in block order.
template <class FoldRows>
void sum_columns(const ExecContext& ctx, std::int64_t rows, std::int64_t cols, float* partials, float* sum,
                 bool accumulate, const FoldRows& fold_rows) {
  const std::int64_t block = column_block_rows(cols), blocks = num_column_blocks(rows, cols);
  parallel_ranges(ctx, blocks, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t b = begin; b < end; ++b) {
      float* partial = partials + b * cols;
      std::memset(partial, 0, static_cast<std::size_t>(cols) * sizeof(float));
      fold_rows(b * block, (b + 1) * block < rows ? (b + 1) * block : rows, partial);
    }
  });
  parallel_ranges(ctx, cols, 256, [&](std::int64_t begin, std::int64_t end, int) {
    simd::sweep(end - begin, [&](std::int64_t i, auto part) {
      const std::int64_t c = begin + i;
      simd::Floats s = accumulate ? simd::load(sum + c, part) : simd::zero();
      for (std::int64_t b = 0; b < blocks; ++b) s += simd::load(partials + b * cols + c, part);
      simd::store(sum + c, s, part);
    });
  });
}

}  // namespace
}  // namespace planalto::kernels::PLANALTO_ISA_NS
