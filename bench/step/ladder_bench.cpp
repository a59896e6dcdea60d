// SPDX-License-Identifier: Apache-2.0
// ladder_bench.cpp: the tiny step (step/tiny_step.h) in bf16 with one thing switched on at a time, and what each gains:
//   loop      plain weights, every expert's product a call (and a parallel region) of its own
//   grouped   plain weights, one call for all experts of a layer (memory.packed_weights = false)
//   packed    weights that the optimizer writes as products read them (the default)
// The loop replaces entries of the kernel table; the training program is the same.
// usage: ladder_bench --help (bench/ladder runs it)
#include <fmt/core.h>

#include <memory>

#include "base/error.h"
#include "bench/harness/session.h"
#include "bench/step/tiny_step.h"
#include "kernels/grouped_gemm.h"
#include "kernels/table.h"

namespace planalto::bench {
namespace {

using kernels::Segments;

// rows .. of m, `num` of them from `first` on.
template <class M>
M part(M m, std::int64_t first, std::int64_t num) {
  m.data =
      m.data == nullptr ? nullptr : m.template row<char>(0) + first * m.row_stride * dtype_bytes(m.dtype);
  m.rows = num;
  return m;
}

// Calls body(expert, first row, rows) for each, or for all rows at once where there are no segments.
template <class Args, class Body>
void for_each_expert(const Args& a, const Body& body) {
  const Segments& s = a.segments;
  if (s.offsets == nullptr) return body(0, 0, a.rows.get());
  for (std::int64_t e = 0; e < s.num; ++e) body(e, s.offsets[e], s.offsets[e + 1] - s.offsets[e]);
}

template <class Args>
Args one_expert(const Args& a, std::int64_t rows) {
  Args one = a;
  one.segments = {1, nullptr};
  one.rows = {nullptr, rows, 1};
  return one;
}

const kernels::KernelTable& grouped(const ExecContext& ctx) {
  return kernels::kernel_table(ctx.kernels->isa);
}

void loop_forward(const ExecContext& ctx, const kernels::GroupedGemmForward& a) {
  PLANALTO_CHECK(a.packed == nullptr && (a.bias == nullptr || a.segments.num == 1),
                 "the loop over experts knows neither packed weights nor biases of experts");
  for_each_expert(a, [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
    kernels::GroupedGemmForward one = one_expert(a, rows);
    one.x = part(a.x, first, rows);
    one.w = part(a.w, e * a.y.cols, a.y.cols);
    one.y = part(a.y, first, rows);
    grouped(ctx).grouped_gemm_forward(ctx, one);
  });
}

void loop_grad_input(const ExecContext& ctx, const kernels::GroupedGemmGradInput& a) {
  PLANALTO_CHECK(a.packed == nullptr, "the loop over experts knows no packed weights");
  for_each_expert(a, [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
    kernels::GroupedGemmGradInput one = one_expert(a, rows);
    one.dy = part(a.dy, first, rows);
    one.w = part(a.w, e * a.dy.cols, a.dy.cols);
    one.dx = part(a.dx, first, rows);
    grouped(ctx).grouped_gemm_grad_input(ctx, one);
  });
}

void loop_grad_weight(const ExecContext& ctx, const kernels::GroupedGemmGradWeight& a) {
  for_each_expert(a, [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
    kernels::GroupedGemmGradWeight one = one_expert(a, rows);
    one.dy = part(a.dy, first, rows);
    one.x = part(a.x, first, rows);
    one.dw = part(a.dw, e * a.dy.cols, a.dy.cols);
    grouped(ctx).grouped_gemm_grad_weight(ctx, one);
  });
}

class LastReport final : public TrainerObserver {
 public:
  void on_step(const StepReport& r) override { report = r; }
  StepReport report;
};

struct Rung {
  const char* name;
  bool loop, packed;
};
constexpr Rung kRungs[] = {{"loop of products per expert", true, false},
                           {"grouped products", false, false},
                           {"packed weights", false, true}};

// All trainers stand in memory and step in turn, so that a change of the machine's speed meets every rung.
void run(Session& session) {
  const ExecContext& ctx = session.ctx();
  kernels::KernelTable loop = *ctx.kernels;
  loop.grouped_gemm_forward = loop_forward;
  loop.grouped_gemm_grad_input = loop_grad_input;
  loop.grouped_gemm_grad_weight = loop_grad_weight;
  LastReport last;
  std::vector<std::unique_ptr<TinyStep>> steps;
  std::vector<Meter::Body> bodies;
  for (const Rung& rung : kRungs) {
    constexpr std::int64_t kForever = std::int64_t{1} << 30;
    TrainerOptions o =
        tiny_step_options({ctx.kernels->isa, ctx.pool->num_threads()}, Precision::bf16, kForever);
    o.step.packed_weights = rung.packed;
    if (rung.loop) o.executor.kernels = &loop;
    steps.push_back(std::make_unique<TinyStep>(o, last));
    Trainer* trainer = &steps.back()->trainer();
    trainer->request_stop();  // run() takes one step
    bodies.emplace_back([trainer] { trainer->run(); });
  }
  const Rounds rounds = session.meter().measure(Bound::bf16, bodies);
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    Entry e{.name = fmt::format("tiny-step bf16 {}", kRungs[i].name),
            .by = "planalto",
            .bound = Bound::bf16,
            .flops = last.report.model_flops,
            .series = rounds.series[i],
            .dropped = rounds.dropped,
            .steady = rounds.steady,
            .peer = {},
            .ratio = {}};
    if (i > 0) {
      e.peer = "the rung below";
      e.ratio = median(ratios(rounds.series[i - 1], rounds.series[i]));
    }
    session.report().add(e);
    const double rate = static_cast<double>(last.report.tokens) / median(e.series.seconds);
    session.report().add_fact(e.name + ", tokens per second", e.by, {rate},
                              fmt::format("{:.0f} tokens/s", rate));
  }
}

}  // namespace
}  // namespace planalto::bench

int main(int argc, char** argv) {
  return planalto::bench::run_benchmark(argc, argv, {}, planalto::bench::run);
}
