// SPDX-License-Identifier: Apache-2.0
#include "train/step_program.h"

#include <algorithm>
#include <cstring>

#include "ops/collective.h"
#include "ops/linear.h"
#include "ops/rows.h"

namespace planalto {

namespace {

StepBuffers make_buffers(BufferTable& table, const ModelConfig& c, const StepOptions& o,
                         std::int64_t num_trainable) {
  const std::int64_t m = o.num_microbatches, t = o.max_tokens;
  auto add = [&](const char* name, DType dtype, std::int64_t rows, std::int64_t cols, Role role) {
    return table.add(
        {.name = name, .dtype = dtype, .rows = rows, .cols = cols, .role = role, .persistent = true});
  };
  StepBuffers s;
  s.ids = add("input.ids", DType::i32, m, t, Role::input);
  s.labels = add("input.labels", DType::i32, m, t, Role::input);
  s.positions = add("input.positions", DType::i32, m, t, Role::input);
  s.doc_offsets = add("input.doc_offsets", DType::i32, m, t + 1, Role::input);
  s.counts = add("input.counts", DType::i64, m, ops::kNumCounts, Role::input);
  s.aux_scale = add("input.aux_scale", DType::f64, m, (1 + c.num_mtp) * ops::kNumScales, Role::input);
  s.scalars = add("input.adamw", DType::f32,
                  static_cast<std::int64_t>(sizeof(kernels::AdamWScalars) / sizeof(float)), 1, Role::input);
  s.loss_weights = add("input.loss_weights", DType::f64, 1 + c.num_mtp, 1, Role::input);
  s.trained = add("input.trained", DType::i64, 1 + c.num_mtp, 1, Role::input);
  s.all_trained = add("statistic.all_trained", DType::i64, 1 + c.num_mtp, 1, Role::statistic);
  s.loss_sums = add("statistic.loss_sums", DType::f64,
                    1 + c.num_mtp + static_cast<std::int64_t>(o.aux_losses.size()), 1, Role::statistic);
  const std::int64_t moe = num_moe_blocks(c);
  s.route_totals = add("statistic.route_totals", DType::i64, moe, c.moe.num_experts, Role::statistic);
  for (const ops::AuxLoss& aux : o.aux_losses) {
    if (aux.kind != kernels::AuxLossKind::joined || s.joined_counts.valid()) continue;
    s.joined_counts = add("statistic.joined_counts", DType::i64, c.moe.num_experts, 1, Role::statistic);
  }
  s.square_sums = add("statistic.square_sums", DType::f64, num_trainable, 1, Role::statistic);
  s.verdict = add("statistic.verdict", DType::u8, sizeof(ops::StepVerdict), 1, Role::statistic);
  s.rope_table = add("rope.table", DType::f32, o.max_positions, c.attention.rope.rotary_dim, Role::input);
  if (o.replay_routes)
    s.replay_ids = add("input.replay_ids", DType::i32, moe * m * t, c.moe.top_k, Role::input);
  if (o.record_routes)
    s.recorded_ids = add("statistic.recorded_ids", DType::i32, moe * m * t, c.moe.top_k, Role::statistic);
  return s;
}

// Copies row `first + iteration` of the inputs to the microbatch that the model works on.
ops::Batch select_microbatch(Builder& b, const StepBuffers& s, std::int64_t max_tokens, std::int64_t first) {
  ops::Batch batch;
  batch.max_tokens = max_tokens;
  struct Copy {
    Buffer from, to;
    std::int64_t bytes;
  };
  std::vector<Copy> copies;
  Op op;
  op.name = "select";
  op.kind = "select_microbatch";
  auto copy = [&](const char* name, Buffer from) {
    const BufferInfo info = b.info(from);
    const Buffer to = b.transient(name, info.dtype, info.cols, 1);
    copies.push_back({from, to, info.cols * dtype_bytes(info.dtype)});
    op.accesses.push_back(ops::reads(from));
    op.accesses.push_back(ops::writes(to));
    return to;
  };
  batch.ids = copy("ids", s.ids);
  batch.labels = copy("labels", s.labels);
  batch.positions = copy("positions", s.positions);
  batch.doc_offsets = copy("doc_offsets", s.doc_offsets);
  batch.counts = copy("counts", s.counts);
  batch.aux_scale = copy("aux_scale", s.aux_scale);
  op.run = [copies, first](const RunContext& ctx) {
    const std::int64_t m = first + ctx.iteration;
    for (const Copy& c : copies) {
      std::memcpy(ctx.data<char>(c.to), ctx.data<char>(c.from) + m * c.bytes,
                  static_cast<std::size_t>(c.bytes));
    }
  };
  b.emit(std::move(op));
  return batch;
}

// One division for the whole step: the gradient of each loss is scaled by its weight over its labels on all ranks.
Buffer scale_gradients(Builder& b, const StepBuffers& s, const CommGroup& world) {
  const std::int64_t n = b.info(s.trained).elements();
  b.emit({.name = "count.trained",
          .kind = "copy",
          .accesses = {ops::reads(s.trained), ops::writes(s.all_trained)},
          .run = [=](const RunContext& ctx) {
            std::copy_n(ctx.data<std::int64_t>(s.trained), n, ctx.data<std::int64_t>(s.all_trained));
          }});
  ops::all_reduce(b, "reduce.trained", world, s.all_trained, Reduction::sum);
  const Buffer scales = b.transient("grad_scales", DType::f32, n, 1);
  b.emit({.name = "grad_scales",
          .kind = "grad_scales",
          .accesses = {ops::reads(s.all_trained), ops::reads(s.loss_weights), ops::writes(scales)},
          .run = [=](const RunContext& ctx) {
            const auto* trained = ctx.data<std::int64_t>(s.all_trained);
            const auto* weights = ctx.data<double>(s.loss_weights);
            for (std::int64_t i = 0; i < n; ++i) {
              const auto labels = static_cast<double>(std::max<std::int64_t>(trained[i], 1));
              ctx.data<float>(scales)[i] = static_cast<float>(weights[i] / labels);
            }
          }});
  return scales;
}

// The norm needs the squares of every gradient: taken as each is complete, while it is still near.
class GradNormListener final : public Listener {
 public:
  GradNormListener(const ParameterSet& parameters, Buffer square_sums) : square_sums_(square_sums) {
    for (const Parameter& p : parameters.all()) {
      if (!p.gradient.valid()) continue;
      if (by_buffer_.size() <= static_cast<std::size_t>(p.gradient.id))
        by_buffer_.resize(static_cast<std::size_t>(p.gradient.id) + 1, -1);
      by_buffer_[static_cast<std::size_t>(p.gradient.id)] = num_++;
    }
  }
  void gradient_complete(Builder& b, Buffer gradient) override {
    ops::sum_squares(b, "squares." + b.info(gradient).name, gradient, square_sums_,
                     by_buffer_[static_cast<std::size_t>(gradient.id)]);
  }

