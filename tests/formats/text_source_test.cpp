// SPDX-License-Identifier: Apache-2.0
#include "formats/text_source.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace planalto {
namespace {

using testing::expect_error;
using testing::TempFolder;

std::vector<std::string> documents(const std::string& path, const TextSourceOptions& options = {},
                                   TextSourceReport* report = nullptr) {
  std::vector<std::string> out;
  const TextSourceReport r =
      for_each_document(path, options, [&](const TextDocument& d) { out.emplace_back(d.text); });
  EXPECT_EQ(r.num_documents, static_cast<std::int64_t>(out.size()));
  if (report != nullptr) *report = r;
  return out;
}

TEST(TextSource, AFileIsOneDocument) {
  const TempFolder folder;
  EXPECT_EQ(documents(folder.write("a.txt", "one\ntwo\n")), std::vector<std::string>{"one\ntwo\n"});
  TextSourceReport report;
  EXPECT_TRUE(documents(folder.write("e.txt", ""), {}, &report).empty());
  EXPECT_EQ(report.num_empty, 1);
  EXPECT_EQ(report.num_files, 1);
  expect_error(ErrorKind::io, {folder.file("none")}, [&] { documents(folder.file("none")); });
}

TEST(TextSource, ASeparatorLineDividesDocuments) {
  const TempFolder folder;
  const std::string path = folder.write("a.txt", "a\nb\n<|end|>\nc <|end|>\r\n<|end|>\r\n<|end|>\nlast");
  std::vector<std::int64_t> lines;
  for_each_document(path, {.separator = "<|end|>"}, [&](const TextDocument& d) { lines.push_back(d.line); });
  EXPECT_EQ(documents(path, {.separator = "<|end|>"}),
            (std::vector<std::string>{"a\nb\n", "c <|end|>\r\n", "last"}));
  EXPECT_EQ(lines, (std::vector<std::int64_t>{1, 4, 7}));
}

TEST(TextSource, FoldersAreReadByName) {
  const TempFolder folder;
  folder.write("b.txt", "B");
  folder.write("a10.txt", "A10");
  folder.write("a9.txt", "A9");
  folder.write(".hidden", "no");
  folder.write("c.jsonl", "{\"text\":\"C1\"}\n{\"text\":\"C2\"}\n");
  make_folders(folder.file("bb"));
  folder.write("bb/x", "BB");
  EXPECT_EQ(documents(folder.path()), (std::vector<std::string>{"A10", "A9", "B", "BB", "C1", "C2"}));
  make_folders(folder.file("bb/empty"));
  expect_error(ErrorKind::data, {"no file"}, [&] { documents(folder.file("bb/empty")); });
}

std::string thousand_lines(bool with_faults) {
  std::string out;
  for (int line = 1; line <= 1000; ++line) {
    std::string record = "{\"text\": \"line " + std::to_string(line) + "\"}";
    if (with_faults && line == 17) record += " " + record;
    if (with_faults && line == 40) record = "[\"text\"]";
    if (with_faults && line == 77) record = "{\"text\": \"cut \xE2\x82\"}";
    if (line == 500) record = "{\"text\": \"" + std::string(1 << 20, 'y') + "\"}";
    out += record;
    if (line != 1000) out += '\n';
  }
  return out;
}

TEST(TextSource, C081BadJsonlIsRefusedWithFileAndLineOrSkippedAndListed) {
  const TempFolder folder;
  const std::string good = folder.write("good.jsonl", thousand_lines(false));
  EXPECT_EQ(documents(good).size(), 1000U);
  EXPECT_EQ(documents(good).back(), "line 1000");
  EXPECT_EQ(documents(good)[499].size(), std::size_t{1} << 20);
  const std::string bad = folder.write("bad.jsonl", thousand_lines(true));
  expect_error(ErrorKind::data, {bad + ":17:"}, [&] { documents(bad); });
  for (int run = 0; run < 2; ++run) {
    TextSourceReport report;
    const auto docs = documents(bad, {.skip_bad = true}, &report);
    EXPECT_EQ(docs.size(), 997U);
    ASSERT_EQ(report.num_skipped, 3);
    EXPECT_EQ(report.skipped[0].line, 17);
    EXPECT_EQ(report.skipped[1].line, 40);
    EXPECT_EQ(report.skipped[2].line, 77);
    EXPECT_EQ(report.skipped[2].file, bad);
    EXPECT_NE(report.skipped[2].reason.find("UTF-8"), std::string::npos);
  }
}

TEST(TextSource, C081OneFaultALine) {
  const TempFolder folder;
  const auto refused = [&](std::string_view record, std::initializer_list<std::string_view> pieces) {
    const std::string path =
        folder.write("a.jsonl", "{\"text\":\"ok\"}\n" + std::string(record) + "\n{\"text\":\"ok\"}\n");
    expect_error(ErrorKind::data, {path + ":2"}, [&] { documents(path); });
    expect_error(ErrorKind::data, pieces, [&] { documents(path); });
    EXPECT_EQ(documents(path, {.skip_bad = true}).size(), 2U);
  };
  refused("{\"text\":\"a\"} {\"text\":\"b\"}", {"JSON"});
  refused("[1]", {"an object", "an array of 1"});
  refused("{\"text\":\"a\xFF\"}", {"UTF-8", "byte 24"});
  refused("{\"text\":\"a", {"JSON"});
  refused("{\"text\": [1,", {"JSON"});
  refused("{\"txt\":\"a\"}", {"\"text\" is missing"});
  refused("{\"text\":7}", {"a string", "7"});
  refused("{\"text\":\"a\",\"text\":\"b\"}", {"twice"});
  refused(std::string("{\"text\":\"a\"}\0", 13), {"zero byte"});
  refused("{\"text\":\"\\ud800\"}", {"JSON"});
}

TEST(TextSource, C082ByteOrderMarkCrlfAndBlankLinesChangeNothing) {
  const TempFolder folder;
  const std::vector<std::string> expected{"one", "two\r\nlines", " three "};
  const std::string r1 = R"({"text":"one"})";
  const std::string r2 = R"({"text":"two\r\nlines"})";
  const std::string r3 = R"({"text":" three "})";
  EXPECT_EQ(documents(folder.write("plain.jsonl", r1 + "\n" + r2 + "\n" + r3 + "\n")), expected);
  EXPECT_EQ(documents(folder.write("bom.jsonl", "\xEF\xBB\xBF" + r1 + "\n" + r2 + "\n" + r3)), expected);
  EXPECT_EQ(documents(folder.write("crlf.jsonl", r1 + "\r\n" + r2 + "\r\n" + r3 + "\r\n")), expected);
  EXPECT_EQ(documents(folder.write("blank.jsonl", "\n\n" + r1 + "\n \t\r\n" + r2 + "\n\n" + r3 + "\n\n\n")),
            expected);
  EXPECT_EQ(documents(folder.write("spaces.jsonl", r1 + "  \n\t" + r2 + " \n  " + r3 + "\t\n")), expected);
  // Plain text is kept as it is, the byte order mark apart.
  EXPECT_EQ(documents(folder.write("crlf.txt",
                                   "\xEF\xBB\xBF"
                                   "a\r\n\r\nb\r\n")),
            std::vector<std::string>{"a\r\n\r\nb\r\n"});
}

TEST(TextSource, C083NewlinesAndIndentationAreKept) {
  const TempFolder folder;
  const std::string code = "def f(x):\n\n    if x:\n\t\treturn 1\n\n\n    return 0\n";
  EXPECT_EQ(documents(folder.write("code.txt", code)), std::vector<std::string>{code});
  EXPECT_EQ(documents(folder.write("two.txt", code + "---\n" + code), {.separator = "---"}),
            (std::vector<std::string>{code, code}));
}

TEST(TextSource, InvalidUtf8IsRefusedWithItsOffset) {
  const TempFolder folder;
  const std::string path = folder.write("a.txt", "ab\ncd\n\xC3(");
  expect_error(ErrorKind::data, {path + ":3", "byte 6"}, [&] { documents(path); });
  const std::string two = folder.write("b.txt", "ab\n---\ncd\xFF\n---\nef\n");
  TextSourceReport report;
  EXPECT_EQ(documents(two, {.separator = "---", .skip_bad = true}, &report),
            (std::vector<std::string>{"ab\n", "ef\n"}));
  ASSERT_EQ(report.num_skipped, 1);
  EXPECT_EQ(report.skipped[0].line, 3);
}

TEST(TextSource, TooLargeDocumentsAreRefused) {
  const TempFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"text\":\"123456789\"}\n{\"text\":\"1\"}\n");
  expect_error(ErrorKind::data, {path + ":1", "21 bytes", "at most 15"},
               [&] { documents(path, {.max_document_bytes = 15}); });
  EXPECT_EQ(documents(path, {.skip_bad = true, .max_document_bytes = 15}), std::vector<std::string>{"1"});
}

// An error of whoever takes the documents is not the text's fault.
TEST(TextSource, ErrorsOfTheTakerAreNeverSkipped) {
  const TempFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"text\":\"a\"}\n");
  EXPECT_THROW(
      for_each_document(path, {.skip_bad = true}, [](const TextDocument&) { fail(ErrorKind::data, "disk"); }),
      Error);
}

}  // namespace
}  // namespace planalto
