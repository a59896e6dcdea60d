// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "base/error.h"
#include "base/utf8.h"

namespace planalto {

static_assert(std::endian::native == std::endian::little, "files are little-endian and read in place");

namespace {

constexpr std::int64_t kBufferBytes = 1 << 18;
constexpr std::string_view kTemporaryPrefix = ".planalto-tmp.";

std::string reason(int error) {
  return std::system_category().message(error);
}

[[noreturn]] void fail_system(const char* action, const std::string& path, int error = errno) {
  fail(ErrorKind::io, "cannot {} {}: {}", action, path, reason(error));
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, const char* action)
      : fd_(open(path.c_str(), flags | O_CLOEXEC)) {
    if (fd_ < 0) fail_system(action, path);
  }
  ~Descriptor() { close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return fd_; }

 private:
  int fd_;
};

// Opens and stats a regular file. O_NONBLOCK: opening a pipe must not wait for a writer before it is refused.
std::int64_t regular_size(int fd, const std::string& path) {
  struct stat st {};
  if (fstat(fd, &st) != 0) fail_system("look at", path);
  if (!S_ISREG(st.st_mode)) {
    fail(ErrorKind::io, "{} is {}, a regular file is needed", path,
         S_ISDIR(st.st_mode) ? "a folder" : "a special file");
  }
  return st.st_size;
}

void sync_descriptor(int fd, const std::string& path) {
  while (fsync(fd) != 0) {
    if (errno != EINTR) fail_system("bring to disk", path);
  }
}

void sync_path(const std::string& path, int flags) {
  const Descriptor fd(path, flags, "open for syncing");
  sync_descriptor(fd, path);
}

void sync_folder(const std::string& path) {
  sync_path(path, O_RDONLY | O_DIRECTORY);
}

void sync_tree(const std::string& folder) {
  for (const std::string& name : list_folder(folder)) {
    const std::string path = join_path(folder, name);
    struct stat st {};
    if (lstat(path.c_str(), &st) != 0) fail_system("look at", path);
    if (S_ISDIR(st.st_mode)) {
      sync_tree(path);
    } else if (S_ISREG(st.st_mode)) {
      sync_path(path, O_RDONLY);
    }
  }
  sync_folder(folder);
}

// A name beside `path` that no other process and no other object of this one uses.
std::string temporary_beside(const std::string& path) {
  // Begins at the time: in a container a killed process and its successor often have the same pid.
  static std::atomic<std::uint64_t> counter{static_cast<std::uint64_t>(
      std::chrono::system_clock::now().time_since_epoch() / std::chrono::microseconds(1))};
  return join_path(parent_path(path), fmt::format("{}{}.{}.{}", kTemporaryPrefix, file_name(path), getpid(),
                                                  counter.fetch_add(1, std::memory_order_relaxed)));
}

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

// --- reading
// --------------------------------------------------------------------------------------------------------

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor fd(path, O_RDONLY | O_NONBLOCK, "open");
  size_ = regular_size(fd, path);
  if (size_ == 0) return;
  void* data = mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) fail_system("map", path);
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::will_read_sequentially() const {
  if (data_ == nullptr) return;
  // Advice only: nothing is lost when the system does not take it.
  (void)madvise(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_), MADV_SEQUENTIAL);
}

void ByteReader::seek(std::int64_t offset, std::string_view what) {
  const auto size = static_cast<std::int64_t>(bytes_.size());
  if (offset < 0 || offset > size) {
    fail(ErrorKind::data, "{}: {} would begin at offset {}, beyond the {} bytes there", name_, what,
         first_offset_ + offset, size);
  }
  at_ = offset;
}

std::span<const std::byte> ByteReader::take(std::int64_t num_bytes, std::string_view what) {
  if (num_bytes < 0 || num_bytes > left()) {
    fail(ErrorKind::data, "{}: offset {}: {} needs {} bytes, {} are left", name_, first_offset_ + at_, what,
         num_bytes, left());
  }
  const auto out = bytes_.subspan(static_cast<std::size_t>(at_), static_cast<std::size_t>(num_bytes));
  at_ += num_bytes;
  return out;
}