 private:
  Buffer square_sums_;
  std::vector<std::int64_t> by_buffer_;
  std::int64_t num_ = 0;
};

class StepBuilder {
 public:
  StepBuilder(TrainingPrograms& p, const StepOptions& o, const Target& target, Observer* observer)
      : p_(p), options_(o), target_(target), observer_(observer) {}

  Program step() {
    Builder b(p_.table, target_, "step", 0);
    GradNormListener norms(p_.parameters, p_.buffers.square_sums);
    OptimizerListener optimizer(*this);
    b.add_listener(&norms);
    b.add_listener(&optimizer);
    ops::fill_zero(b, "zero.loss_sums", p_.buffers.loss_sums);
    if (num_moe_blocks(p_.config) > 0) ops::fill_zero(b, "zero.route_totals", p_.buffers.route_totals);
    b.set_phase(Phase::data);
    grad_scales_ = scale_gradients(b, p_.buffers, world_);
    const std::int64_t m = options_.num_microbatches;
    microbatch(b, m == 1 ? "only" : "first", 0);
    if (m > 2) {
      b.begin_repeat(m - 2);
      microbatch(b, "middle", 1);
      b.end_repeat();
    }
    if (m > 1) microbatch(b, "last", m - 1);
    return b.finish();
  }

  Program eval() {
    Builder b(p_.table, target_, "eval", 1);
    ops::fill_zero(b, "zero.loss_sums", p_.buffers.loss_sums);
    const ops::Batch batch = select_microbatch(b, p_.buffers, options_.max_tokens, 0);
    ModelContext m = context(false);
    m.observer = nullptr;
    m.route_totals = {};
    LanguageModel model(m);
    model.hidden_states(b, batch);
    model.losses(b, batch, {});
    ops::all_reduce(b, "reduce.loss_sums", world_, p_.buffers.loss_sums, Reduction::sum);
    return b.finish();
  }

  Program refresh() {
    Builder b(p_.table, target_, "refresh", 2);
    b.set_phase(Phase::optimizer);
    for (const Parameter& p : p_.parameters.all()) {
      if (p.packed()) ops::pack_weight(b, "pack." + p.spec.name, p.master, p.matrix());
    }
    return b.finish();
  }

 private:
  // Updates follow the decision, which follows the last gradient: emitted at the end of the program.
  class OptimizerListener final : public Listener {
   public:
    explicit OptimizerListener(StepBuilder& owner) : owner_(owner) {}
    void at_end(Builder& b) override { owner_.optimizer(b); }

