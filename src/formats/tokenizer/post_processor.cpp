// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/post_processor.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"

namespace planalto::tokenizer {

namespace {

// The ids of {"SpecialToken": {"id": NAME}} by the table special_tokens of the template.
std::vector<std::int32_t> special_ids(const JsonValue& item, const JsonValue& table, const std::string& where,
                                      const Vocabulary& vocabulary) {
  const std::string& name = item.at("id", where).as_string(where + ".id");
  const JsonValue* entry = table.find(name);
  if (entry == nullptr) {
    fail(ErrorKind::data, "{}: the special token \"{}\" is not in special_tokens", where, printable(name));
  }
  std::vector<std::int32_t> ids;
  for (const JsonValue& value : entry->at("ids", where).as_array(where)) {
    const std::int64_t id = value.as_int64(where);
    if (!vocabulary.has(id)) {
      fail(ErrorKind::data, "{}: the special token \"{}\" has the id {}; the vocabulary ends at {}", where,
           printable(name), id, vocabulary.size() - 1);
    }
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

}  // namespace

PostProcessor::PostProcessor(const JsonValue& value, const std::string& where, const Vocabulary& vocabulary) {
  if (value.is_null()) return;
  for (const Component& component : Component(value, where).flat("processors")) {
    if (component.type() == "ByteLevel") {
      // Trims the offsets that a caller is told; ids do not depend on it.
      component.allow_only({"add_prefix_space", "trim_offsets", "use_regex"});
    } else if (component.type() == "TemplateProcessing") {
      add_template(component, vocabulary);
    } else {
      component.refuse("null, ByteLevel, TemplateProcessing, Sequence");
    }
  }
}

void PostProcessor::add_template(const Component& component, const Vocabulary& vocabulary) {
  component.allow_only({"single", "pair", "special_tokens"});
  const std::string where = component.where_of("single");
  const JsonValue& table = component.at("special_tokens");
  table.as_object(component.where_of("special_tokens"));
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> behind;
  std::int64_t num_texts = 0;
  for (const JsonValue& item : component.at("single").as_array(where)) {
    const JsonObject& kind = item.as_object(where);
    if (kind.size() != 1) fail(ErrorKind::data, "{}: an item must be a SpecialToken or a Sequence", where);
    const JsonMember& only = *kind.begin();
    if (only.key == "Sequence") {
      const std::string& name = only.value.at("id", where).as_string(where + ".id");
      if (name != "A")
        fail(ErrorKind::data, "{}: the sequence \"{}\" of a single text", where, printable(name));
      ++num_texts;
    } else if (only.key == "SpecialToken") {
      auto& side = num_texts == 0 ? before : behind;
      const std::vector<std::int32_t> ids = special_ids(only.value, table, where, vocabulary);
      side.insert(side.end(), ids.begin(), ids.end());
    } else {
      fail(ErrorKind::data, "{}: the item \"{}\" is not supported (supported: SpecialToken, Sequence)", where,
           printable(only.key));
    }
  }
  if (num_texts != 1) fail(ErrorKind::data, "{}: the text stands in it {} times, not once", where, num_texts);
  before_.insert(before_.begin(), before.begin(), before.end());
  behind_.insert(behind_.end(), behind.begin(), behind.end());
}

void check_decoder(const JsonValue& value, const std::string& where) {
  static constexpr std::string_view kSupported = "ByteLevel, a Sequence of one ByteLevel";
  if (value.is_null())
    fail(ErrorKind::data, "{} is null, which is not supported (supported: {})", where, kSupported);
  const std::vector<Component> components = Component(value, where).flat("decoders");
  for (const Component& component : components) {
    if (component.type() != "ByteLevel") component.refuse(kSupported);
    component.allow_only({"add_prefix_space", "trim_offsets", "use_regex"});
  }
  if (components.size() != 1) {
    fail(ErrorKind::data, "{}: {} decoders (supported: {})", where, components.size(), kSupported);
  }
}

}  // namespace planalto::tokenizer
