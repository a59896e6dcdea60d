// SPDX-License-Identifier: Apache-2.0
// ffn_bench.cpp: forward and backward of the experts of one MoE layer on the ffn shapes of bench/shapes/, beside oneDNN's loop over
//                experts in the same rounds; and what the first step on a routing never seen costs.
// Counts      rows in the order of experts, so neither gather nor combine; gate and up one product, SwiGLU with the route's weight
//             (ours beside the peer's products too), down, and their gradients: 18 D F multiply-adds and additions a row
// Routings    a routing is stepped on twice; the first time over the second is its price. Peers keep what they made for row counts.
// usage: ffn_bench --help
#include <fmt/core.h>

#include <algorithm>

#include "bench/harness/operands.h"
#include "bench/harness/session.h"
#include "bench/harness/shapes.h"
#include "bench/peers/products.h"
#include "kernels/packed_weight.h"
#include "kernels/swiglu.h"
#include "kernels/table.h"

namespace planalto::bench {
namespace {

using kernels::GemmPass;
using kernels::Segments;

// Weights [E * N, K] as products read them: plain, packed twice, and the gradient.
struct Weights {
  Weights(const ExecContext& ctx, std::int64_t experts, std::int64_t rows, std::int64_t cols, DType dtype)
      : n(rows), plain(dtype, experts * rows, cols, 1), grad(DType::f32, experts * rows, cols, 2) {
    if (dtype != DType::bf16) return;
    forward = Operand(kernels::packed_weight_bytes(experts, rows, cols, ctx.kernels->isa));
    backward = Operand(kernels::packed_weight_bytes(experts, cols, rows, ctx.kernels->isa));
    kernels::pack_weight(ctx, {.source = grad.view().row<float>(0),
                               .copies = {experts, rows, cols, forward.data(), backward.data()}});
  }
  std::int64_t n;
  Operand plain, grad, forward, backward;
};

class Ffn {
 public:
  Ffn(const ExecContext& ctx, const Shape& s, DType dtype)
      : ctx_(ctx),
        s_(s),
        rows_(s.rows()),
        gate_up_w_(ctx, s.experts, 2 * s.f, s.d, dtype),
        down_w_(ctx, s.experts, s.d, s.f, dtype),
        x_(dtype, rows_, s.d, 3),
        dx_(dtype, rows_, s.d, 4),
        y_(dtype, rows_, s.d, 5),
        dy_(dtype, rows_, s.d, 6),
        gate_up_(dtype, rows_, 2 * s.f, 7),
        dgate_up_(dtype, rows_, 2 * s.f, 8),
        act_(dtype, rows_, s.f, 9),
        dact_(dtype, rows_, s.f, 10),
        route_(DType::f32, 2, rows_, 11) {
    std::int64_t bytes = 0;
    for (const GemmPass pass : {GemmPass::forward, GemmPass::grad_input, GemmPass::grad_weight}) {
      for (const auto& [n, k] : {std::pair{2 * s.f, s.d}, std::pair{s.d, s.f}}) {
        bytes = std::max(bytes, grouped_gemm_workspace_bytes({pass, dtype, rows_, n, k, s.experts},
                                                             ctx.kernels->isa, ctx.pool->num_threads()));
      }
    }
    scratch_ = Operand(bytes);
  }

  double flops() const { return 18.0 * static_cast<double>(rows_ * s_.d) * static_cast<double>(s_.f); }
  // Weights twice and gradients once; x and dy twice, y and dx once; the wide and narrow activations written and read.
  double bytes() const {
    const auto element = static_cast<double>(dtype_bytes(x_.view().dtype));
    const auto weights = static_cast<double>(3 * s_.experts * s_.d * s_.f);
    return weights * (2.0 * element + 4.0) + static_cast<double>(rows_ * (6 * s_.d + 17 * s_.f)) * element;
  }

  void step(Products& products, const std::vector<std::int64_t>& offsets) const {
    const Segments segments{s_.experts, offsets.data()};
    const float* weight = route_.view().row<float>(0);
    forward(products, x_, gate_up_w_, gate_up_, segments);
    kernels::swiglu_forward(
        ctx_, {.gate_up = gate_up_.view(), .row_weight = weight, .act = act_.view(), .rows = count()});
    forward(products, act_, down_w_, y_, segments);

    grad_input(products, dy_, down_w_, dact_, segments);
    kernels::swiglu_backward(ctx_, {.gate_up = gate_up_.view(),
                                    .row_weight = weight,
                                    .dact = dact_.view(),
                                    .dgate_up = dgate_up_.view(),
                                    .drow_weight = route_.view().row<float>(1),
                                    .act = act_.view(),
                                    .rows = count()});
    grad_weight(products, dy_, act_, down_w_, segments);
    grad_input(products, dgate_up_, gate_up_w_, dx_, segments);
    grad_weight(products, dgate_up_, x_, gate_up_w_, segments);
  }

