// SPDX-License-Identifier: Apache-2.0
// In place of onednn.cpp where the library was not found.
#include "bench/peers/products.h"

namespace planalto::bench {

std::unique_ptr<Products> onednn_products(int /*threads*/, bool /*packed*/) {
  return nullptr;
}

}  // namespace planalto::bench
