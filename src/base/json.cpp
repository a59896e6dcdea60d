// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/utf8.h"

namespace planalto {

// --- JsonObject
// -----------------------------------------------------------------------------------------------------

namespace {

constexpr std::int64_t kIndexAbove = 16;  // smaller objects are searched from the front

// Keys come from files that we do not trust: a seed drawn once keeps anyone from choosing keys that collide.
std::uint64_t index_seed() {
  static const std::uint64_t seed = [] {
    std::random_device device;
    return static_cast<std::uint64_t>(device()) << 32 | device();
  }();
  return seed;
}

std::uint64_t num_slots(std::int64_t members) {
  return std::bit_ceil(static_cast<std::uint64_t>(members) * 2);
}

}  // namespace

JsonObject::JsonObject() = default;
JsonObject::JsonObject(JsonObject&& other) noexcept = default;
JsonObject& JsonObject::operator=(JsonObject&& other) noexcept = default;
JsonObject::~JsonObject() = default;

JsonObject::JsonObject(const JsonObject& other) : members_(other.members_) {
  build_index();
}

JsonObject& JsonObject::operator=(const JsonObject& other) {
  if (this != &other) {
    members_ = other.members_;
    build_index();
  }
  return *this;
}

std::int64_t JsonObject::size() const {
  return static_cast<std::int64_t>(members_.size());
}
const JsonMember* JsonObject::begin() const {
  return members_.data();
}
const JsonMember* JsonObject::end() const {
  return members_.data() + members_.size();
}

// A slot holds a member's position plus one; 0 is empty. At most half of the slots are in use.
void JsonObject::add_to_index(std::uint32_t member_idx) {
  const std::uint64_t mask = num_slots(size()) - 1;
  std::uint64_t slot = xxh3_64(members_[member_idx].key, index_seed()) & mask;
  while (index_[slot] != 0) slot = (slot + 1) & mask;
  index_[slot] = member_idx + 1;
}

void JsonObject::build_index() {
  index_.reset();
  if (size() <= kIndexAbove) return;
  index_ = std::make_unique<std::uint32_t[]>(num_slots(size()));
  for (std::int64_t i = 0; i < size(); ++i) add_to_index(static_cast<std::uint32_t>(i));
}

std::int64_t JsonObject::position(std::string_view key) const {
  if (index_ == nullptr) {
    for (std::int64_t i = 0; i < size(); ++i) {
      if (members_[static_cast<std::size_t>(i)].key == key) return i;
    }
    return -1;
  }
  const std::uint64_t mask = num_slots(size()) - 1;
  for (std::uint64_t slot = xxh3_64(key, index_seed()) & mask; index_[slot] != 0; slot = (slot + 1) & mask) {
    if (members_[index_[slot] - 1].key == key) return index_[slot] - 1;
  }
  return -1;
}

const JsonValue* JsonObject::find(std::string_view key) const {
  const std::int64_t i = position(key);
  return i < 0 ? nullptr : &members_[static_cast<std::size_t>(i)].value;
}

JsonValue* JsonObject::find(std::string_view key) {
  const std::int64_t i = position(key);
  return i < 0 ? nullptr : &members_[static_cast<std::size_t>(i)].value;
}

JsonValue& JsonObject::set(std::string_view key, JsonValue value) {
  if (JsonValue* old = find(key); old != nullptr) {
    *old = std::move(value);
    return *old;
  }
  PLANALTO_CHECK(members_.size() < std::numeric_limits<std::uint32_t>::max() - 1, "an object of {} members",
                 members_.size());
  const std::uint64_t old_slots = num_slots(size());
  members_.push_back(JsonMember{std::string(key), std::move(value)});
  if (index_ == nullptr || num_slots(size()) != old_slots) {
    build_index();
  } else {
    add_to_index(static_cast<std::uint32_t>(size() - 1));
  }
  return members_.back().value;
}

void JsonObject::erase(std::string_view key) {
  const std::int64_t i = position(key);
  if (i < 0) return;
  members_.erase(members_.begin() + i);
  build_index();
}

bool operator==(const JsonObject& a, const JsonObject& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const JsonMember& x, const JsonMember& y) {
    return x.key == y.key && x.value == y.value;
  });
}

// --- JsonValue
// ------------------------------------------------------------------------------------------------------

