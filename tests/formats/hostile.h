// SPDX-License-Identifier: Apache-2.0
// hostile.h: damages a small valid file in every way that is cheap to list and opens each damaged copy.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "base/error.h"
#include "support/temp_folder.h"

namespace planalto::testing {

// A copy of a file that is damaged in place: rewriting thousands of files would take most of the test's time.
class DamagedCopy {
 public:
  explicit DamagedCopy(const std::string& bytes)
      : path_(folder_.write("damaged", bytes)), fd_(open(path_.c_str(), O_WRONLY | O_CLOEXEC)) {
    EXPECT_GE(fd_, 0);
  }
  ~DamagedCopy() { close(fd_); }
  DamagedCopy(const DamagedCopy&) = delete;
  DamagedCopy& operator=(const DamagedCopy&) = delete;

  const std::string& path() const { return path_; }
  void cut(std::size_t size) { EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size)), 0); }
  void put(std::size_t offset, char value) {
    EXPECT_EQ(pwrite(fd_, &value, 1, static_cast<off_t>(offset)), 1);
  }

 private:
  TempFolder folder_;
  std::string path_;
  int fd_;
};

// Opens `bytes` cut to every shorter length: each must raise an Error.
template <class Open>
void expect_every_truncation_refused(const std::string& bytes, Open&& try_open) {
  DamagedCopy copy(bytes);
  for (std::size_t n = bytes.size(); n-- > 0;) {
    copy.cut(n);
    EXPECT_THROW(try_open(copy.path()), Error) << "cut to " << n << " of " << bytes.size() << " bytes";
  }
}

// Opens `bytes` with each of the first `region` bytes changed to some values (every bit flipped, extremes, JSON's own
// characters): each must load or raise a data or io Error. Returns how many loaded.
template <class Open>
int open_every_corruption(const std::string& bytes, std::size_t region, Open&& try_open) {
  DamagedCopy copy(bytes);
  int loaded = 0;
  for (std::size_t i = 0; i < region; ++i) {
    std::string values = std::string("\x00\xff\x7f\x80 09-.{}[]\",:\\e", 18);
    for (int bit = 0; bit < 8; ++bit) values += static_cast<char>(bytes[i] ^ (1 << bit));
    for (const char v : values) {
      if (v == bytes[i]) continue;
      copy.put(i, v);
      try {
        try_open(copy.path());
        ++loaded;
      } catch (const Error& e) {
        EXPECT_TRUE(e.kind() == ErrorKind::data || e.kind() == ErrorKind::io)
            << "byte " << i << " as " << static_cast<int>(static_cast<unsigned char>(v)) << ": " << e.what();
      }
    }
    copy.put(i, bytes[i]);
  }
  return loaded;
}

}  // namespace planalto::testing