 private:
  RowCount count() const { return {nullptr, rows_, 1}; }

  void forward(Products& products, const Operand& x, const Weights& w, const Operand& y,
               const Segments& segments) const {
    products.forward({.x = x.view(),
                      .w = w.plain.view(),
                      .packed = w.forward.data(),
                      .y = y.view(),
                      .segments = segments,
                      .rows = count(),
                      .workspace = scratch_.workspace()});
  }
  void grad_input(Products& products, const Operand& dy, const Weights& w, const Operand& dx,
                  const Segments& segments) const {
    products.grad_input({.dy = dy.view(),
                         .w = w.plain.view(),
                         .packed = w.backward.data(),
                         .dx = dx.view(),
                         .segments = segments,
                         .rows = count(),
                         .workspace = scratch_.workspace()});
  }
  void grad_weight(Products& products, const Operand& dy, const Operand& x, const Weights& w,
                   const Segments& segments) const {
    products.grad_weight({.dy = dy.view(),
                          .x = x.view(),
                          .dw = w.grad.view(),
                          .segments = segments,
                          .rows = count(),
                          .workspace = scratch_.workspace()});
  }

  const ExecContext& ctx_;
  Shape s_;
  std::int64_t rows_;
  Weights gate_up_w_, down_w_;
  Operand x_, dx_, y_, dy_, gate_up_, dgate_up_, act_, dact_, route_, scratch_;
};

// The first step on each of some routings over the second one on it.
void print_price_of_routings(Session& session, const Shape& s, const Ffn& ffn, Products& products,
                             std::int64_t routings) {
  std::vector<double> prices;
  for (std::int64_t i = 0; i < routings; ++i) {
    const std::vector<std::int64_t> offsets = s.offsets(static_cast<std::uint64_t>(100 + i));
    const double start = session.meter().now();
    ffn.step(products, offsets);
    const double seen = session.meter().now();
    ffn.step(products, offsets);
    prices.push_back((seen - start) / (session.meter().now() - seen));
  }
  if (prices.empty()) return;
  session.report().add_fact(
      s.name + " first step on a routing over the second", products.name(), prices,
      fmt::format(
          "a routing never seen costs {:.2f} of a repeated one by {} (median of {}, {:.2f} to {:.2f})",
          median(prices), products.name(), prices.size(), quantile(prices, 0.0), quantile(prices, 1.0)));
}

void measure_shape(Session& session, const Shape& s, DType dtype) {
  const Ffn ffn(session.ctx(), s, dtype);
  const std::vector<std::int64_t> offsets = s.offsets(1);
  std::vector<std::unique_ptr<Products>> by;
  by.push_back(planalto_products(session.ctx()));
  if (session.with_peers()) {
    if (auto peer = onednn_products(session.ctx().pool->num_threads(), dtype == DType::bf16)) {
      by.push_back(std::move(peer));
    }
  }
  const std::string name = fmt::format("{} {} ffn forward+backward", s.name, to_string(dtype));
  std::vector<Session::Contender> contenders;
  contenders.reserve(by.size());
  for (const auto& p : by) {
    contenders.push_back({name, p->name(), [&ffn, &offsets, p = p.get()] { ffn.step(*p, offsets); }});
  }
  session.measure(dtype == DType::f32 ? Bound::f32 : Bound::bf16, ffn.flops(), ffn.bytes(), contenders);
  if (s.top_k == 0) return;
  for (const auto& p : by) {
    print_price_of_routings(session, s, ffn, *p, session.arguments().integer("--routings"));
  }
}

void run(Session& session) {
  for_each_shape(session, Shape::Kind::ffn,
                 [&](const Shape& s, DType dtype) { measure_shape(session, s, dtype); });
}

}  // namespace
}  // namespace planalto::bench

int main(int argc, char** argv) {
  return planalto::bench::run_benchmark(argc, argv,
                                        {{"--shapes", PLANALTO_BENCH_SHAPES, "a file of shapes, or a folder"},
                                         {"--only", "", "a part of the names of shapes"},
                                         {"--dtype", "bf16", "f32, bf16 or both"},
                                         {"--routings", "4", "routings never seen that are tried"}},
                                        planalto::bench::run);
}
