// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/component.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace planalto::tokenizer {

Component::Component(const JsonValue& value, std::string where) : value_(&value), where_(std::move(where)) {
  value.as_object(where_);
  type_ = value.at("type", where_).as_string(where_of("type"));
}

std::string Component::where_of(std::string_view field) const {
  return fmt::format("{}.{}", where_, field);
}

void Component::allow_only(std::initializer_list<std::string_view> fields) const {
  for (const JsonMember& member : value_->as_object(where_)) {
    if (member.key == "type" || std::ranges::find(fields, member.key) != fields.end()) continue;
    fail(ErrorKind::data, "{}: {} has the field \"{}\", which is not supported (known: {})", where_, type_,
         printable(member.key), fmt::join(fields, ", "));
  }
}

bool Component::flag(std::string_view field) const {
  return at(field).as_bool(where_of(field));
}

bool Component::flag(std::string_view field, bool otherwise) const {
  const JsonValue* found = value_->find(field);
  return found == nullptr ? otherwise : found->as_bool(where_of(field));
}

const JsonValue& Component::at(std::string_view field) const {
  return value_->at(field, where_);
}

std::vector<Component> Component::children(std::string_view field) const {
  std::vector<Component> out;
  std::int64_t index = 0;
  for (const JsonValue& child : at(field).as_array(where_of(field))) {
    out.emplace_back(child, fmt::format("{}.{}[{}]", where_, field, index++));
  }
  return out;
}

std::vector<Component> Component::flat(std::string_view sequence_field) const {
  if (type_ != "Sequence") return {*this};
  allow_only({sequence_field});
  std::vector<Component> out;
  for (const Component& child : children(sequence_field)) {
    for (const Component& leaf : child.flat(sequence_field)) out.push_back(leaf);
  }
  return out;
}

void Component::refuse(std::string_view supported) const {
  fail(ErrorKind::data, "{}: the component {} is not supported (supported: {})", where_, printable(type_),
       supported);
}

}  // namespace planalto::tokenizer
