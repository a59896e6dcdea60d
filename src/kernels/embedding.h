// SPDX-License-Identifier: Apache-2.0
// embedding.h: rows of a table by token id, and the gradient of the table.
// Shapes      ids [T] int32 in [0, V); table [V, D], y [T, D] of one dtype; dy [T, D]; dtable [V, D] fp32
// Invariants  the row padding_id of dtable (if >= 0) receives no gradient; tokens past tokens.get() are neither read
//             nor written
// Numerics    dtable adds the rows of one id in token order, in fp32; overwrite mode zeroes the table first
// Errors      data: an id outside [0, V), with its position
// Reference   kernels/ref/embedding.cpp
#pragma once

#include <cstdint>

#include "base/view.h"
#include "kernels/isa.h"

namespace planalto {
struct ExecContext;
}

namespace planalto::kernels {

struct EmbeddingForward {
  ConstMatrix table{};
  const std::int32_t* ids = nullptr;
  Matrix y{};
  RowCount tokens{};
};
struct EmbeddingBackward {
  const std::int32_t* ids = nullptr;
  ConstMatrix dy{};
  Matrix dtable{};
  std::int64_t padding_id = -1;
  bool accumulate = false;
  RowCount tokens{};
};
void embedding_forward(const ExecContext& ctx, const EmbeddingForward& a);
void embedding_backward(const ExecContext& ctx, const EmbeddingBackward& a);

}  // namespace planalto::kernels
