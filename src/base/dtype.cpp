// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

namespace planalto {

const char* to_string(DType t) {
  switch (t) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
  }
  return "?";
}

}  // namespace planalto
