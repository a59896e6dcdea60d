// SPDX-License-Identifier: Apache-2.0
// safetensors.h: reads and writes one safetensors file; reading maps it and trusts nothing in its header.
// Shapes      extents are never negative and may be zero; a scalar has an empty shape; at most 2^63-1 elements and bytes
// Invariants  after open: names are unique, ranges fit dtype x shape, cover the data exactly and do not overlap
// Memory      the file stays mapped; a header of at most 100 MB and 1.5 million JSON values is accepted
// Threads     an open file may be read by many; a writer belongs to one thread
// Errors      data: what is wrong with the file, with file and tensor; io: the system refused
// Units       bytes; `begin` and `end` count from the first byte behind the header
// Source      https://huggingface.co/docs/safetensors (format section)
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"

namespace planalto {

enum class FileDType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0
};

const char* to_string(FileDType dtype);  // as the file spells it: "F32", "BF16", ...
std::int64_t dtype_bytes(FileDType dtype);
// False when there is no such dtype.
bool parse_file_dtype(std::string_view text, FileDType* dtype);

// "[2, 3]"
std::string shape_text(std::span<const std::int64_t> shape);

struct TensorSpec {
  std::string name;
  FileDType dtype = FileDType::f32;
  std::vector<std::int64_t> shape;
};

// Elements and bytes of a tensor; refuses extents below zero and products beyond 63 bits, naming `where`.
std::int64_t num_elements(const TensorSpec& spec, std::string_view where);
std::int64_t num_bytes(const TensorSpec& spec, std::string_view where);

// One tensor inside an open file, which must outlive it and stay where it is. Reads copy, so the mapping needs no alignment.
struct TensorView {
  std::string_view file;
  std::string_view name;
  FileDType dtype = FileDType::f32;
  std::span<const std::int64_t> shape;
  std::int64_t num_elements = 0;
  std::span<const std::byte> bytes;

  // Elements [first, first + out.size()) in row-major order. float and double are read from F64, F32, F16 and BF16
  // (rounded to nearest where the file holds more), int64 from every integer dtype and BOOL.
  void read(std::int64_t first, std::span<float> out) const;
  void read(std::int64_t first, std::span<double> out) const;
  void read(std::int64_t first, std::span<std::int64_t> out) const;
  // All elements.
  std::vector<float> read_f32() const;
  std::vector<double> read_f64() const;
  std::vector<std::int64_t> read_i64() const;
};

class SafetensorsFile {
 public:
  struct Entry {
    TensorSpec spec;
    std::int64_t num_elements = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::int64_t file_bytes() const { return file_.size(); }
  std::int64_t data_bytes() const { return file_.size() - data_begin_; }
  // In the order of the header.
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }

  bool contains(std::string_view name) const { return find(name) != nullptr; }
  // Refuses a name that is not there.
  TensorView tensor(std::string_view name) const;
  TensorView tensor(const Entry& entry) const;

 private:
  SafetensorsFile() = default;
  const Entry* find(std::string_view name) const;
  void read_header();
  void check_layout() const;
  void build_index();

  MappedFile file_;
  std::int64_t data_begin_ = 0;
  std::vector<Entry> entries_;
  std::vector<std::int64_t> by_name_;  // positions in entries_, sorted by name
  std::vector<std::pair<std::string, std::string>> metadata_;
};

struct SafetensorsWriterOptions {
  // by_alignment: wide dtypes first, then by name, so that every tensor is aligned to its elements.
  enum class Order { given, by_alignment };
  Order order = Order::given;
  std::vector<std::pair<std::string, std::string>> metadata = {};
};

// All tensors are declared first, then their bytes are streamed in the order of tensors(). The same input gives the
// same bytes. Nothing stands under the path before commit.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors,
                    const SafetensorsWriterOptions& options = {});
  ~SafetensorsWriter();

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  // All bytes of all tensors have come.
  bool complete() const { return current_ == tensors_.size(); }
  // The next bytes of the tensor whose turn it is, which must bear this name; a tensor may come in pieces.
  void write(std::string_view name, std::span<const std::byte> bytes);
  // The same from floats: stored as F32, or rounded to BF16 when the tensor was declared so.
  void write(std::string_view name, std::span<const float> values);
  void commit();

 private:
  void skip_full();

  std::string path_;
  std::vector<TensorSpec> tensors_;
  std::unique_ptr<AtomicFile> file_;
  std::size_t current_ = 0;   // the tensor whose turn it is
  std::int64_t missing_ = 0;  // its bytes that have not come yet
};

}  // namespace planalto
