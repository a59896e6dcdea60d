// SPDX-License-Identifier: Apache-2.0
#include "ops/loss.h"

#include <algorithm>
#include <cmath>

#include "kernels/loss_head.h"

namespace planalto::ops {

std::int64_t automatic_tile_rows(std::int64_t vocab) {
  constexpr std::int64_t kTileBytes = std::int64_t{64} << 20;
  return std::clamp<std::int64_t>(kTileBytes / (4 * vocab) / 64 * 64, 128, 512);
}

void loss_head(Builder& b, const std::string& name, Buffer x_buffer, const Weight& weight, const Batch& batch,
               std::int64_t tile_rows, const LossOutputs& out) {
  const Operand x(b, x_buffer), dx(b, out.dx), dw(b, out.dw);
  const WeightOperand w(b, weight);
  const Rows rows = batch.tokens();
  if (tile_rows == 0) tile_rows = automatic_tile_rows(w.rows);
  const bool gradients = out.dx.valid();
  const Buffer forward = weight.forward, backward = gradients ? weight.backward : Buffer{};
  const bool accumulate_dw = gradients && b.accumulate(out.dw);
  const WorkspaceOperand scratch(b,
                                 kernels::loss_head_workspace_bytes({.dtype = x.dtype,
                                                                     .max_tokens = rows.max_rows(),
                                                                     .d = x.cols,
                                                                     .vocab = w.rows,
                                                                     .tile_rows = tile_rows,
                                                                     .gradients = gradients},
                                                                    b.target().isa, b.target().num_threads));
  const double per_row = (gradients ? 6.0 : 2.0) * static_cast<double>(w.rows) * static_cast<double>(w.cols);
  b.emit(
      {.name = name,
       .kind = "loss_head",
       .accesses = {reads(x.buffer), reads(weight.plain), reads(forward), reads(backward),
                    reads(batch.labels), reads(batch.counts), reads(out.grad_scales), updates(out.loss_sums),
                    writes(out.row_loss), writes_or_adds(out.dx, out.accumulate_dx),
                    writes_or_adds(out.dw, accumulate_dw), writes(scratch.buffer)},
       .cost =
           [=](const RunCounts& c) {
             // Each tile reads the weights for its logits, and again for dx; it writes or updates dw.
             const double r = rows.value(c), tiles = std::ceil(r / static_cast<double>(tile_rows));
             const double weights = w.bytes(), dweights = dw.bytes(static_cast<double>(w.rows));
             double bytes = x.bytes(r) + tiles * weights;
             if (gradients)
               bytes += dx.bytes(r) + tiles * weights + (2 * tiles - (accumulate_dw ? 0 : 1)) * dweights;
             return Cost{r * per_row, bytes, 0};
           },
       .run =
           [=](const RunContext& ctx) {
             const float* scale = ctx.data<float>(out.grad_scales);
             kernels::loss_head(*ctx.exec, {.x = x.at(ctx),
                                            .w = w.at(ctx),
                                            .packed_forward = ctx.data<void>(forward),
                                            .packed_backward = ctx.data<void>(backward),
                                            .labels = ctx.data<std::int32_t>(batch.labels),
                                            .loss_sum = ctx.data<double>(out.loss_sums) + out.index,
                                            .row_loss = ctx.data<float>(out.row_loss),
                                            .grad_scale = scale != nullptr ? scale + out.index : nullptr,
                                            .dx = dx.at(ctx),
                                            .accumulate_dx = out.accumulate_dx,
                                            .dw = dw.at(ctx),
                                            .accumulate_dw = accumulate_dw,
                                            .tile_rows = tile_rows,
                                            .tokens = rows.at(ctx),
                                            .workspace = scratch.at(ctx)});
           }});
}

}  // namespace planalto::ops
