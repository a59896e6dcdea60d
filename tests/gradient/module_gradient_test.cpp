// SPDX-License-Identifier: Apache-2.0
// module_gradient_test.cpp: each module alone in a program of its own: its output, and the gradients at its input and its
// parameters, against the module in double. The loss is the sum of the output times a fixed dy, and the auxiliary losses.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "gradient/differences.h"
#include "gradient/variants.h"
#include "kernels/isa.h"
#include "model/block.h"
#include "model/mtp.h"
#include "model/rope_table.h"
#include "ops/rows.h"
#include "runtime/launch.h"

namespace planalto {
namespace {

// What a module works on. dx and y are overwritten, dy stays.
struct Surroundings {
  ModelContext m;
  ops::Batch batch;
  Buffer x, y, dy, dx;

  // A copy of dy, for modules whose backward consumes it.
  Buffer consumable_dy(Builder& b, const ops::Rows& rows) const {
    const Buffer grad = b.transient("grad", DType::f32, kCapacity, b.info(dy).cols);
    ops::add(b, "copy_dy", dy, {}, grad, rows);
    return grad;
  }
};
using Emit = std::function<void(Builder&, Surroundings&)>;
using InDouble = std::function<double_model::Matrix(double_model::Model&, const double_model::Batch&,
                                                    const double_model::Matrix&)>;

struct Module {
  std::vector<std::string> parameters;  // beginnings of their names
  Emit emit;
  InDouble in_double;
  std::int64_t x_cols = 0;  // 0: hidden_size

  bool owns(const std::string& parameter) const {
    return std::any_of(parameters.begin(), parameters.end(),
                       [&](const std::string& beginning) { return parameter.starts_with(beginning); });
  }
};

std::vector<float> random_floats(std::uint64_t seed, std::int64_t n) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(Random(seed).normal(static_cast<std::uint64_t>(i))));
  }
  return values;
}

class ModuleRun {
 public:
  ModuleRun(const Variant& v, const ModelConfig& config, const Module& module)
      : config_(config),
        variant_(without_joined(v)),
        target_{kernels::choose_isa().isa, 2},
        parameters_(table_, config_, {.training = true}),
        x_cols_(module.x_cols > 0 ? module.x_cols : config.hidden_size),
        program_(build(module)),
        launch_(table_, {&program_}, {.target = target_, .executor = {.measure = true}}),
        model_(sample_model(variant_, config_, parameters_, table_, launch_.address_of())) {
    fill_rope_table(config_.attention.rope, kCapacity, launch_.data<float>(s_.m.rope_table));
    write_batch(
        sample_batch(config_),
        {launch_.data<std::int32_t>(s_.batch.ids), launch_.data<std::int32_t>(s_.batch.labels),
         launch_.data<std::int32_t>(s_.batch.positions), launch_.data<std::int32_t>(s_.batch.doc_offsets),
         launch_.data<std::int64_t>(s_.batch.counts)});
    std::copy(model_.aux_scale.begin(), model_.aux_scale.end(), launch_.data<double>(s_.batch.aux_scale));
    std::fill_n(launch_.data<double>(s_.m.loss_sums), table_[s_.m.loss_sums].elements(), 0.0);
    const std::vector<float> x = random_floats(21, kTokens * x_cols_),
                             dy = random_floats(22, kTokens * x_cols_);
    std::copy(x.begin(), x.end(), launch_.data<float>(s_.x));
    std::copy(dy.begin(), dy.end(), launch_.data<float>(s_.dy));
    launch_.run(program_);
  }

