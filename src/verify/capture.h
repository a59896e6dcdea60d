// SPDX-License-Identifier: Apache-2.0
// capture.h: an observer that copies named values of a forward pass to persistent buffers, and makes logits from final states.
// Memory      one persistent buffer a value, [T, columns]
#pragma once

#include <map>
#include <string>

#include "model/language_model.h"

namespace planalto {

class Capture final : public Observer {
 public:
  // head: name of the weight that makes logits ("lm_head", "embed_tokens" when tied)
  explicit Capture(std::string head) : head_(std::move(head)) {}

  void observe(Builder& b, const std::string& name, Buffer value, const ops::Rows& rows) override;
  bool has(const std::string& name) const { return values_.contains(name); }
  Buffer at(const std::string& name) const;

 private:
  Buffer keep(Builder& b, const std::string& name, DType dtype, std::int64_t rows, std::int64_t cols);

  std::string head_;
  std::map<std::string, Buffer> values_;
};

}  // namespace planalto