std::span<const std::byte> ByteReader::take_array(std::int64_t count, std::int64_t element_bytes,
                                                  std::string_view what) {
  std::int64_t num_bytes = 0;
  if (count < 0 || element_bytes <= 0 || __builtin_mul_overflow(count, element_bytes, &num_bytes)) {
    fail(ErrorKind::data, "{}: offset {}: {} of {} elements of {} bytes, {} bytes are left", name_,
         first_offset_ + at_, what, count, element_bytes, left());
  }
  return take(num_bytes, what);
}

std::int64_t ByteReader::size64(std::string_view what) {
  const std::int64_t at = at_;
  const std::uint64_t v = u64(what);
  if (!std::in_range<std::int64_t>(v)) {
    fail(ErrorKind::data, "{}: offset {}: {} is {}, more than 63 bits", name_, first_offset_ + at, what, v);
  }
  return static_cast<std::int64_t>(v);
}

void fail_view(std::string_view what, std::int64_t num_bytes, std::int64_t element_bytes, bool misaligned) {
  if (misaligned) fail(ErrorKind::data, "{}: not aligned to its elements of {} bytes", what, element_bytes);
  fail(ErrorKind::data, "{}: {} bytes are not a whole number of elements of {} bytes", what, num_bytes,
       element_bytes);
}

std::string read_text_file(const std::string& path, std::int64_t max_bytes) {
  const MappedFile file(path);
  if (file.size() > max_bytes) {
    fail(ErrorKind::data, "{}: {} bytes, at most {} are read here", path, file.size(), max_bytes);
  }
  return std::string(file.text());
}

// --- paths
// ----------------------------------------------------------------------------------------------------------

bool path_exists(const std::string& path) {
  struct stat st {};
  return lstat(path.c_str(), &st) == 0;
}

