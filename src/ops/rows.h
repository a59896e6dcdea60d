// SPDX-License-Identifier: Apache-2.0
// rows.h: emits the row-wise ops: norms, rotary embedding, SwiGLU, sums, casts, embedding.
// Shapes      as in kernels/{rms_norm,rope,swiglu,elementwise,embedding}.h
#pragma once

#include <string>

#include "kernels/rope.h"
#include "ops/operand.h"

namespace planalto::ops {

// heads > 1: x and y are [T, heads * d] and each head is normalised with the same weight [d]. rstd fp32 [T * heads] or invalid.
struct NormShape {
  std::int64_t heads = 1;
  float eps = 1e-6F;
};
void rms_norm(Builder& b, const std::string& name, const Cols& x, Buffer weight, const Cols& y, Buffer rstd,
              const Rows& rows, const NormShape& shape);
// dx (+)= ..., dweight (+)= ... (dweight overwrites on the first write of the step)
void rms_norm_backward(Builder& b, const std::string& name, const Cols& x, Buffer weight, Buffer rstd,
                       const Cols& dy, const Cols& dx, bool accumulate_dx, Buffer dweight, const Rows& rows,
                       const NormShape& shape);

struct RopeShape {
  std::int64_t heads = 1,
               head_dim = 0;  // head h occupies columns [h * head_dim, (h + 1) * head_dim) of the operand
  std::int64_t first = 0, half = 0;
  kernels::RopeStyle style = kernels::RopeStyle::halves;
  Buffer table;
};
void rope(Builder& b, const std::string& name, const Cols& x, const Batch& batch, const RopeShape& shape,
          bool inverse);

void swiglu(Builder& b, const std::string& name, Buffer gate_up, Buffer row_weight, Buffer act,
            const Rows& rows);
void swiglu_backward(Builder& b, const std::string& name, Buffer gate_up, Buffer row_weight, Buffer dact,
                     Buffer dgate_up, Buffer drow_weight, Buffer act, const Rows& rows);

// y = a + b; b invalid: a copy, or a cast when the dtypes differ
void add(Builder& b, const std::string& name, const Cols& x, const Cols& other, const Cols& y,
         const Rows& rows);
void fill_zero(Builder& b, const std::string& name, Buffer x);

void embedding(Builder& b, const std::string& name, Buffer table, const Batch& batch, Buffer y);
void embedding_backward(Builder& b, const std::string& name, const Batch& batch, Buffer dy, Buffer dtable,
                        std::int64_t padding_id);

}  // namespace planalto::ops