const char* to_string(JsonType type) {
  switch (type) {
    case JsonType::null:
      return "null";
    case JsonType::boolean:
      return "a boolean";
    case JsonType::integer:
      return "an integer";
    case JsonType::number:
      return "a number";
    case JsonType::string:
      return "a string";
    case JsonType::array:
      return "an array";
    case JsonType::object:
      return "an object";
  }
  return "?";
}

JsonValue::JsonValue() = default;
JsonValue::JsonValue(const JsonValue& other) = default;
JsonValue::JsonValue(JsonValue&& other) noexcept = default;
JsonValue& JsonValue::operator=(const JsonValue& other) = default;
JsonValue& JsonValue::operator=(JsonValue&& other) noexcept = default;
JsonValue::~JsonValue() = default;
JsonValue::JsonValue(std::nullptr_t) {}
JsonValue::JsonValue(bool v) : data_(v) {}
JsonValue::JsonValue(double v) : data_(v) {}
JsonValue::JsonValue(std::string v) : data_(std::move(v)) {}
JsonValue::JsonValue(std::string_view v) : data_(std::string(v)) {}
JsonValue::JsonValue(const char* v) : data_(std::string(v)) {}
JsonValue::JsonValue(JsonArray v) : data_(std::move(v)) {}
JsonValue::JsonValue(JsonObject v) : data_(std::move(v)) {}

JsonValue::JsonValue(Bits bits, bool negative) : data_(static_cast<std::int64_t>(bits.value)) {
  if (!negative && !std::in_range<std::int64_t>(bits.value)) data_ = bits.value;
}

JsonType JsonValue::type() const {
  constexpr JsonType kTypes[] = {JsonType::null,   JsonType::boolean, JsonType::integer, JsonType::integer,
                                 JsonType::number, JsonType::string,  JsonType::array,   JsonType::object};
  return kTypes[data_.index()];
}

namespace {

// What stands there, short enough for a message: scalars with their value, the rest by type and size.
std::string describe(const JsonValue& value) {
  switch (value.type()) {
    case JsonType::null:
      return "null";
    case JsonType::array:
      return fmt::format("an array of {}", value.as_array("").size());
    case JsonType::object:
      return fmt::format("an object of {}", value.as_object("").size());
    case JsonType::string:
      return fmt::format("the string \"{}\"", printable(value.as_string(""), 60));
    case JsonType::number:
      return fmt::format("the number {}", value.as_double(""));
    default:
      return write_json(value);
  }
}

[[noreturn]] void wrong_type(const JsonValue& value, const char* expected, std::string_view where) {
  fail(ErrorKind::data, "{}: expected {}, found {}", where, expected, describe(value));
}

}  // namespace

bool JsonValue::as_bool(std::string_view where) const {
  if (const auto* v = std::get_if<bool>(&data_)) return *v;
  wrong_type(*this, "a boolean", where);
}

std::int64_t JsonValue::as_int64(std::string_view where) const {
  if (const auto* v = std::get_if<std::int64_t>(&data_)) return *v;
  wrong_type(*this, "an integer of at most 63 bits", where);
}

std::uint64_t JsonValue::as_uint64(std::string_view where) const {
  if (const auto* v = std::get_if<std::uint64_t>(&data_)) return *v;
  if (const auto* v = std::get_if<std::int64_t>(&data_); v != nullptr && *v >= 0)
    return static_cast<std::uint64_t>(*v);
  wrong_type(*this, "a non-negative integer of at most 64 bits", where);
}

double JsonValue::as_double(std::string_view where) const {
  if (const auto* v = std::get_if<double>(&data_)) return *v;
  if (const auto* v = std::get_if<std::int64_t>(&data_)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<std::uint64_t>(&data_)) return static_cast<double>(*v);
  wrong_type(*this, "a number", where);
}

const std::string& JsonValue::as_string(std::string_view where) const {
  if (const auto* v = std::get_if<std::string>(&data_)) return *v;
  wrong_type(*this, "a string", where);
}

const JsonArray& JsonValue::as_array(std::string_view where) const {
  if (const auto* v = std::get_if<JsonArray>(&data_)) return *v;
  wrong_type(*this, "an array", where);
}

const JsonObject& JsonValue::as_object(std::string_view where) const {
  if (const auto* v = std::get_if<JsonObject>(&data_)) return *v;
  wrong_type(*this, "an object", where);
}

