// SPDX-License-Identifier: Apache-2.0
// products.h: the three grouped products as somebody computes them: our kernels, or a peer library in a loop over experts.
// Peers       take the same arguments; the packed copies and the workspace are ours, they read the plain weights or make copies
//             of their own, once, of weights that do not change
// Threads     one caller at a time
#pragma once

#include <memory>
#include <string>

#include "base/exec_context.h"
#include "kernels/grouped_gemm.h"

namespace planalto::bench {

class Products {
 public:
  virtual ~Products() = default;
  virtual std::string name() const = 0;
  virtual void forward(const kernels::GroupedGemmForward& a) = 0;
  virtual void grad_input(const kernels::GroupedGemmGradInput& a) = 0;
  virtual void grad_weight(const kernels::GroupedGemmGradWeight& a) = 0;
};

std::unique_ptr<Products> planalto_products(const ExecContext& ctx);
// oneDNN as a careful user calls it: a primitive a row count, kept; weights as they lie, or reordered once into the layout that
// it asks for. Null when the benchmarks were built without it.
std::unique_ptr<Products> onednn_products(int threads, bool packed);

}  // namespace planalto::bench
