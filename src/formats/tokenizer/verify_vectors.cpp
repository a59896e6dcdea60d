// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer/verify_vectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "formats/tokenizer/streaming_decoder.h"

namespace planalto {

namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 30;

using Ids = std::vector<std::int32_t>;

Ids read_ids(const JsonValue& value, const std::string& where) {
  Ids ids;
  for (const JsonValue& one : value.as_array(where)) {
    const std::int64_t id = one.as_int64(where);
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
      fail(ErrorKind::data, "{}: the id {} is outside 0..{}", where, id,
           std::numeric_limits<std::int32_t>::max());
    }
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

std::string difference(const Ids& expected, const Ids& found) {
  const auto [a, b] = std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
  const auto at = [](const Ids& ids, auto it) {
    return it == ids.end() ? "the end" : fmt::format("{}", *it);
  };
  return fmt::format("at token {}: expected {}, found {} ({} and {} tokens)", a - expected.begin(),
                     at(expected, a), at(found, b), expected.size(), found.size());
}

std::string difference(const std::string& expected, const std::string& found) {
  const auto at =
      std::mismatch(expected.begin(), expected.end(), found.begin(), found.end()).first - expected.begin();
  const auto from = [&](const std::string& text) {
    return printable(std::string_view(text).substr(static_cast<std::size_t>(at)), 40);
  };
  return fmt::format("at byte {}: expected \"{}\", found \"{}\"", at, from(expected), from(found));
}

// One line of the file.
class Line {
 public:
  Line(const JsonValue& value, std::string where, std::int64_t number, const Tokenizer& tokenizer)
      : value_(value), where_(std::move(where)), number_(number), tokenizer_(tokenizer) {}

  void check(std::vector<VectorRow>* rows) const {
    const Ids ids = read_ids(value_.at("ids", where_), where_ + ": ids");
    Ids with_special = ids;
    if (const JsonValue* field = value_.find("ids_with_special"); field != nullptr) {
      with_special = read_ids(*field, where_ + ": ids_with_special");
    }
    const std::string& decoded = value_.at("decoded", where_).as_string(where_ + ": decoded");
    const JsonValue* skipping = value_.find("decoded_skip_special");
    const std::string& skipped =
        skipping == nullptr ? decoded : skipping->as_string(where_ + ": decoded_skip_special");

    if (const JsonValue* field = value_.find("text"); field != nullptr) {
      const std::string& text = field->as_string(where_ + ": text");
      compare("ids", ids, tokenizer_.encode(text, false), rows);
      compare("ids_with_special", with_special, tokenizer_.encode(text, true), rows);
    }
    compare("decoded", decoded, tokenizer_.decode(ids, false), rows);
    compare("decoded_skip_special", skipped, tokenizer_.decode(with_special, true), rows);
    compare("decoded while streaming", decoded, streamed(ids), rows);
  }

 private:
  template <class T>
  void compare(const char* what, const T& expected, const T& found, std::vector<VectorRow>* rows) const {
    const bool ok = expected == found;
    rows->push_back({number_, what, ok, ok ? std::string() : difference(expected, found)});
  }

  std::string streamed(const Ids& ids) const {
    StreamingDecoder decoder(tokenizer_, false);
    std::string text;
    for (const std::int32_t id : ids) text += decoder.push(id);
    return text + decoder.finish();
  }

  const JsonValue& value_;
  std::string where_;
  std::int64_t number_;
  const Tokenizer& tokenizer_;
};

}  // namespace

std::vector<VectorRow> verify_tokenizer_vectors(const std::string& jsonl_path, const Tokenizer& tokenizer) {
  const std::string text = read_text_file(jsonl_path, kMaxFileBytes);
  std::vector<VectorRow> rows;
  std::string_view rest = text;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty()) continue;
    JsonOptions options;
    options.first_line = number;
    const JsonValue value = parse_json(line, jsonl_path, options);
    Line(value, fmt::format("{}:{}", jsonl_path, number), number, tokenizer).check(&rows);
  }
  return rows;
}

std::vector<VectorRow> verify_tokenizer_vectors(const std::string& jsonl_path,
                                                const std::string& tokenizer_path) {
  return verify_tokenizer_vectors(jsonl_path, Tokenizer::load(tokenizer_path));
}

}  // namespace planalto