JsonArray& JsonValue::as_array(std::string_view where) {
  return const_cast<JsonArray&>(std::as_const(*this).as_array(where));
}

JsonObject& JsonValue::as_object(std::string_view where) {
  return const_cast<JsonObject&>(std::as_const(*this).as_object(where));
}

const JsonValue* JsonValue::find(std::string_view key) const {
  const auto* object = std::get_if<JsonObject>(&data_);
  return object == nullptr ? nullptr : object->find(key);
}

const JsonValue& JsonValue::at(std::string_view key, std::string_view where) const {
  const JsonValue* value = as_object(where).find(key);
  if (value == nullptr) fail(ErrorKind::data, "{}: the key \"{}\" is missing", where, printable(key));
  return *value;
}

bool operator==(const JsonValue& a, const JsonValue& b) {
  return a.data_ == b.data_;
}

// --- parsing
// --------------------------------------------------------------------------------------------------------

namespace {

// Walks the text and leaves in *seen how far the parser has come: its events carry no position.
struct TrackingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  const char** seen;

  reference operator*() const { return *at; }
  TrackingIterator& operator++() {
    *seen = ++at;
    return *this;
  }
  TrackingIterator operator++(int) {
    const TrackingIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const TrackingIterator& other) const { return at == other.at; }
  bool operator!=(const TrackingIterator& other) const { return at != other.at; }
};

class DocumentBuilder {
 public:
  DocumentBuilder(std::string_view text, std::string_view source, const JsonOptions& options)
      : text_(text), source_(source), options_(options), seen_(text.data()) {}

  JsonValue parse() {
    // The parser takes a zero byte for the end of the text, so what follows one would go unread.
    if (const auto zero = text_.find('\0'); zero != std::string_view::npos) {
      fail_at(static_cast<std::int64_t>(zero), "a zero byte, which JSON has no use for");
    }
    const char* last = text_.data() + text_.size();
    const TrackingIterator begin{text_.data(), &seen_};
    const TrackingIterator end{last, &seen_};
    const bool ok = nlohmann::json::sax_parse(begin, end, this);
    PLANALTO_CHECK(ok && open_.empty(), "{}: the JSON parser stopped without an error", source_);
    return std::move(root_);
  }

