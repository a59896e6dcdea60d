// SPDX-License-Identifier: Apache-2.0
// file.h: files as this program reads and writes them: mapped and bounds-checked in, all or nothing out.
// Invariants  a reader never leaves its span; a committed file or folder is whole and on disk, an uncommitted
// one is gone Threads     one thread an object; a MappedFile may be read by many Errors      io: the system
// refused (path, reason; for writes needed and free bytes); data: too short (file, offset,
//             what was needed and what is left)
// Units       bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace planalto {

// A regular file mapped for reading. The file must not shrink while it is mapped: the system answers a read
// behind its new end with SIGBUS. Files that Planalto writes are replaced by rename, never cut.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(data_), static_cast<std::size_t>(size_)};
  }
  // Tells the system that the whole file will be read from front to back.
  void will_read_sequentially() const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

// Little-endian reads that advance and cannot leave the span. `what` names the field in the message.
class ByteReader {
 public:
  // `name` is the file; offsets in messages count from `first_offset`.
  ByteReader(std::span<const std::byte> bytes, std::string name, std::int64_t first_offset = 0)
      : bytes_(bytes), name_(std::move(name)), first_offset_(first_offset) {}

  std::int64_t offset() const { return at_; }
  std::int64_t left() const { return static_cast<std::int64_t>(bytes_.size()) - at_; }
  void seek(std::int64_t offset, std::string_view what);

  std::uint8_t u8(std::string_view what) { return read<std::uint8_t>(what); }
  std::uint16_t u16(std::string_view what) { return read<std::uint16_t>(what); }
  std::uint32_t u32(std::string_view what) { return read<std::uint32_t>(what); }
  std::uint64_t u64(std::string_view what) { return read<std::uint64_t>(what); }
  // A u64 that must fit a signed size.
  std::int64_t size64(std::string_view what);
  std::span<const std::byte> take(std::int64_t num_bytes, std::string_view what);
  // `count` elements of `element_bytes` each; the product is checked as well.
  std::span<const std::byte> take_array(std::int64_t count, std::int64_t element_bytes,
                                        std::string_view what);

 private:
  template <class T>
  T read(std::string_view what) {
    T v;
    std::memcpy(&v, take(sizeof(T), what).data(), sizeof(T));
    return v;
  }

  std::span<const std::byte> bytes_;
  std::string name_;
  std::int64_t first_offset_ = 0;
  std::int64_t at_ = 0;
};

// The same bytes as elements: refuses a misaligned address and a length that is no multiple of the element.
template <class T>
std::span<const T> view_as(std::span<const std::byte> bytes, std::string_view what);

// The whole file; refused when it is longer than max_bytes.
std::string read_text_file(const std::string& path, std::int64_t max_bytes);

bool path_exists(const std::string& path);
bool is_folder(const std::string& path);
bool is_regular_file(const std::string& path);
std::int64_t file_bytes(const std::string& path);
// Names in a folder, sorted by byte value, without "." and "..".
std::vector<std::string> list_folder(const std::string& path);
// Makes the folder and its parents where they are missing.
void make_folders(const std::string& path);
// Removes a file or a folder with all that is in it; nothing happens when there is none.
void remove_all(const std::string& path);
std::string join_path(std::string_view folder, std::string_view name);
// What stands before the last "/" ("." when there is none) and behind it.
std::string parent_path(std::string_view path);
std::string file_name(std::string_view path);
// True for a plain name that stays in its folder: not empty, ".", "..", no "/", no zero byte.
bool is_plain_name(std::string_view name);

// Bytes that an ordinary user may still write where `path` is or will be.
std::int64_t free_bytes(const std::string& path);
// Refuses when fewer than `needed` bytes are free there.
void require_free_bytes(const std::string& path, std::int64_t needed);

// Writes all of it to a descriptor, through short writes and interruptions.
void write_all(int fd, std::span<const std::byte> bytes, const std::string& path);

// A file that appears under its name when it is complete: written beside it, synced, renamed, folder synced.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_ + static_cast<std::int64_t>(buffer_.size()); }
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  // Overwrites bytes that were written before (a header whose content is known only at the end).
  void overwrite(std::int64_t offset, std::span<const std::byte> bytes);
  void commit();

 private:
  void flush();

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  std::int64_t size_ = 0;  // bytes handed to the system
  std::vector<std::byte> buffer_;
};

void write_file_atomically(const std::string& path, std::string_view text);

// A folder that appears under its name when it is complete. Files are made below folder(); commit syncs every
// one.
class AtomicFolder {
 public:
  enum class Existing { refuse, replace };
  explicit AtomicFolder(const std::string& path, Existing existing = Existing::refuse);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::string& folder() const { return temporary_; }
  std::string file(std::string_view name) const { return join_path(temporary_, name); }
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  Existing existing_;
  bool committed_ = false;
};

// Names that AtomicFile and AtomicFolder use before a commit: what a killed process may leave behind.
bool is_temporary_name(std::string_view name);

void copy_file(const std::string& from, const std::string& to);

// ---------------------------------------------------------------------------------------------------------------------

[[noreturn]] void fail_view(std::string_view what, std::int64_t num_bytes, std::int64_t element_bytes,
                            bool misaligned);

template <class T>
std::span<const T> view_as(std::span<const std::byte> bytes, std::string_view what) {
  static_assert(std::is_trivially_copyable_v<T>);
  const bool misaligned = reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(T) != 0;
  if (misaligned || bytes.size() % sizeof(T) != 0) {
    fail_view(what, static_cast<std::int64_t>(bytes.size()), sizeof(T), misaligned);
  }
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace planalto
