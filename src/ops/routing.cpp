// SPDX-License-Identifier: Apache-2.0
#include "ops/routing.h"

#include "kernels/permute.h"
#include "ops/optimizer.h"

namespace planalto::ops {

namespace {

std::function<Cost(const RunCounts&)> token_cost(const Rows& rows, double flops, double bytes) {
  return [=](const RunCounts& c) { return Cost{rows.value(c) * flops, rows.value(c) * bytes, 0}; };
}

double experts(const Routes& r) {
  return static_cast<double>(r.num_experts);
}

}  // namespace

void route(Builder& b, const std::string& name, const kernels::RouterOptions& o, Buffer bias,
           const Routes& r) {
  b.emit({.name = name,
          .kind = "router_forward",
          .accesses = {reads(r.logits), reads(bias), reads(r.tokens.counts), writes(r.scores), writes(r.ids),
                       writes(r.weights), writes(r.counts)},
          .cost = token_cost(r.tokens, 4 * experts(r), 8 * experts(r)),
          .run = [=](const RunContext& ctx) {
            kernels::router_forward(*ctx.exec, {.options = o,
                                                .logits = ctx.data<float>(r.logits),
                                                .bias = ctx.data<float>(bias),
                                                .scores = ctx.data<float>(r.scores),
                                                .ids = ctx.data<std::int32_t>(r.ids),
                                                .weights = ctx.data<float>(r.weights),
                                                .counts = ctx.data<std::int64_t>(r.counts),
                                                .tokens = r.tokens.at(ctx)});
          }});
}

void route_again(Builder& b, const std::string& name, const kernels::RouterOptions& o, const Routes& r) {
  b.emit({.name = name,
          .kind = "router_weights",
          .accesses = {reads(r.logits), reads(r.ids), reads(r.tokens.counts), writes(r.scores),
                       writes(r.weights), writes(r.counts)},
          .cost = token_cost(r.tokens, 4 * experts(r), 8 * experts(r)),
          .run = [=](const RunContext& ctx) {
            kernels::router_weights(*ctx.exec, {.options = o,
                                                .logits = ctx.data<float>(r.logits),
                                                .ids = ctx.data<std::int32_t>(r.ids),
                                                .scores = ctx.data<float>(r.scores),
                                                .weights = ctx.data<float>(r.weights),
                                                .counts = ctx.data<std::int64_t>(r.counts),
                                                .tokens = r.tokens.at(ctx)});
          }});
}

void route_layout(Builder& b, const std::string& name, const Routes& r) {
  b.emit({.name = name,
          .kind = "route_layout",
          .accesses = {reads(r.ids), reads(r.weights), reads(r.counts), reads(r.tokens.counts),
                       writes(r.offsets), writes(r.source_row), writes(r.position), writes(r.row_weights)},
          .cost = token_cost(r.tokens, 0, 20.0 * static_cast<double>(r.top_k)),
          .run = [=](const RunContext& ctx) {
            kernels::route_layout(*ctx.exec, {.ids = ctx.data<std::int32_t>(r.ids),
                                              .counts = ctx.data<std::int64_t>(r.counts),
                                              .num_experts = r.num_experts,
                                              .top_k = r.top_k,
                                              .weights = ctx.data<float>(r.weights),
                                              .offsets = ctx.data<std::int64_t>(r.offsets),
                                              .source_row = ctx.data<std::int32_t>(r.source_row),
                                              .position = ctx.data<std::int32_t>(r.position),
                                              .row_weights = ctx.data<float>(r.row_weights),
                                              .tokens = r.tokens.at(ctx)});
          }});
}

void route_backward(Builder& b, const std::string& name, const kernels::RouterOptions& o, const Routes& r,
                    Buffer dweights, Buffer dlogits) {
  b.emit(
      {.name = name,
       .kind = "router_backward",
       .accesses = {reads(r.scores), reads(r.ids), reads(dweights), reads(r.tokens.counts), writes(dlogits)},
       .cost = token_cost(r.tokens, 4 * experts(r), 8 * experts(r)),
       .run = [=](const RunContext& ctx) {
         kernels::router_backward(*ctx.exec, {.options = o,
                                              .scores = ctx.data<float>(r.scores),
                                              .ids = ctx.data<std::int32_t>(r.ids),
                                              .dweights = ctx.data<float>(dweights),
                                              .dlogits = ctx.data<float>(dlogits),
                                              .tokens = r.tokens.at(ctx)});
       }});
}

void aux_loss(Builder& b, const std::string& name, const kernels::RouterOptions& o, const AuxLoss& aux,
              const Routes& r, const Batch& batch, Buffer loss, std::int64_t loss_index, Buffer dlogits) {
  const WorkspaceOperand scratch(b, kernels::router_aux_loss_workspace_bytes(o, r.tokens.max_rows()));
  const Rows documents = batch.documents();
  b.emit({.name = name,
          .kind = "router_aux_loss",
          .accesses = {reads(r.logits), reads(r.scores), reads(r.ids), reads(r.counts),
                       reads(aux.joined_counts), reads(batch.doc_offsets), reads(batch.counts),
                       reads(batch.aux_scale), updates(loss), updates(dlogits), writes(scratch.buffer)},
          .cost = token_cost(r.tokens, 6 * experts(r), 12 * experts(r)),
          .run = [=](const RunContext& ctx) {
            const double* scale = ctx.data<double>(batch.aux_scale);
            double* value = ctx.data<double>(loss);
            kernels::router_aux_loss(*ctx.exec,
                                     {.kind = aux.kind,
                                      .options = o,
                                      .coefficient = aux.coefficient,
                                      .scale = scale != nullptr ? scale + aux.scale_index : nullptr,
                                      .logits = ctx.data<float>(r.logits),
                                      .scores = ctx.data<float>(r.scores),
                                      .ids = ctx.data<std::int32_t>(r.ids),
                                      .counts = ctx.data<std::int64_t>(r.counts),
                                      .joined_counts = ctx.data<std::int64_t>(aux.joined_counts),
                                      .joined_layers = aux.joined_layers,
                                      .doc_offsets = ctx.data<std::int32_t>(batch.doc_offsets),
                                      .num_docs = documents.at(ctx),
                                      .loss = value != nullptr ? value + loss_index : nullptr,
                                      .dlogits = ctx.data<float>(dlogits),
                                      .tokens = r.tokens.at(ctx),
                                      .workspace = scratch.at(ctx)});
          }});
}

void count_routes(Builder& b, const std::string& name, const Routes& r, Buffer totals, std::int64_t row,
                  bool first) {
  const std::int64_t num = r.num_experts;
  const Buffer counts = r.counts;
  b.emit({.name = name,
          .kind = "count_routes",
          .accesses = {reads(counts), first ? writes(totals) : updates(totals)},
          .run = [=](const RunContext& ctx) {
            const std::int64_t* from = ctx.data<std::int64_t>(counts);
            std::int64_t* to = ctx.data<std::int64_t>(totals) + row * num;
            for (std::int64_t e = 0; e < num; ++e) to[e] = first ? from[e] : to[e] + from[e];
          }});
}

void update_router_bias(Builder& b, const std::string& name, Buffer bias, Buffer totals, std::int64_t row,
                        float rate, Buffer verdict) {
  const std::int64_t num = b.info(totals).cols;
  b.emit({.name = name,
          .kind = "router_bias_update",
          .accesses = {updates(bias), reads(totals), reads(verdict)},
          .run = [=](const RunContext& ctx) {
            if (ctx.data<StepVerdict>(verdict)->skip != 0) return;
            kernels::router_bias_update({.bias = ctx.data<float>(bias),
                                         .counts = ctx.data<std::int64_t>(totals) + row * num,
                                         .num_experts = num,
                                         .rate = rate});
          }});
}

void gather_rows(Builder& b, const std::string& name, Buffer x_buffer, Buffer source_row, Buffer rows_buffer,
                 const Rows& num_rows) {
  const Operand x(b, x_buffer), rows(b, rows_buffer);
  b.emit({.name = name,
          .kind = "gather_rows",
          .accesses = {reads(x.buffer), reads(source_row), reads(num_rows.counts), writes(rows.buffer)},
          .cost = token_cost(num_rows, 0, 2 * rows.bytes(1)),
          .run = [=](const RunContext& ctx) {
            kernels::gather_rows(*ctx.exec, {.x = x.at(ctx),
                                             .source_row = ctx.data<std::int32_t>(source_row),
                                             .rows = rows.at(ctx),
                                             .num_rows = num_rows.at(ctx)});
          }});
}

void combine_rows(Builder& b, const std::string& name, Buffer rows_buffer, const Routes& r, Buffer y_buffer,
                  bool accumulate) {
  const Operand rows(b, rows_buffer), y(b, y_buffer);
  const auto k = static_cast<double>(r.top_k);
  b.emit(
      {.name = name,
       .kind = "combine_rows",
       .accesses = {reads(rows.buffer), reads(r.position), reads(r.tokens.counts),
                    writes_or_adds(y.buffer, accumulate)},
       .cost = token_cost(r.tokens, k * static_cast<double>(y.cols), (k + (accumulate ? 2 : 1)) * y.bytes(1)),
       .run = [=](const RunContext& ctx) {
         kernels::combine_rows(*ctx.exec, {.rows = rows.at(ctx),
                                           .position = ctx.data<std::int32_t>(r.position),
                                           .top_k = r.top_k,
                                           .y = y.at(ctx),
                                           .accumulate = accumulate,
                                           .tokens = r.tokens.at(ctx)});
       }});
}

void scatter_rows(Builder& b, const std::string& name, Buffer rows_buffer, Buffer target_row, Buffer y_buffer,
                  const Rows& num_rows) {
  const Operand rows(b, rows_buffer), y(b, y_buffer);
  b.emit({.name = name,
          .kind = "scatter_rows",
          .accesses = {reads(rows.buffer), reads(target_row), reads(num_rows.counts), updates(y.buffer)},
          .cost = token_cost(num_rows, static_cast<double>(y.cols), 3 * rows.bytes(1)),
          .run = [=](const RunContext& ctx) {
            kernels::scatter_rows(*ctx.exec, {.rows = rows.at(ctx),
                                              .target_row = ctx.data<std::int32_t>(target_row),
                                              .y = y.at(ctx),
                                              .accumulate = true,
                                              .num_rows = num_rows.at(ctx)});
          }});
}

void unsort_route_values(Builder& b, const std::string& name, Buffer sorted, const Routes& r, Buffer values) {
  b.emit({.name = name,
          .kind = "unsort_route_values",
          .accesses = {reads(sorted), reads(r.position), reads(r.tokens.counts), writes(values)},
          .cost = token_cost(r.tokens, 0, 12.0 * static_cast<double>(r.top_k)),
          .run = [=](const RunContext& ctx) {
            kernels::unsort_route_values(*ctx.exec, {.sorted = ctx.data<float>(sorted),
                                                     .position = ctx.data<std::int32_t>(r.position),
                                                     .top_k = r.top_k,
                                                     .values = ctx.data<float>(values),
                                                     .tokens = r.tokens.at(ctx)});
          }});
}

}  // namespace planalto::ops
