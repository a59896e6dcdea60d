// SPDX-License-Identifier: Apache-2.0
#include "formats/text_source.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"

namespace planalto {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kMaxListed = 1000;
constexpr std::int64_t kMaxRecordValues = 4'000'000;
constexpr int kMaxFolderDepth = 32;  // a link that leads back up ends here

bool is_jsonl_name(std::string_view name) {
  return name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// The next line with its newline, cut off the front of `rest`.
std::string_view next_line(std::string_view& rest) {
  const auto newline = rest.find('\n');
  const std::size_t size = newline == std::string_view::npos ? rest.size() : newline + 1;
  const std::string_view line = rest.substr(0, size);
  rest.remove_prefix(size);
  return line;
}

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

class Walk {
 public:
  Walk(const TextSourceOptions& options, const std::function<void(const TextDocument&)>& take)
      : options_(options), take_(take) {}

  void file(const std::string& path) {
    const MappedFile mapped(path);
    mapped.will_read_sequentially();
    path_ = &path;
    text_ = mapped.text();
    ++report_.num_files;
    std::string_view rest = text_;
    if (rest.starts_with(kByteOrderMark)) rest.remove_prefix(kByteOrderMark.size());
    const bool jsonl = options_.format == TextSourceOptions::Format::jsonl ||
                       (options_.format == TextSourceOptions::Format::by_name && is_jsonl_name(path));
    if (jsonl) {
      jsonl_records(rest);
    } else if (options_.separator.empty()) {
      text_document(rest, 1);
    } else {
      separated_documents(rest);
    }
  }

  TextSourceReport take_report() { return std::move(report_); }

 private:
  void jsonl_records(std::string_view rest) {
    for (std::int64_t line_number = 1; !rest.empty(); ++line_number) {
      const std::string_view line = next_line(rest);
      if (!is_blank(line)) guarded(line_number, [&] { jsonl_record(line, line_number); });
    }
  }

  void jsonl_record(std::string_view line, std::int64_t line_number) {
    check_size(line, line_number);
    check_utf8(line, line_number);
    const JsonOptions limits{.max_values = kMaxRecordValues, .first_line = line_number};
    const JsonValue record = parse_json(without_line_end(line), *path_, limits);
    const std::string where = fmt::format("{}:{}", *path_, line_number);
    const JsonValue& text = record.at(options_.text_field, where);
    const std::string& value = text.as_string(fmt::format("{}: \"{}\"", where, options_.text_field));
    pending_ = TextDocument{value, *path_, line_number};
    hand_on();
  }

  void separated_documents(std::string_view rest) {
    const char* begin = rest.data();
    std::int64_t first_line = 1;
    for (std::int64_t line_number = 1; !rest.empty(); ++line_number) {
      const std::string_view line = next_line(rest);
      if (without_line_end(line) != options_.separator) continue;
      text_document({begin, static_cast<std::size_t>(line.data() - begin)}, first_line);
      begin = rest.data();
      first_line = line_number + 1;
    }
    text_document({begin, static_cast<std::size_t>(text_.data() + text_.size() - begin)}, first_line);
  }

  void text_document(std::string_view text, std::int64_t first_line) {
    guarded(first_line, [&] {
      check_size(text, first_line);
      check_utf8(text, first_line);
      pending_ = TextDocument{text, *path_, first_line};
      hand_on();
    });
  }

  void check_size(std::string_view text, std::int64_t line) const {
    if (static_cast<std::int64_t>(text.size()) <= options_.max_document_bytes) return;
    fail(ErrorKind::data, "{}:{}: a document of {} bytes, at most {} are taken", *path_, line, text.size(),
         options_.max_document_bytes);
  }

  void check_utf8(std::string_view text, std::int64_t first_line) const {
    const std::int64_t bad = find_invalid_utf8(text);
    if (bad < 0) return;
    const std::string_view before = text.substr(0, static_cast<std::size_t>(bad));
    fail(ErrorKind::data, "{}:{}: not UTF-8 at byte {} of the file: {}", *path_,
         first_line + std::count(before.begin(), before.end(), '\n'), text.data() - text_.data() + bad,
         printable(text.substr(static_cast<std::size_t>(bad), 4)));
  }

  // Runs body; with skip_bad what is wrong with the text is noted instead of raised. What the taker of the document
  // raises is no fault of the text and always goes on.
  template <class Body>
  void guarded(std::int64_t line, Body&& body) {
    if (!options_.skip_bad) {
      body();
      return;
    }
    handing_on_ = false;
    try {
      body();
    } catch (const Error& e) {
      if (handing_on_ || e.kind() != ErrorKind::data) throw;
      ++report_.num_skipped;
      if (report_.skipped.size() < kMaxListed) report_.skipped.push_back({*path_, line, e.what()});
    }
  }

  void hand_on() {
    if (pending_.text.empty()) {
      ++report_.num_empty;
      return;
    }
    ++report_.num_documents;
    report_.num_bytes += static_cast<std::int64_t>(pending_.text.size());
    handing_on_ = true;
    take_(pending_);
    handing_on_ = false;
  }

  const TextSourceOptions& options_;
  const std::function<void(const TextDocument&)>& take_;
  TextSourceReport report_;
  TextDocument pending_;
  const std::string* path_ = nullptr;
  std::string_view text_;
  bool handing_on_ = false;
};

void collect(const std::string& path, int depth, std::vector<std::string>& out) {
  if (!is_folder(path)) {
    out.push_back(path);
    return;
  }
  if (depth > kMaxFolderDepth)
    fail(ErrorKind::data, "{}: folders nested deeper than {} levels", path, kMaxFolderDepth);
  for (const std::string& name : list_folder(path)) {
    if (!name.starts_with('.')) collect(join_path(path, name), depth + 1, out);
  }
}

}  // namespace

std::vector<std::string> text_files(const std::string& path) {
  std::vector<std::string> out;
  collect(path, 0, out);
  if (out.empty()) fail(ErrorKind::data, "{}: there is no file in this folder", path);
  return out;
}

TextSourceReport for_each_document(const std::string& path, const TextSourceOptions& options,
                                   const std::function<void(const TextDocument&)>& take) {
  const std::vector<std::string> files = text_files(path);
  Walk walk(options, take);
  for (const std::string& file : files) walk.file(file);
  return walk.take_report();
}

}  // namespace planalto
