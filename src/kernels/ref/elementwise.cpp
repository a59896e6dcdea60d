// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/elementwise.h"

#include "kernels/ref/element.h"

namespace planalto::kernels::reference {

void add_rows(const AddRows& a) {
  for (std::int64_t r = 0; r < a.rows.get(); ++r) {
    for (std::int64_t c = 0; c < a.y.cols; ++c) {
      put(a.y, r, c, get(a.a, r, c) + (a.b.data != nullptr ? get(a.b, r, c) : 0.0));
    }
  }
}

void cast_elements(const CastElements& a) {
  for (std::int64_t i = 0; i < a.n; ++i) put(a.to, a.to_dtype, i, get(a.from, a.from_dtype, i));
}

void bias_grad(const BiasGrad& a) {
  for (std::int64_t c = 0; c < a.dy.cols; ++c) {
    double sum = a.accumulate ? static_cast<double>(a.dbias[c]) : 0.0;
    for (std::int64_t r = 0; r < a.rows.get(); ++r) sum += get(a.dy, r, c);
    a.dbias[c] = static_cast<float>(sum);
  }
}

void mla_keys_forward(const MlaKeysForward& a) {
  const std::int64_t width = a.nope + a.rope_dim;
  for (std::int64_t t = 0; t < a.tokens.get(); ++t) {
    for (std::int64_t h = 0; h < a.num_heads; ++h) {
      const std::int64_t key = (t * a.num_heads + h) * width, kv = (t * a.num_heads + h) * a.kv_head_stride;
      for (std::int64_t i = 0; i < a.nope; ++i) put(a.keys, a.dtype, key + i, get(a.kv, a.dtype, kv + i));
      for (std::int64_t i = 0; i < a.rope_dim; ++i) put(a.keys, a.dtype, key + a.nope + i, get(a.rope, t, i));
    }
  }
}

void mla_keys_backward(const MlaKeysBackward& a) {
  const std::int64_t width = a.nope + a.rope_dim;
  for (std::int64_t t = 0; t < a.tokens.get(); ++t) {
    for (std::int64_t h = 0; h < a.num_heads; ++h) {
      const std::int64_t key = (t * a.num_heads + h) * width, kv = (t * a.num_heads + h) * a.kv_head_stride;
      for (std::int64_t i = 0; i < a.nope; ++i) put(a.dkv, a.dtype, kv + i, get(a.dkeys, a.dtype, key + i));
    }
    for (std::int64_t i = 0; i < a.rope_dim; ++i) {
      double sum = 0.0;
      for (std::int64_t h = 0; h < a.num_heads; ++h) {
        sum += get(a.dkeys, a.dtype, (t * a.num_heads + h) * width + a.nope + i);
      }
      put(a.drope, t, i, sum);
    }
  }
}

}  // namespace planalto::kernels::reference
