// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/products.h"

namespace planalto::bench {

namespace {

class PlanaltoProducts final : public Products {
 public:
  explicit PlanaltoProducts(const ExecContext& ctx) : ctx_(ctx) {}
  std::string name() const override { return "planalto"; }
  void forward(const kernels::GroupedGemmForward& a) override { kernels::grouped_gemm_forward(ctx_, a); }
  void grad_input(const kernels::GroupedGemmGradInput& a) override {
    kernels::grouped_gemm_grad_input(ctx_, a);
  }
  void grad_weight(const kernels::GroupedGemmGradWeight& a) override {
    kernels::grouped_gemm_grad_weight(ctx_, a);
  }

 private:
  ExecContext ctx_;
};

}  // namespace

std::unique_ptr<Products> planalto_products(const ExecContext& ctx) {
  return std::make_unique<PlanaltoProducts>(ctx);
}

}  // namespace planalto::bench
