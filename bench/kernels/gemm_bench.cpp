// SPDX-License-Identifier: Apache-2.0
// gemm_bench.cpp: the three passes of the grouped product on the product shapes of bench/shapes/, in fp32 and bf16, in bf16 with
//                 plain and packed weights, each beside oneDNN's loop over experts in the same rounds.
// usage: gemm_bench --help
#include <fmt/core.h>

#include "bench/harness/operands.h"
#include "bench/harness/session.h"
#include "bench/harness/shapes.h"
#include "bench/peers/products.h"
#include "kernels/packed_weight.h"
#include "kernels/table.h"

namespace planalto::bench {
namespace {

using kernels::GemmPass;

struct Case {
  GemmPass pass;
  bool packed;
  const char* name;
};
constexpr Case kCases[] = {{GemmPass::forward, false, "forward"},
                           {GemmPass::forward, true, "forward packed"},
                           {GemmPass::grad_input, false, "grad_input"},
                           {GemmPass::grad_input, true, "grad_input packed"},
                           {GemmPass::grad_weight, false, "grad_weight"}};

// One shape's operands, and each pass over them.
class Problem {
 public:
  Problem(const ExecContext& ctx, const Shape& s, DType dtype)
      : ctx_(ctx),
        s_(s),
        dtype_(dtype),
        offsets_(s.offsets(1)),
        x_(dtype, s.rows(), s.k, 1),
        w_(dtype, s.experts * s.n, s.k, 2),
        dy_(dtype, s.rows(), s.n, 3),
        y_(dtype, s.rows(), s.n, 4),
        dx_(dtype, s.rows(), s.k, 5),
        dw_(DType::f32, s.experts * s.n, s.k, 6),
        forward_(kernels::packed_weight_bytes(s.experts, s.n, s.k, ctx.kernels->isa)),
        backward_(kernels::packed_weight_bytes(s.experts, s.k, s.n, ctx.kernels->isa)) {
    if (dtype != DType::bf16) return;
    kernels::pack_weight(ctx, {.source = dw_.view().row<float>(0),
                               .copies = {s.experts, s.n, s.k, forward_.data(), backward_.data()}});
  }

  double flops() const { return 2.0 * static_cast<double>(s_.rows() * s_.n) * static_cast<double>(s_.k); }
  // Every operand once.
  double bytes(GemmPass pass) const {
    const auto rows = static_cast<double>(s_.rows() * (s_.n + s_.k));
    const auto weights = static_cast<double>(s_.experts * s_.n * s_.k);
    const auto element = static_cast<double>(dtype_bytes(dtype_));
    return rows * element + weights * (pass == GemmPass::grad_weight ? 4.0 : element);
  }

  Meter::Body body(Products& products, const Case& c) {
    const std::int64_t bytes = grouped_gemm_workspace_bytes(
        {c.pass, dtype_, s_.rows(), s_.n, s_.k, s_.experts}, ctx_.kernels->isa, ctx_.pool->num_threads());
    if (bytes > scratch_.bytes()) scratch_ = Operand(bytes);
    return [this, &products, c] { run(products, c); };
  }

 private:
  void run(Products& products, const Case& c) const {
    const kernels::Segments segments{s_.experts, offsets_.data()};
    const RowCount rows{nullptr, s_.rows(), 1};
    switch (c.pass) {
      case GemmPass::forward:
        return products.forward({.x = x_.view(),
                                 .w = w_.view(),
                                 .packed = c.packed ? forward_.data() : nullptr,
                                 .y = y_.view(),
                                 .segments = segments,
                                 .rows = rows,
                                 .workspace = scratch_.workspace()});
      case GemmPass::grad_input:
        return products.grad_input({.dy = dy_.view(),
                                    .w = w_.view(),
                                    .packed = c.packed ? backward_.data() : nullptr,
                                    .dx = dx_.view(),
                                    .segments = segments,
                                    .rows = rows,
                                    .workspace = scratch_.workspace()});
      case GemmPass::grad_weight:
        return products.grad_weight({.dy = dy_.view(),
                                     .x = x_.view(),
                                     .dw = dw_.view(),
                                     .segments = segments,
                                     .rows = rows,
                                     .workspace = scratch_.workspace()});
    }
  }

  const ExecContext& ctx_;
  Shape s_;
  DType dtype_;
  std::vector<std::int64_t> offsets_;
  Operand x_, w_, dy_, y_, dx_, dw_, forward_, backward_, scratch_;
};

void measure_shape(Session& session, const Shape& s, DType dtype) {
  Problem problem(session.ctx(), s, dtype);
  const auto ours = planalto_products(session.ctx());
  std::unique_ptr<Products> peers[2];  // with plain and with packed weights
  for (const bool packed : {false, true}) {
    if (session.with_peers()) peers[packed] = onednn_products(session.ctx().pool->num_threads(), packed);
  }
  for (const Case& c : kCases) {
    if (c.packed && dtype != DType::bf16) continue;
    const std::string name = fmt::format("{} {} {}", s.name, to_string(dtype), c.name);
    std::vector<Session::Contender> contenders{{name, ours->name(), problem.body(*ours, c)}};
    if (const auto& peer = peers[c.packed]) {
      contenders.push_back({name, peer->name(), problem.body(*peer, c)});
    }
    session.measure(dtype == DType::f32 ? Bound::f32 : Bound::bf16, problem.flops(), problem.bytes(c.pass),
                    contenders);
  }
}

void run(Session& session) {
  for_each_shape(session, Shape::Kind::product,
                 [&](const Shape& s, DType dtype) { measure_shape(session, s, dtype); });
}

}  // namespace
}  // namespace planalto::bench

int main(int argc, char** argv) {
  return planalto::bench::run_benchmark(argc, argv,
                                        {{"--shapes", PLANALTO_BENCH_SHAPES, "a file of shapes, or a folder"},
                                         {"--only", "", "a part of the names of shapes"},
                                         {"--dtype", "both", "f32, bf16 or both"}},
                                        planalto::bench::run);
}
