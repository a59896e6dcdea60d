// SPDX-License-Identifier: Apache-2.0
// element.h: one element of a matrix of f32, bf16 or f64 as a double, so that a reference body reads like its
// formula. Numerics    put rounds once to the dtype; f64 is there for finite differences
#pragma once

#include "base/view.h"

namespace planalto::kernels::reference {

inline double get(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::bf16:
      return static_cast<double>(to_float(static_cast<const bf16*>(data)[i]));
    case DType::f64:
      return static_cast<const double*>(data)[i];
    default:
      return static_cast<double>(static_cast<const float*>(data)[i]);
  }
}
inline void put(void* data, DType dtype, std::int64_t i, double value) {
  switch (dtype) {
    case DType::bf16:
      static_cast<bf16*>(data)[i] = to_bf16(static_cast<float>(value));
      return;
    case DType::f64:
      static_cast<double*>(data)[i] = value;
      return;
    default:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      return;
  }
}
inline double get(const ConstMatrix& m, std::int64_t r, std::int64_t c) {
  return get(m.data, m.dtype, r * m.row_stride + c);
}
inline void put(const Matrix& m, std::int64_t r, std::int64_t c, double value) {
  put(m.data, m.dtype, r * m.row_stride + c, value);
}
// value as it would be after a store to dtype
inline double rounded(DType dtype, double value) {
  switch (dtype) {
    case DType::bf16:
      return static_cast<double>(to_float(to_bf16(static_cast<float>(value))));
    case DType::f64:
      return value;
    default:
      return static_cast<double>(static_cast<float>(value));
  }
}

}  // namespace planalto::kernels::reference