  void expect_equal(const Module& module) {
    const double_model::Batch batch = sample_batch(config_);
    double_model::Matrix x(kTokens, x_cols_);
    std::copy_n(launch_.data<float>(s_.x), x.values.size(), x.values.begin());
    const float* y = launch_.data<float>(s_.y);
    const double_model::Matrix expected = module.in_double(model_, batch, x);
    double largest = 0.0;
    for (const double e : expected.values) largest = std::max(largest, std::abs(e));
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(y[i]), expected.values[i], 5e-6 * largest) << "output, element " << i;
    }
    const std::function<double()> loss = [&] { return loss_of(module.in_double(model_, batch, x)); };
    const float* dx = launch_.data<float>(s_.dx);
    expect_central_differences("the input", {dx, dx + x.values.size()}, x.values, loss);
    int looked_at = 0;
    for (const Parameter& p : parameters_.all()) {
      if (!p.gradient.valid() || !module.owns(p.spec.name)) continue;
      const float* g = launch_.data<float>(p.gradient);
      expect_central_differences(p.spec.name, {g, g + p.spec.elements()}, model_.weights.at(p.spec.name),
                                 loss);
      ++looked_at;
    }
    EXPECT_GT(looked_at, 0);
  }

 private:
  // That loss is one of the whole model.
  static Variant without_joined(Variant v) {
    std::erase_if(v.aux, [](const ops::AuxLoss& a) { return a.kind == kernels::AuxLossKind::joined; });
    return v;
  }

  Buffer add(const char* name, DType dtype, std::int64_t rows, std::int64_t cols) {
    return table_.add(
        {.name = name, .dtype = dtype, .rows = rows, .cols = cols, .role = Role::input, .persistent = true});
  }

  Program build(const Module& module) {
    s_.batch.ids = add("ids", DType::i32, kCapacity, 1);
    s_.batch.labels = add("labels", DType::i32, kCapacity, 1);
    s_.batch.positions = add("positions", DType::i32, kCapacity, 1);
    s_.batch.doc_offsets = add("doc_offsets", DType::i32, kCapacity + 1, 1);
    s_.batch.counts = add("counts", DType::i64, ops::kNumCounts, 1);
    s_.batch.aux_scale = add("aux_scale", DType::f64, (1 + config_.num_mtp) * ops::kNumScales, 1);
    s_.batch.max_tokens = kCapacity;
    for (const auto& [buffer, name] : {std::pair{&s_.x, "x"}, {&s_.y, "y"}, {&s_.dy, "dy"}, {&s_.dx, "dx"}}) {
      *buffer = add(name, DType::f32, kCapacity, x_cols_);
    }
    s_.m.config = &config_;
    s_.m.parameters = &parameters_;
    s_.m.rope_table = add("rope", DType::f32, kCapacity, config_.attention.rope.rotary_dim);
    s_.m.options.recompute = variant_.recompute;
    s_.m.options.aux_losses = variant_.aux;
    s_.m.loss_sums = add("loss_sums", DType::f64, 1 + static_cast<std::int64_t>(variant_.aux.size()), 1);
    Builder b(table_, target_, "module", 0);
    module.emit(b, s_);
    return b.finish();
  }

  double loss_of(const double_model::Matrix& y) {
    double sum = std::inner_product(y.values.begin(), y.values.end(), launch_.data<float>(s_.dy), 0.0);
    for (const ops::AuxLoss& aux : model_.aux) sum += double_model::aux_loss(model_, aux);
    return sum;
  }

  ModelConfig config_;
  Variant variant_;
  Target target_;
  BufferTable table_;
  ParameterSet parameters_;
  std::int64_t x_cols_;
  Surroundings s_;
  Program program_;
  Launch launch_;
  double_model::Model model_;
};

// Runs the module that `make` returns for every variant that has it.
void for_each_variant(const std::function<std::optional<Module>(const ModelConfig&)>& make) {
  int runs = 0;
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const ModelConfig config = v.config();
    const std::optional<Module> module = make(config);
    if (!module) continue;
    ModuleRun(v, config, *module).expect_equal(*module);
    ++runs;
  }
  EXPECT_GT(runs, 0);
}

// The first block of that kind; -1: none.
std::int64_t first_block(const ModelConfig& config, MlpKind kind) {
  const auto it = std::find(config.mlp.begin(), config.mlp.begin() + config.num_layers, kind);
  return it == config.mlp.begin() + config.num_layers ? -1 : it - config.mlp.begin();
}

std::string layer(std::int64_t block) {
  return "layers." + std::to_string(block);
}

Module norm_module(const std::string& name, std::int64_t heads, std::int64_t cols) {
  return {{name},
          [=](Builder& b, Surroundings& s) {
            Norm norm(s.m, name, s.m.config->norm_eps, heads);
            norm.forward(b, s.batch.tokens(), s.x, s.y);
            norm.backward(b, s.batch.tokens(), s.dy, s.dx, false);
          },
          [=](double_model::Model& m, const double_model::Batch&, const double_model::Matrix& x) {
            return double_model::norm(m, x, name, m.config.norm_eps);
          },
          cols};
}

TEST(ModuleGradient, Norm) {
  for_each_variant([](const ModelConfig& c) { return norm_module("norm", 1, c.hidden_size); });
}

TEST(ModuleGradient, NormOfHeads) {
  for_each_variant([](const ModelConfig& c) -> std::optional<Module> {
    if (!c.attention.qk_norm) return std::nullopt;
    return norm_module("layers.0.self_attn.q_norm", c.attention.num_heads,
                       c.attention.num_heads * c.attention.qk_dim);
  });
}

Module mlp_module(const std::string& prefix) {
  return {{prefix + "."},
          [=](Builder& b, Surroundings& s) {
            Mlp mlp(s.m, prefix);
            mlp.forward(b, s.batch.tokens(), s.x, s.y, false);
            mlp.backward(b, s.batch.tokens(), s.dy, s.dx, false);
          },
          [=](double_model::Model& m, const double_model::Batch&, const double_model::Matrix& x) {
            return double_model::mlp(m, x, prefix);
          }};
}

