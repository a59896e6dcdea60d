// SPDX-License-Identifier: Apache-2.0
// manifest.h: the list of files that makes a checkpoint folder complete and checkable.
// Invariants  DIR/manifest.json is {"planalto_checkpoint": 1, "step": n, "files": [{"name", "bytes", "xxh3"}], ...};
//             names are plain file names beside it, each once; xxh3 is 16 hexadecimal digits
// Errors      data: every file that is missing, of another size or damaged, in one message
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace planalto {

struct ManifestFile {
  std::string name;
  std::int64_t bytes = 0;
  std::uint64_t xxh3 = 0;
};

struct Manifest {
  std::int64_t step = 0;
  std::vector<ManifestFile> files;
  JsonObject extra;  // all other keys
};

constexpr std::string_view kManifestName = "manifest.json";

bool has_manifest(const std::string& folder);
// Reads the file for its size and checksum.
ManifestFile describe_file(const std::string& folder, std::string_view name);
// Writes DIR/manifest.json atomically. The files must be on disk already: the manifest is what makes them count.
void write_manifest(const std::string& folder, const Manifest& manifest);
// Checks the manifest itself, not the files.
Manifest read_manifest(const std::string& folder);
// What is wrong with the files of a manifest: missing, another size and, when `contents`, another checksum.
std::vector<std::string> manifest_problems(const std::string& folder, const Manifest& manifest,
                                           bool contents = true);
// Of a checkpoint that is used as a model: refuses when a file that a model is made of is not what was saved. A folder without
// our manifest is left to its readers.
void verify_model_files(const std::string& folder);
// Reads the manifest and every file; refuses with all problems.
Manifest verify_manifest(const std::string& folder);

}  // namespace planalto
