// SPDX-License-Identifier: Apache-2.0
// json.h: a small JSON document of our own: parse with limits, typed access that names the place, writing.
// Invariants  an object keeps the order of its members; a key stands once; strings are valid UTF-8 when
// parsed Memory      40 bytes a value and 72 a member, plus what long strings need; JsonOptions::max_values
// bounds it Threads     values are plain data: many readers or one writer Errors      data: text that is not
// JSON (file:line:column and what was found), a missing key, a wrong type Units       columns count bytes
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace planalto {

class JsonValue;
struct JsonMember;
using JsonArray = std::vector<JsonValue>;

class JsonObject {
 public:
  JsonObject();
  JsonObject(const JsonObject& other);
  JsonObject(JsonObject&& other) noexcept;
  JsonObject& operator=(const JsonObject& other);
  JsonObject& operator=(JsonObject&& other) noexcept;
  ~JsonObject();

  std::int64_t size() const;
  bool empty() const { return size() == 0; }
  const JsonMember* begin() const;
  const JsonMember* end() const;
  // Null when there is no such key.
  const JsonValue* find(std::string_view key) const;
  JsonValue* find(std::string_view key);
  // Replaces the value of a key that is there (its place stays), appends otherwise.
  JsonValue& set(std::string_view key, JsonValue value);
  void erase(std::string_view key);

 private:
  std::int64_t position(std::string_view key) const;
  void add_to_index(std::uint32_t member_idx);
  void build_index();

  std::vector<JsonMember> members_;
  std::unique_ptr<std::uint32_t[]> index_;  // open addressing over members_, built above a small size
};

enum class JsonType { null, boolean, integer, number, string, array, object };
const char* to_string(JsonType type);

class JsonValue {
 public:
  // Out of line throughout: the variant inside is dear to compile, and many files include this one.
  JsonValue();
  JsonValue(const JsonValue& other);
  JsonValue(JsonValue&& other) noexcept;
  JsonValue& operator=(const JsonValue& other);
  JsonValue& operator=(JsonValue&& other) noexcept;
  ~JsonValue();
  JsonValue(std::nullptr_t);
  JsonValue(bool v);
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonValue(T v)
      : JsonValue(Bits{static_cast<std::uint64_t>(v)}, v < T{0}) {}
  JsonValue(double v);
  JsonValue(std::string v);
  JsonValue(std::string_view v);
  JsonValue(const char* v);
  JsonValue(JsonArray v);
  JsonValue(JsonObject v);

  JsonType type() const;
  bool is_null() const { return type() == JsonType::null; }
  bool is_bool() const { return type() == JsonType::boolean; }
  bool is_integer() const { return type() == JsonType::integer; }
  bool is_number() const { return type() == JsonType::number || is_integer(); }
  bool is_string() const { return type() == JsonType::string; }
  bool is_array() const { return type() == JsonType::array; }
  bool is_object() const { return type() == JsonType::object; }

  // Each refuses another type; `where` is the path that the message gives ("config.json:
  // rope_scaling.factor").
  bool as_bool(std::string_view where) const;
  std::int64_t as_int64(std::string_view where) const;  // an integer within the range; 5.0 is not one
  std::uint64_t as_uint64(std::string_view where) const;
  double as_double(std::string_view where) const;  // integers too
  const std::string& as_string(std::string_view where) const;
  const JsonArray& as_array(std::string_view where) const;
  const JsonObject& as_object(std::string_view where) const;
  JsonArray& as_array(std::string_view where);
  JsonObject& as_object(std::string_view where);

  // The value of a key of an object; find gives null when this is no object or the key is missing.
  const JsonValue* find(std::string_view key) const;
  const JsonValue& at(std::string_view key, std::string_view where) const;

  friend bool operator==(const JsonValue& a, const JsonValue& b);

 private:
  // The bits of an integer, kept as int64 unless it is above its range.
  struct Bits {
    std::uint64_t value;
  };
  JsonValue(Bits bits, bool negative);

  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, JsonArray, JsonObject>
      data_;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

bool operator==(const JsonObject& a, const JsonObject& b);

struct JsonOptions {
  std::int64_t max_depth = 512;
  std::int64_t max_values = std::numeric_limits<std::int64_t>::max();
  bool allow_duplicate_keys = false;  // the last one wins
  std::int64_t first_line = 1;        // number of the first line of the text, for messages
};

// `source` names the text in messages, usually the path of the file.
JsonValue parse_json(std::string_view text, std::string_view source, const JsonOptions& options = {});
JsonValue read_json_file(const std::string& path, const JsonOptions& options = {});

enum class JsonStyle { compact, pretty };  // pretty: one member a line, two spaces a level
// Doubles are written with the fewest digits that read back as the same value and always look like one
// ("1.0"); a value that is not finite and a string that is not UTF-8 are refused.
std::string write_json(const JsonValue& value, JsonStyle style = JsonStyle::compact);
// A JSON string literal with its quotes.
std::string quote_json(std::string_view text);

}  // namespace planalto
