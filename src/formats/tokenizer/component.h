// SPDX-License-Identifier: Apache-2.0
// component.h: reading one component of tokenizer.json ({"type": ..., fields}) with its place for messages.
// Errors      data: no object, no type, a field that is not known (an unknown option may change ids, so none is ignored)
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace planalto::tokenizer {

class Component {
 public:
  // `where` is kept: "tokenizer.json: pre_tokenizer.pretokenizers[1]".
  Component(const JsonValue& value, std::string where);

  const std::string& type() const { return type_; }
  const std::string& where() const { return where_; }
  const JsonValue& value() const { return *value_; }
  std::string where_of(std::string_view field) const;

  void allow_only(std::initializer_list<std::string_view> fields) const;  // "type" is always allowed
  bool flag(std::string_view field) const;
  bool flag(std::string_view field, bool otherwise) const;
  const JsonValue& at(std::string_view field) const;
  // The components in an array field, or this one alone when it is no Sequence.
  std::vector<Component> children(std::string_view field) const;
  std::vector<Component> flat(std::string_view sequence_field) const;

  // "... is not supported (supported: ...)".
  [[noreturn]] void refuse(std::string_view supported) const;

 private:
  const JsonValue* value_;
  std::string where_;
  std::string type_;
};

}  // namespace planalto::tokenizer
