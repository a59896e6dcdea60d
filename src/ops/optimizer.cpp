// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/optimizer.h"

namespace planalto::ops {

void sum_squares(Builder& b, const std::string& name, Buffer gradient, Buffer square_sums,
                 std::int64_t index) {
  const std::int64_t n = b.info(gradient).elements();
  const WorkspaceOperand scratch(b, kernels::sum_squares_workspace_bytes(n));
  const auto elements = static_cast<double>(n);
  b.emit({.name = name,
          .kind = "sum_squares",
          .accesses = {reads(gradient), writes(square_sums), writes(scratch.buffer)},
          .cost =
              [=](const RunCounts&) {
                return Cost{2 * elements, 4 * elements, 0};
              },
          .run =
              [=](const RunContext& ctx) {
                kernels::sum_squares(*ctx.exec, {.x = ctx.data<float>(gradient),
                                                 .n = n,
                                                 .sum = ctx.data<double>(square_sums) + index,
                                                 .workspace = scratch.at(ctx)});
              }});
}

void decide_step(Builder& b, const std::string& name, Buffer square_sums, Buffer loss_sums, Buffer trained,
                 double max_norm, Buffer verdict) {
  const std::int64_t num_sums = b.info(square_sums).elements();
  const std::int64_t num_losses = b.info(loss_sums).elements();
  b.emit({.name = name,
          .kind = "decide_step",
          .accesses = {reads(square_sums), reads(loss_sums), reads(trained), writes(verdict)},
          .run = [=](const RunContext& ctx) {
            const double* sums = ctx.data<double>(square_sums);
            const double* losses = ctx.data<double>(loss_sums);
            StepVerdict v;
            double total = 0.0;
            for (std::int64_t i = 0; i < num_sums; ++i) {
              if (!std::isfinite(sums[i]) && v.bad_gradient < 0)
                v.bad_gradient = static_cast<std::int32_t>(i);
              total += sums[i];
            }
            for (std::int64_t i = 0; i < num_losses; ++i) v.bad_loss |= std::isfinite(losses[i]) ? 0 : 1;
            v.grad_norm = std::sqrt(total);
            if (max_norm > 0)
              v.grad_factor = static_cast<float>(std::min(1.0, max_norm / (v.grad_norm + 1e-6)));
            v.skip = v.bad_gradient >= 0 || v.bad_loss != 0 || *ctx.data<std::int64_t>(trained) == 0 ? 1 : 0;
            *ctx.data<StepVerdict>(verdict) = v;
          }});
}

void adamw(Builder& b, const std::string& name, const AdamWBuffers& p, Buffer scalars, Buffer verdict,
           float decay) {
  const std::int64_t n = b.info(p.gradient).elements();
  const auto elements = static_cast<double>(n);
  double bytes = 28.0;  // gradient, three states read and written, then the bf16 copies
  for (const Buffer copy : {p.weight.plain, p.weight.forward, p.weight.backward})
    bytes += copy.valid() ? 2.0 : 0.0;
  b.emit(
      {.name = name,
       .kind = "adamw_update",
       .accesses = {reads(p.gradient), updates(p.master), updates(p.m), updates(p.v), writes(p.weight.plain),
                    writes(p.weight.forward), writes(p.weight.backward), reads(scalars), reads(verdict)},
       .cost =
           [=](const RunCounts&) {
             return Cost{14 * elements, bytes * elements, 0};
           },
       .run =
           [=](const RunContext& ctx) {
             const auto* v = ctx.data<StepVerdict>(verdict);
             kernels::adamw_update(*ctx.exec, {.n = n,
                                               .grad = ctx.data<float>(p.gradient),
                                               .master = ctx.data<float>(p.master),
                                               .m = ctx.data<float>(p.m),
                                               .v = ctx.data<float>(p.v),
                                               .weight = ctx.data<void>(p.weight.plain),
                                               .packed = p.weight.copies(ctx),
                                               .scalars = ctx.data<kernels::AdamWScalars>(scalars),
                                               .grad_factor = &v->grad_factor,
                                               .skip = &v->skip,
                                               .decay = decay});
           }});
}

}  // namespace planalto::ops
