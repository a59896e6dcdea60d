// SPDX-License-Identifier: Apache-2.0
// verify_vectors.h: a tokenizer against a file of vectors, one JSON object a line.
// A line has text and ids (and ids_with_special where the file's post-processor adds any), or ids alone; and decoded
// (and decoded_skip_special where leaving special tokens out makes a difference).
// Errors      data: a line that is no such object (file:line); a difference is a row, not an error
// Reference   tests/golden/README.md, section 10
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/tokenizer/tokenizer.h"

namespace planalto {

struct VectorRow {
  std::int64_t line = 0;  // from 1
  std::string what;       // the field that was compared
  bool ok = false;
  std::string detail;  // of a difference: where, expected, found
};

std::vector<VectorRow> verify_tokenizer_vectors(const std::string& jsonl_path, const Tokenizer& tokenizer);
std::vector<VectorRow> verify_tokenizer_vectors(const std::string& jsonl_path,
                                                const std::string& tokenizer_path);

}  // namespace planalto
