// SPDX-License-Identifier: Apache-2.0
#include "verify/capture.h"

#include <cstring>

#include "base/error.h"
#include "ops/linear.h"
#include "ops/rows.h"

namespace planalto {

Buffer Capture::keep(Builder& b, const std::string& name, DType dtype, std::int64_t rows, std::int64_t cols) {
  const Buffer kept = b.persistent(
      {.name = "captured." + name, .dtype = dtype, .rows = rows, .cols = cols, .role = Role::statistic});
  values_[name] = kept;
  return kept;
}

void Capture::observe(Builder& b, const std::string& name, Buffer value, const ops::Rows& rows) {
  const BufferInfo info = b.info(value);
  const Buffer kept = keep(b, name, info.dtype, info.rows, info.cols);
  const std::int64_t row_bytes = info.cols * dtype_bytes(info.dtype);
  b.emit({.name = "capture." + name,
          .kind = "capture",
          .accesses = {ops::reads(value), ops::reads(rows.counts), ops::writes(kept)},
          .run = [=](const RunContext& ctx) {
            std::memcpy(ctx.data<char>(kept), ctx.data<char>(value),
                        static_cast<std::size_t>(rows.at(ctx).get() * row_bytes));
          }});
  const bool is_final =
      name == "hidden_states.final_norm" || (name.starts_with("mtp.") && name.ends_with(".hidden"));
  if (!is_final) return;
  const std::string logits =
      name == "hidden_states.final_norm" ? "logits" : name.substr(0, name.size() - 6) + "logits";
  const Buffer head = b.table().find("weight." + head_);
  const Buffer out = keep(b, logits, DType::f32, info.rows, b.info(head).rows);
  ops::linear(b, "capture." + logits, value, head, out, rows);
}

Buffer Capture::at(const std::string& name) const {
  const auto it = values_.find(name);
  PLANALTO_CHECK(it != values_.end(), "nothing was captured under {}", name);
  return it->second;
}

}  // namespace planalto
