// SPDX-License-Identifier: Apache-2.0
// text_source.h: walks the documents of a text file, a JSONL file, or a folder of them.
// Invariants  documents come in a fixed order: files by name (byte order, subfolders in their place), lines from the top
// Numerics    text is handed on byte for byte, CRLF and blank lines included; only a byte order mark at the start of a
//             file is dropped. JSONL: blank lines, CR and spaces around a record are no content
// Memory      the file is mapped; one JSONL record is held at a time
// Errors      data: file, line, byte offset and what is wrong; with skip_bad it is counted and listed instead
// Units       lines from 1, offsets and sizes in bytes
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace planalto {

struct TextSourceOptions {
  enum class Format { by_name, text, jsonl };  // by_name: .jsonl and .ndjson are JSONL, all else is text
  Format format = Format::by_name;
  // Text: a line that equals this ends a document (it belongs to none); empty: a file is one document.
  std::string separator = {};
  std::string text_field = "text";
  // Skip a bad JSONL record, a bad text document, instead of refusing the file.
  bool skip_bad = false;
  std::int64_t max_document_bytes = std::int64_t{1} << 30;
};

struct SkippedText {
  std::string file;
  std::int64_t line = 0;
  std::string reason;
};

struct TextSourceReport {
  std::int64_t num_files = 0;
  std::int64_t num_documents = 0;
  std::int64_t num_bytes = 0;  // of text handed on
  std::int64_t num_empty = 0;  // documents without a byte, handed on to nobody
  std::int64_t num_skipped = 0;
  std::vector<SkippedText> skipped;  // the first 1000
};

struct TextDocument {
  std::string_view text;  // valid during the call
  std::string_view file;
  std::int64_t line = 0;  // where it begins
};

TextSourceReport for_each_document(const std::string& path, const TextSourceOptions& options,
                                   const std::function<void(const TextDocument&)>& take);

// The files that for_each_document reads, in its order: names that begin with a dot are left out.
std::vector<std::string> text_files(const std::string& path);

}  // namespace planalto
