// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace planalto {
namespace {

using testing::expect_error;
using testing::TempFolder;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string read(const std::string& path) {
  return read_text_file(path, 1 << 30);
}

TEST(MappedFile, ReadsContentEmptyFilesAndRefusesTheRest) {
  const TempFolder folder;
  const MappedFile file(folder.write("a", "hello"));
  EXPECT_EQ(file.text(), "hello");
  EXPECT_EQ(file.size(), 5);
  const MappedFile empty(folder.write("e", ""));
  EXPECT_EQ(empty.size(), 0);
  EXPECT_TRUE(empty.text().empty());
  expect_error(ErrorKind::io, {folder.file("none"), "No such file"},
               [&] { MappedFile f(folder.file("none")); });
  expect_error(ErrorKind::io, {folder.path(), "a folder"}, [&] { MappedFile f(folder.path()); });
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  expect_error(ErrorKind::io, {"pipe", "a special file"}, [&] { MappedFile f(folder.file("pipe")); });
}

TEST(MappedFile, MovesItsMapping) {
  const TempFolder folder;
  MappedFile a(folder.write("a", "hello"));
  MappedFile b = std::move(a);
  EXPECT_EQ(b.text(), "hello");
  MappedFile c;
  c = std::move(b);
  EXPECT_EQ(c.text(), "hello");
  EXPECT_EQ(c.path(), folder.file("a"));
}

TEST(ByteReader, ReadsLittleEndianAndStopsAtTheEnd) {
  const std::string text("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10", 16);
  ByteReader r(bytes_of(text), "f.bin", 100);
  EXPECT_EQ(r.u8("a"), 0x01);
  EXPECT_EQ(r.u16("b"), 0x0302);
  EXPECT_EQ(r.u32("c"), 0x07060504U);
  EXPECT_EQ(r.u64("d"), 0x0f0e0d0c0b0a0908ULL);
  EXPECT_EQ(r.left(), 1);
  expect_error(ErrorKind::data, {"f.bin", "offset 115", "count needs 4 bytes", "1 are left"},
               [&] { r.u32("count"); });
  EXPECT_EQ(r.u8("e"), 0x10);
  r.seek(0, "start");
  EXPECT_EQ(r.take(3, "x").size(), 3U);
  EXPECT_THROW(r.take(-1, "x"), Error);
  EXPECT_THROW(r.seek(17, "x"), Error);
  EXPECT_THROW(r.seek(-1, "x"), Error);
  EXPECT_THROW(r.take_array(std::int64_t{1} << 62, 8, "x"), Error);
  EXPECT_THROW(r.take_array(-1, 8, "x"), Error);
  EXPECT_EQ(r.take_array(3, 4, "x").size(), 12U);
}

TEST(ByteReader, RefusesSizesAbove63Bits) {
  const std::string text("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
  ByteReader r(bytes_of(text), "f");
  expect_error(ErrorKind::data, {"18446744073709551615"}, [&] { r.size64("n"); });
}

TEST(ViewAs, RefusesMisalignedAndUnevenSpans) {
  alignas(8) const char data[24] = {};
  const auto all = bytes_of(std::string_view(data, 24));
  EXPECT_EQ(view_as<std::uint64_t>(all, "v").size(), 3U);
  EXPECT_THROW(view_as<std::uint64_t>(all.subspan(0, 23), "v"), Error);
  EXPECT_THROW(view_as<std::uint64_t>(all.subspan(4, 8), "v"), Error);
}

TEST(Paths, JoinSplitAndJudgeNames) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(parent_path("a/b/"), "a");
  EXPECT_EQ(parent_path("b"), ".");
  EXPECT_EQ(parent_path("/b"), "/");
  EXPECT_EQ(file_name("a/b/"), "b");
  EXPECT_TRUE(is_plain_name("model.safetensors"));
  for (const std::string_view bad : {"", ".", "..", "a/b", "/", "../x"})
    EXPECT_FALSE(is_plain_name(bad)) << bad;
  EXPECT_FALSE(is_plain_name(std::string_view("a\0b", 3)));
}

TEST(ReadTextFile, RefusesMoreThanTheLimit) {
  const TempFolder folder;
  const std::string path = folder.write("a", "12345");
  EXPECT_EQ(read_text_file(path, 5), "12345");
  expect_error(ErrorKind::data, {path, "5 bytes", "at most 4"}, [&] { read_text_file(path, 4); });
}

TEST(AtomicFile, AppearsOnlyWithItsCommit) {
  const TempFolder folder;
  const std::string path = folder.write("a", "old");
  {
    AtomicFile file(path);
    file.write("new");
    EXPECT_EQ(file.size(), 3);
    EXPECT_EQ(read(path), "old");
    ASSERT_EQ(list_folder(folder.path()).size(), 2U);
    EXPECT_TRUE(is_temporary_name(list_folder(folder.path())[0]));
  }
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"a"});
  AtomicFile file(path);
  const std::string big(1 << 20, 'x');
  file.write("head");
  file.write(big);
  file.write("tail");
  file.overwrite(1, bytes_of("EA"));
  file.commit();
  EXPECT_EQ(read(path), "hEAd" + big + "tail");
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"a"});
}