bool is_folder(const std::string& path) {
  struct stat st {};
  return stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

bool is_regular_file(const std::string& path) {
  struct stat st {};
  return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

std::int64_t file_bytes(const std::string& path) {
  struct stat st {};
  if (stat(path.c_str(), &st) != 0) fail_system("look at", path);
  return st.st_size;
}

std::vector<std::string> list_folder(const std::string& path) {
  DIR* dir = opendir(path.c_str());
  if (dir == nullptr) fail_system("list", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int error = errno;
  closedir(dir);
  if (error != 0) fail_system("list", path, error);
  std::sort(names.begin(), names.end());
  return names;
}

void make_folders(const std::string& path) {
  const std::string clean = without_trailing_slashes(path);
  if (clean.empty() || is_folder(clean)) return;
  make_folders(parent_path(clean));
  if (mkdir(clean.c_str(), 0777) != 0 && !(errno == EEXIST && is_folder(clean)))
    fail_system("make the folder", clean);
}

void remove_all(const std::string& path) {
  struct stat st {};
  if (lstat(path.c_str(), &st) != 0) {
    if (errno == ENOENT) return;
    fail_system("look at", path);
  }
  if (S_ISDIR(st.st_mode)) {
    for (const std::string& name : list_folder(path)) remove_all(join_path(path, name));
    if (rmdir(path.c_str()) != 0) fail_system("remove the folder", path);
  } else if (unlink(path.c_str()) != 0) {
    fail_system("remove", path);
  }
}

std::string join_path(std::string_view folder, std::string_view name) {
  if (folder.empty()) return std::string(name);
  return fmt::format("{}{}{}", folder, folder.back() == '/' ? "" : "/", name);
}

std::string parent_path(std::string_view path) {
  const std::string clean = without_trailing_slashes(std::string(path));
  const auto slash = clean.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : clean.substr(0, slash);
}

std::string file_name(std::string_view path) {
  const std::string clean = without_trailing_slashes(std::string(path));
  const auto slash = clean.rfind('/');
  return slash == std::string::npos ? clean : clean.substr(slash + 1);
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == name.npos;
}

bool is_temporary_name(std::string_view name) {
  return name.starts_with(kTemporaryPrefix);
}

// --- writing
// --------------------------------------------------------------------------------------------------------

std::int64_t free_bytes(const std::string& path) {
  std::string at = path;
  while (!path_exists(at) && at != "." && at != "/") at = parent_path(at);
  struct statvfs st {};
  if (statvfs(at.c_str(), &st) != 0) fail_system("ask for the free space at", at);
  return static_cast<std::int64_t>(st.f_bavail) * static_cast<std::int64_t>(st.f_frsize);
}

void require_free_bytes(const std::string& path, std::int64_t needed) {
  const std::int64_t free = free_bytes(path);
  if (free < needed) {
    fail(ErrorKind::io, "cannot write {}: it needs {} bytes, {} are free there", path, needed, free);
  }
}

namespace {

[[noreturn]] void fail_write(const std::string& path, std::int64_t needed, int error) {
  fail(ErrorKind::io, "cannot write {}: {}; {} bytes more were needed, {} are free there", path,
       reason(error), needed, free_bytes(path));
}

}  // namespace

void write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_write(path, static_cast<std::int64_t>(bytes.size()), n == 0 ? EIO : errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), temporary_(temporary_beside(path)) {
  if (is_folder(path)) fail(ErrorKind::io, "cannot write {}: it is a folder", path);
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_system("write", path);
  buffer_.reserve(static_cast<std::size_t>(kBufferBytes));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

void AtomicFile::flush() {
  write_all(fd_, buffer_, path_);
  size_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  PLANALTO_CHECK(fd_ >= 0, "{} is written after its commit", path_);
  if (buffer_.size() + bytes.size() > static_cast<std::size_t>(kBufferBytes)) flush();
  if (bytes.size() > static_cast<std::size_t>(kBufferBytes)) {
    write_all(fd_, bytes, path_);
    size_ += static_cast<std::int64_t>(bytes.size());
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::overwrite(std::int64_t offset, std::span<const std::byte> bytes) {
  PLANALTO_CHECK(fd_ >= 0, "{} is written after its commit", path_);
  flush();
  PLANALTO_CHECK(offset >= 0 && offset + static_cast<std::int64_t>(bytes.size()) <= size_,
                 "{}: overwriting {} bytes at {} of {}", path_, bytes.size(), offset, size_);
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_write(path_, static_cast<std::int64_t>(bytes.size()), n == 0 ? EIO : errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

void AtomicFile::commit() {
  PLANALTO_CHECK(fd_ >= 0, "{} is committed twice", path_);
  flush();
  sync_descriptor(fd_, path_);
  // Network file systems report a failed write only here.
  const int closed = close(std::exchange(fd_, -1));
  const int error = errno;
  if (closed != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int why = closed != 0 ? error : errno;
    unlink(temporary_.c_str());
    fail_system("write", path_, why);
  }
  sync_folder(parent_path(path_));
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

AtomicFolder::AtomicFolder(const std::string& path, Existing existing)
    : path_(without_trailing_slashes(path)), temporary_(temporary_beside(path_)), existing_(existing) {
  if (path_exists(path_)) {
    if (existing == Existing::refuse)
      fail(ErrorKind::io, "cannot write the folder {}: it is there already", path_);
    if (!is_folder(path_)) fail(ErrorKind::io, "cannot replace {}: it is not a folder", path_);
  }
  if (mkdir(temporary_.c_str(), 0777) != 0) fail_system("make the folder", path_);
}

AtomicFolder::~AtomicFolder() {
  if (committed_) return;
  try {
    remove_all(temporary_);
  } catch (const Error&) {
    // What is left carries a temporary name and is not taken for anything.
  }
}

void AtomicFolder::commit() {
  PLANALTO_CHECK(!committed_, "{} is committed twice", path_);
  sync_tree(temporary_);
  const bool replaces = existing_ == Existing::replace && path_exists(path_);
  const unsigned flags = replaces ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), flags) != 0) {
    if (errno != EINVAL && errno != ENOSYS) fail_system("put in place the folder", path_);
    // A file system without these flags: an old folder steps aside first, so for a moment neither is there.
    const std::string aside = temporary_beside(path_);
    if (replaces && rename(path_.c_str(), aside.c_str()) != 0) fail_system("replace the folder", path_);
    if (!replaces && path_exists(path_)) fail_system("put in place the folder", path_, EEXIST);
    if (rename(temporary_.c_str(), path_.c_str()) != 0) {
      const int error = errno;
      if (replaces) (void)rename(aside.c_str(), path_.c_str());
      fail_system("put in place the folder", path_, error);
    }
    if (replaces) temporary_ = aside;
  }
  committed_ = true;
  sync_folder(parent_path(path_));
  if (replaces) remove_all(temporary_);  // the old folder stands there now
}

void copy_file(const std::string& from, const std::string& to) {
  const MappedFile source(from);
  AtomicFile target(to);
  target.write(source.bytes());
  target.commit();
}

}  // namespace planalto