   private:
    StepBuilder& owner_;
  };

  ModelContext context(bool training) const {
    ModelContext m;
    m.config = &p_.config;
    m.parameters = &p_.parameters;
    m.dtype = compute_dtype(options_.precision);
    m.rope_table = p_.buffers.rope_table;
    m.options.training = training;
    m.options.recompute = options_.recompute;
    m.options.loss_tile_rows = options_.loss_tile_rows;
    m.options.aux_losses = options_.aux_losses;
    m.options.replay_routes = options_.replay_routes && training;
    m.route_totals = num_moe_blocks(p_.config) > 0 ? p_.buffers.route_totals : Buffer{};
    m.loss_sums = p_.buffers.loss_sums;
    m.joined_counts = training ? p_.buffers.joined_counts : Buffer{};
    m.aux_loss_index = 1 + p_.config.num_mtp;
    m.replay_ids = p_.buffers.replay_ids;
    if (training) m.recorded_ids = p_.buffers.recorded_ids;
    m.observer = observer_;
    return m;
  }

  void microbatch(Builder& b, const std::string& name, std::int64_t index) {
    const auto scope = b.scope(name);
    b.set_phase(Phase::forward);
    const ops::Batch batch = select_microbatch(b, p_.buffers, options_.max_tokens, index);
    ModelContext m = context(true);
    m.first_microbatch = index;
    m.num_microbatches = options_.num_microbatches;
    LanguageModel model(m);
    model.hidden_states(b, batch);
    model.losses(b, batch, grad_scales_);
    b.set_phase(Phase::backward);
    model.backward(b, batch);
  }

  void optimizer(Builder& b) {
    const StepBuffers& s = p_.buffers;
    b.set_phase(Phase::exchange);
    ops::all_reduce(b, "reduce.loss_sums", world_, s.loss_sums, Reduction::sum);
    if (num_moe_blocks(p_.config) > 0)
      ops::all_reduce(b, "reduce.route_totals", world_, s.route_totals, Reduction::sum);
    b.set_phase(Phase::optimizer);
    ops::decide_step(b, "decide", s.square_sums, s.loss_sums, s.all_trained, options_.clip_norm, s.verdict);
    for (const Parameter& p : p_.parameters.all()) {
      if (!p.gradient.valid()) continue;
      const bool decays = options_.decays ? options_.decays(p.spec) : p.spec.decay_by_default;
      const float decay = decays ? options_.weight_decay : 0.0F;
      ops::adamw(b, "adamw." + p.spec.name,
                 {.gradient = p.gradient,
                  .master = p.master,
                  .m = p.m,
                  .v = p.v,
                  .weight = p.weight == p.master ? ops::Weight(Buffer{}) : p.matrix()},
                 s.scalars, s.verdict, decay);
    }
    if (options_.router_bias_rate == 0.0F || !p_.config.moe.correction_bias) return;
    std::int64_t moe_idx = 0;
    for (std::int64_t i = 0; i < p_.config.num_blocks(); ++i) {
      if (!p_.config.is_moe(i)) continue;
      const std::string name = "layers." + std::to_string(i) + ".router.correction_bias";
      ops::update_router_bias(b, "update." + name, p_.parameters.at(name).weight, s.route_totals, moe_idx++,
                              options_.router_bias_rate, s.verdict);
    }
  }

  TrainingPrograms& p_;
  const StepOptions& options_;
  CommGroup world_ = options_.mesh.group(MeshAxis::world);
  Target target_;
  Observer* observer_;
  Buffer grad_scales_;
};

std::int64_t num_trainable(const ParameterSet& parameters) {
  std::int64_t n = 0;
  for (const Parameter& p : parameters.all()) n += p.gradient.valid() ? 1 : 0;
  return n;
}

}  // namespace

TrainingPrograms::TrainingPrograms(const ModelConfig& model, const StepOptions& options, const Target& target,
                                   Observer* observer)
    : config(model),
      parameters(table, config,
                 {.precision = options.precision,
                  .training = true,
                  .packed = options.packed_weights,
                  .target = target}) {
  buffers = make_buffers(table, config, options, num_trainable(parameters));
  for (const Parameter& p : parameters.all()) {
    if (p.gradient.valid()) square_sum_names.push_back(p.spec.name);
  }
  StepBuilder builder(*this, options, target, observer);
  step = builder.step();
  eval = builder.eval();
  refresh = builder.refresh();
}

std::vector<const Program*> TrainingPrograms::all() const {
  if (refresh.ops.empty()) return {&step, &eval};
  return {&step, &eval, &refresh};
}

}  // namespace planalto