TEST(AtomicFile, RefusesPlacesThatCannotBeWritten) {
  const TempFolder folder;
  expect_error(ErrorKind::io, {folder.file("none/a"), "No such file"},
               [&] { AtomicFile f(folder.file("none/a")); });
  expect_error(ErrorKind::io, {folder.path(), "a folder"}, [&] { AtomicFile f(folder.path()); });
}

// /dev/full answers every write as a full disk does.
TEST(WriteAll, AFullDiskGivesPathNeededAndFreeBytes) {
  const int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const std::string text(1000, 'x');
  expect_error(ErrorKind::io, {"out.bin", "No space left", "1000 bytes", "are free there"},
               [&] { write_all(fd, bytes_of(text), "out.bin"); });
  close(fd);
}

// A write beyond the file size limit fails in the middle: the old file must stay and the temporary must go.
TEST(AtomicFile, AFailedWriteLeavesTheOldFileAlone) {
  const TempFolder folder;
  const std::string path = folder.write("a", "old");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100000, 100000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    try {
      AtomicFile file(path);
      file.write(std::string(1 << 20, 'x'));
      file.commit();
    } catch (const Error& e) {
      const std::string_view what = e.what();
      _exit(e.kind() == ErrorKind::io && what.find(path) != what.npos && what.find("needed") != what.npos
                ? 0
                : 3);
    }
    _exit(4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"a"});
}

TEST(AtomicFolder, AppearsOnlyWithItsCommit) {
  const TempFolder folder;
  const std::string path = folder.file("out");
  {
    AtomicFolder out(path + "/");
    write_file_atomically(out.file("a"), "1");
    EXPECT_FALSE(path_exists(path));
  }
  EXPECT_TRUE(list_folder(folder.path()).empty());
  AtomicFolder out(path);
  write_file_atomically(out.file("a"), "1");
  make_folders(out.file("sub/deep"));
  write_file_atomically(out.file("sub/deep/b"), "2");
  out.commit();
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"out"});
  EXPECT_EQ(read(path + "/sub/deep/b"), "2");
  expect_error(ErrorKind::io, {path, "there already"}, [&] { AtomicFolder again(path); });
}

TEST(AtomicFolder, ReplacesAnOldFolderWhole) {
  const TempFolder folder;
  const std::string path = folder.file("out");
  make_folders(path);
  write_file_atomically(join_path(path, "old"), "1");
  AtomicFolder out(path, AtomicFolder::Existing::replace);
  write_file_atomically(out.file("new"), "2");
  EXPECT_EQ(list_folder(path), std::vector<std::string>{"old"});
  out.commit();
  EXPECT_EQ(list_folder(path), std::vector<std::string>{"new"});
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"out"});
}

TEST(AtomicFolder, DoesNotOverwriteWhatAppearedMeanwhile) {
  const TempFolder folder;
  const std::string path = folder.file("out");
  AtomicFolder out(path);
  make_folders(path);
  expect_error(ErrorKind::io, {path, "exists"}, [&] { out.commit(); });
}

TEST(FreeBytes, IsAskedBeforeAWrite) {
  const TempFolder folder;
  EXPECT_GT(free_bytes(folder.file("not/there/yet")), 0);
  EXPECT_NO_THROW(require_free_bytes(folder.path(), 1));
  const std::int64_t too_much = std::int64_t{1} << 62;
  expect_error(ErrorKind::io, {folder.path(), std::to_string(too_much), "free"},
               [&] { require_free_bytes(folder.path(), too_much); });
}

}  // namespace
}  // namespace planalto
