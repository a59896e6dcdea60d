// SPDX-License-Identifier: Apache-2.0
// stream_bench.cpp: kernels that are bound by memory, as shares of the update bandwidth of the same second.
// Units       least traffic: AdamW reads gradient, master and two moments and writes the last three (28 bytes an element, 30 with
//             a bf16 weight, 32 with two packed copies); SwiGLU in bf16 moves 6 bytes an activation forward, 12 backward
// usage: stream_bench --help
#include <fmt/core.h>

#include "bench/harness/operands.h"
#include "bench/harness/session.h"
#include "kernels/optimizer.h"
#include "kernels/swiglu.h"
#include "kernels/table.h"

namespace planalto::bench {
namespace {

constexpr std::int64_t kExperts = 32, kN = 1024, kK = 1024;  // 33.6 M elements
constexpr std::int64_t kElements = kExperts * kN * kK;
constexpr std::int64_t kRows = 65536, kWidth = 512;  // of activations

void measure_adamw(Session& session) {
  const ExecContext& ctx = session.ctx();
  const Operand grad(DType::f32, 1, kElements, 1), master(DType::f32, 1, kElements, 2);
  const Operand m(DType::f32, 1, kElements, 3), v(kElements * 4), weight(kElements * 2);
  const kernels::Isa isa = ctx.kernels->isa;
  const Operand forward(kernels::packed_weight_bytes(kExperts, kN, kK, isa));
  const Operand backward(kernels::packed_weight_bytes(kExperts, kK, kN, isa));
  const kernels::AdamWScalars scalars{.learning_rate = 1e-6};
  kernels::AdamWUpdate update{.n = kElements,
                              .grad = grad.view().row<float>(0),
                              .master = master.view().row<float>(0),
                              .m = m.view().row<float>(0),
                              .v = static_cast<float*>(v.data()),
                              .scalars = &scalars,
                              .decay = 0.1F};
  const auto measure = [&](const char* name, double bytes) {
    session.measure(Bound::update, 0.0, bytes * static_cast<double>(kElements),
                    {{name, "planalto", [&] { kernels::adamw_update(ctx, update); }}});
  };
  measure("adamw fp32", 28.0);
  update.weight = weight.data();
  measure("adamw with a bf16 weight", 30.0);
  update.weight = nullptr;
  update.packed = {kExperts, kN, kK, forward.data(), backward.data()};
  measure("adamw with two packed copies", 32.0);
}

void measure_swiglu(Session& session) {
  const ExecContext& ctx = session.ctx();
  const Operand gate_up(DType::bf16, kRows, 2 * kWidth, 1), dgate_up(DType::bf16, kRows, 2 * kWidth, 2);
  const Operand act(DType::bf16, kRows, kWidth, 3), dact(DType::bf16, kRows, kWidth, 4);
  const auto elements = static_cast<double>(kRows * kWidth);
  session.measure(Bound::update, 0.0, 6.0 * elements,
                  {{"swiglu forward bf16", "planalto", [&] {
                      kernels::swiglu_forward(
                          ctx, {.gate_up = gate_up.view(), .act = act.view(), .rows = {nullptr, kRows, 1}});
                    }}});
  session.measure(Bound::update, 0.0, 12.0 * elements, {{"swiglu backward bf16", "planalto", [&] {
                                                           kernels::swiglu_backward(
                                                               ctx, {.gate_up = gate_up.view(),
                                                                     .dact = dact.view(),
                                                                     .dgate_up = dgate_up.view(),
                                                                     .act = act.view(),
                                                                     .rows = {nullptr, kRows, 1}});
                                                         }}});
}

void run(Session& session) {
  measure_adamw(session);
  measure_swiglu(session);
}

}  // namespace
}  // namespace planalto::bench

int main(int argc, char** argv) {
  return planalto::bench::run_benchmark(argc, argv, {}, planalto::bench::run);
}