TEST(ModuleGradient, DenseMlp) {
  for_each_variant([](const ModelConfig& c) -> std::optional<Module> {
    const std::int64_t block = first_block(c, MlpKind::dense);
    if (block < 0) return std::nullopt;
    return mlp_module(layer(block) + ".mlp");
  });
}

TEST(ModuleGradient, SharedExperts) {
  for_each_variant([](const ModelConfig& c) -> std::optional<Module> {
    if (c.moe.shared_width == 0) return std::nullopt;
    return mlp_module(layer(first_block(c, MlpKind::moe)) + ".shared");
  });
}

std::optional<Module> attention_module(const ModelConfig& c, AttentionKind kind) {
  if (c.attention.kind != kind) return std::nullopt;
  return Module{{"layers.0.self_attn."},
                [](Builder& b, Surroundings& s) {
                  const std::unique_ptr<Attention> attention = make_attention(s.m, 0);
                  ops::add(b, "keep_y", attention->forward(b, s.batch, s.x), {}, s.y, s.batch.tokens());
                  attention->backward(b, s.batch, s.dy, s.dx, false);
                },
                [](double_model::Model& m, const double_model::Batch& batch, const double_model::Matrix& x) {
                  return double_model::attention(m, batch, x, 0);
                }};
}

TEST(ModuleGradient, GroupedQueryAttention) {
  for_each_variant([](const ModelConfig& c) { return attention_module(c, AttentionKind::gqa); });
}

TEST(ModuleGradient, LatentAttention) {
  for_each_variant([](const ModelConfig& c) { return attention_module(c, AttentionKind::mla); });
}

TEST(ModuleGradient, MixtureOfExperts) {
  for_each_variant([](const ModelConfig& c) {
    const std::int64_t block = first_block(c, MlpKind::moe);
    return Module{{layer(block) + ".router", layer(block) + ".experts.", layer(block) + ".shared."},
                  [=](Builder& b, Surroundings& s) {
                    MoeLayer moe(s.m, block, 0);
                    moe.forward(b, s.batch, s.x, s.y, Pass::first);
                    moe.backward(b, s.batch, s.dy, s.dx);
                  },
                  [=](double_model::Model& m, const double_model::Batch& batch,
                      const double_model::Matrix& x) { return double_model::moe(m, batch, x, block); }};
  });
}

Module block_module(std::int64_t index, bool moe) {
  return {{layer(index) + "."},
          [=](Builder& b, Surroundings& s) {
            Block block(s.m, index, moe ? 0 : -1);
            const ops::Rows rows = s.batch.tokens();
            ops::add(b, "keep_y", block.forward(b, s.batch, s.x), {}, s.y, rows);
            const Buffer grad = s.consumable_dy(b, rows);
            block.backward(b, s.batch, grad);
            ops::add(b, "keep_dx", grad, {}, s.dx, rows);
          },
          [=](double_model::Model& m, const double_model::Batch& batch, const double_model::Matrix& x) {
            return double_model::block(m, batch, x, index);
          }};
}

TEST(ModuleGradient, DenseBlock) {
  for_each_variant([](const ModelConfig& c) -> std::optional<Module> {
    const std::int64_t block = first_block(c, MlpKind::dense);
    if (block < 0) return std::nullopt;
    return block_module(block, false);
  });
}

TEST(ModuleGradient, MoeBlock) {
  for_each_variant([](const ModelConfig& c) { return block_module(first_block(c, MlpKind::moe), true); });
}

// Its embedding table is that of the model; the gradient reaches it here through this depth alone.
TEST(ModuleGradient, MultiTokenPrediction) {
  for_each_variant([](const ModelConfig& c) -> std::optional<Module> {
    if (c.num_mtp == 0) return std::nullopt;
    return Module{{"embed_tokens", layer(c.num_layers) + "."},
                  [](Builder& b, Surroundings& s) {
                    MtpModule mtp(s.m, 0, 0);
                    ops::fill_zero(b, "zero_dx", s.dx);
                    const Buffer h = mtp.forward(b, s.batch, s.x);
                    ops::add(b, "keep_y", h, {}, s.y, mtp.batch().tokens());
                    mtp.backward(b, s.consumable_dy(b, mtp.batch().tokens()), s.dx);
                  },
                  [](double_model::Model& m, const double_model::Batch& batch,
                     const double_model::Matrix& x) { return double_model::mtp(m, batch, x, 0); }};
  });
}

}  // namespace
}  // namespace planalto
