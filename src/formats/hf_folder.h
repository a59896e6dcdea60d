// SPDX-License-Identifier: Apache-2.0
// hf_folder.h: a Hugging Face model folder: config.json, weights in one safetensors file or in indexed shards, and the
// tokenizer files beside them.
// Invariants  after open: every tensor has one place; every shard of the index is there, whole, and holds what it should
// Memory      the weight files stay mapped
// Threads     an open folder may be read by many; a writer belongs to one thread
// Errors      data: what is wrong, all missing shards in one message; io: the system refused
// Units       bytes
// Source      https://huggingface.co/docs/safetensors and the index that transformers' save_pretrained writes
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "formats/safetensors.h"

namespace planalto {

class HfFolder {
 public:
  static HfFolder open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string config_path() const { return join_path(path_, "config.json"); }
  std::string file(std::string_view name) const { return join_path(path_, name); }
  // Sorted by name.
  std::vector<std::string_view> names() const;
  std::int64_t num_tensors() const { return static_cast<std::int64_t>(places_.size()); }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  // Refuses a name that is not there.
  TensorView tensor(std::string_view name) const;
  const std::vector<SafetensorsFile>& shards() const { return shards_; }
  std::int64_t tensor_bytes() const;
  // What was left out or looks odd without being wrong: files outside the index, tensors that it does not list.
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  struct Place {
    std::string name;
    std::size_t shard = 0;
  };

  HfFolder() = default;
  void open_single();
  void open_index(const std::string& index_path);
  void check_shards(const std::vector<std::string>& files, const std::string& index_path);
  void notice_foreign_files(const std::vector<std::string>& used);
  const Place* find(std::string_view name) const;

  std::string path_;
  std::vector<SafetensorsFile> shards_;
  std::vector<Place> places_;  // sorted by name
  std::vector<std::string> notices_;
};

// Paths of the files beside config and weights that a copy of a model keeps: tokenizer, chat template, generation
// defaults; the ones that are there.
std::vector<std::string> tokenizer_files(const std::string& folder);

struct HfFolderOptions {
  std::int64_t max_shard_bytes = 5'000'000'000;  // a larger tensor has a shard of its own
  bool replace = false;                          // replace a folder that is there already
  std::vector<std::string> copies = {};  // paths of files that are copied into the folder, byte for byte
};

// Declares all tensors, then takes their bytes in the order of tensors(). The folder appears with commit.
class HfFolderWriter {
 public:
  // `config_text` becomes config.json as it is.
  HfFolderWriter(const std::string& path, std::vector<TensorSpec> tensors, std::string_view config_text,
                 const HfFolderOptions& options = {});
  ~HfFolderWriter();

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  // The next bytes, or floats for F32 and BF16, of the tensor whose turn it is; a tensor may come in pieces.
  void write(std::string_view name, std::span<const std::byte> bytes);
  void write(std::string_view name, std::span<const float> values);
  void commit();

 private:
  struct Shard {
    std::string file;
    std::size_t begin = 0;  // its tensors are tensors_[begin, end)
    std::size_t end = 0;
    std::int64_t num_bytes = 0;
  };

  void plan_shards(std::int64_t max_shard_bytes);
  SafetensorsWriter* next_writer();
  void write_index();

  AtomicFolder folder_;
  std::vector<TensorSpec> tensors_;
  std::vector<Shard> shards_;
  std::size_t shard_ = 0;  // the shard that is open, or shards_.size()
  std::unique_ptr<SafetensorsWriter> writer_;
};

}  // namespace planalto
