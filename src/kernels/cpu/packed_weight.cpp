// SPDX-License-Identifier: Apache-2.0
#include "kernels/packed_weight.h"

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/weight_blocks.h"

namespace planalto::kernels::PLANALTO_ISA_NS {

static_assert(kPanelLines == packed_panel_lines(kPanelLines == 16 ? Isa::avx2 : Isa::avx512));

void pack_weight(const ExecContext& ctx, const PackWeight& a) {
  const PackedCopies& c = a.copies;
  for_each_weight_block(ctx, c, [&](const WeightBlock& b, bf16* values) {
    for (std::int64_t r = 0; r < b.rows; ++r) {
      const float* source = a.source + ((b.matrix * c.n + b.row + r) * c.k + b.col);
      simd::sweep(b.cols, [&](std::int64_t i, auto part) {
        simd::store(values + r * kBlockCols + i, simd::load(source + i, part), part);
      });
    }
  });
}

}  // namespace planalto::kernels::PLANALTO_ISA_NS