  // The events of the parser.
  bool null() { return add(JsonValue()) != nullptr; }
  bool boolean(bool v) { return add(JsonValue(v)) != nullptr; }
  bool number_integer(std::int64_t v) { return add(JsonValue(v)) != nullptr; }
  bool number_unsigned(std::uint64_t v) { return add(JsonValue(v)) != nullptr; }
  bool number_float(double v, const std::string&) { return add(JsonValue(v)) != nullptr; }
  bool string(const std::string& v) { return add(JsonValue(v)) != nullptr; }
  bool binary(const std::vector<std::uint8_t>&) { return false; }
  bool start_object(std::size_t) { return open(JsonValue(JsonObject())); }
  bool start_array(std::size_t) { return open(JsonValue(JsonArray())); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(const std::string& v) {
    if (!options_.allow_duplicate_keys && open_.back().object->find(v) != nullptr) {
      fail_here(fmt::format("the key \"{}\" stands twice in one object", printable(v, 200)));
    }
    open_.back().key = v;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& e) {
    std::string_view what = e.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing ..."
    if (const auto i = what.find("syntax error while "); i != std::string_view::npos) {
      what.remove_prefix(i + std::string_view("syntax error while ").size());
    } else if (const auto j = what.find("] "); j != std::string_view::npos) {
      what.remove_prefix(j + 2);
    }
    fail_at(static_cast<std::int64_t>(position) - 1, printable(what, 240));
  }

 private:
  struct Open {
    JsonArray* array = nullptr;
    JsonObject* object = nullptr;
    std::string key;
  };

  JsonValue* add(JsonValue&& value) {
    if (++num_values_ > options_.max_values) {
      fail_here(fmt::format("more than {} values, the limit for this file", options_.max_values));
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Open& top = open_.back();
    if (top.object != nullptr) return &top.object->set(top.key, std::move(value));
    top.array->push_back(std::move(value));
    return &top.array->back();
  }

  bool open(JsonValue&& container) {
    if (static_cast<std::int64_t>(open_.size()) >= options_.max_depth) {
      fail_here(fmt::format("nested deeper than {} levels, the limit", options_.max_depth));
    }
    JsonValue* placed =
        add(std::move(container));  // stays where it is: its parent is not touched while it is open
    if (placed->is_array()) {
      open_.push_back(Open{&placed->as_array(""), nullptr, {}});
    } else {
      open_.push_back(Open{nullptr, &placed->as_object(""), {}});
    }
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  [[noreturn]] void fail_here(const std::string& what) const { fail_at(seen_ - text_.data() - 1, what); }

  [[noreturn]] void fail_at(std::int64_t offset, const std::string& what) const {
    offset = std::clamp<std::int64_t>(offset, 0, static_cast<std::int64_t>(text_.size()));
    const std::string_view before = text_.substr(0, static_cast<std::size_t>(offset));
    const std::int64_t line = options_.first_line + std::count(before.begin(), before.end(), '\n');
    const auto newline = before.rfind('\n');
    const std::size_t column =
        newline == std::string_view::npos ? before.size() + 1 : before.size() - newline;
    fail(ErrorKind::data, "{}:{}:{}: not valid JSON here: {}", source_, line, column, what);
  }

  std::string_view text_;
  std::string_view source_;
  const JsonOptions& options_;
  const char* seen_;
  JsonValue root_;
  std::vector<Open> open_;
  std::int64_t num_values_ = 0;
};

}  // namespace

JsonValue parse_json(std::string_view text, std::string_view source, const JsonOptions& options) {
  return DocumentBuilder(text, source, options).parse();
}

JsonValue read_json_file(const std::string& path, const JsonOptions& options) {
  const MappedFile file(path);
  return parse_json(file.text(), path, options);
}

// --- writing
// --------------------------------------------------------------------------------------------------------

namespace {

void append_quoted(std::string& out, std::string_view text) {
  if (const std::int64_t bad = find_invalid_utf8(text); bad >= 0) {
    fail(ErrorKind::data, "cannot write the JSON string \"{}\": byte {} is not UTF-8", printable(text), bad);
  }
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(JsonStyle style) : pretty_(style == JsonStyle::pretty) {}

  void write(const JsonValue& value, std::size_t depth) {
    switch (value.type()) {
      case JsonType::null:
        out_ += "null";
        return;
      case JsonType::boolean:
        out_ += value.as_bool("") ? "true" : "false";
        return;
      case JsonType::string:
        append_quoted(out_, value.as_string(""));
        return;
      case JsonType::number:
        write_double(value.as_double(""));
        return;
      case JsonType::array:
        write_array(value.as_array(""), depth);
        return;
      case JsonType::object:
        write_object(value.as_object(""), depth);
        return;
      case JsonType::integer:
        break;
    }
    if (value.as_double("") >= 0) {
      out_ += fmt::to_string(value.as_uint64(""));
    } else {
      out_ += fmt::to_string(value.as_int64(""));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void write_double(double v) {
    if (!std::isfinite(v)) fail(ErrorKind::data, "JSON has no way to write the number {}", v);
    std::string text = fmt::format("{}", v);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    out_ += text;
  }

  void write_array(const JsonArray& array, std::size_t depth) {
    out_ += '[';
    bool first = true;
    for (const JsonValue& v : array) {
      separate(first, depth + 1);
      write(v, depth + 1);
    }
    if (!array.empty()) new_line(depth);
    out_ += ']';
  }

  void write_object(const JsonObject& object, std::size_t depth) {
    out_ += '{';
    bool first = true;
    for (const JsonMember& m : object) {
      separate(first, depth + 1);
      append_quoted(out_, m.key);
      out_ += pretty_ ? ": " : ":";
      write(m.value, depth + 1);
    }
    if (!object.empty()) new_line(depth);
    out_ += '}';
  }

  void separate(bool& first, std::size_t depth) {
    if (!first) out_ += ',';
    first = false;
    new_line(depth);
  }

  void new_line(std::size_t depth) {
    if (!pretty_) return;
    out_ += '\n';
    out_.append(2 * depth, ' ');
  }

  bool pretty_;
  std::string out_;
};

}  // namespace

std::string write_json(const JsonValue& value, JsonStyle style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return writer.take();
}

std::string quote_json(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

}  // namespace planalto
