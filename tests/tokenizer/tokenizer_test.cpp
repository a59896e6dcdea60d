// SPDX-License-Identifier: Apache-2.0
// The whole of it: added tokens, special tokens around a text, streaming, ids of every width, threads, refusals.
#include "formats/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "base/utf8.h"
#include "formats/tokenizer/streaming_decoder.h"
#include "formats/tokenizer/verify_vectors.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"
#include "tokenizer/tiny_file.h"

namespace planalto {
namespace {

using planalto::testing::expect_error;
using planalto::testing::TempFolder;
using tests::TinyFile;
using Ids = std::vector<std::int32_t>;

const std::string kSmall = PLANALTO_GOLDEN "/tokenizers/small/";

TEST(AddedTokens, LongestAtTheLeftmostPlace) {
  TinyFile file;
  file.added = {{"<a>"}, {"<a>b"}, {">b"}, {"b<"}};  // 256 to 259
  const Tokenizer tokenizer = file.load();
  EXPECT_EQ(tokenizer.encode("<a>c", false), (Ids{256, 'c'}));
  EXPECT_EQ(tokenizer.encode("<a>b<a>", false), (Ids{257, 256}));  // "b<" begins later, ">b" is inside
  EXPECT_EQ(tokenizer.encode("b<a>b", false), (Ids{259, 'a', 258}));
  EXPECT_EQ(tokenizer.encode("<a<a>", false), (Ids{'<', 'a', 256}));
  EXPECT_EQ(tokenizer.encode("<a>", false), (Ids{256}));
}

TEST(AddedTokens, RawOrNormalisedText) {
  TinyFile file;
  file.normalizer = R"({"type": "NFC"})";
  file.added = {{"caf\u00e9", true, false}, {"th\u00e9", false, true}};
  const Tokenizer tokenizer = file.load();
  // The raw one is looked for before the normal form is made, the normalised one behind it.
  EXPECT_EQ(tokenizer.encode("caf\u00e9th\u00e9", false), (Ids{256, 257}));
  EXPECT_EQ(tokenizer.encode("cafe\u0301the\u0301", false), (Ids{'c', 'a', 'f', 0xC3, 0xA9, 257}));
  // A raw one cuts first, even where the other begins before it.
  file.added = {{"bc", true, false}, {"abc", true, true}};
  EXPECT_EQ(file.load().encode("abc", false), (Ids{'a', 256}));
}

TEST(AddedTokens, TakeTheSpaceBesideThem) {
  TinyFile file;
  file.added = {
      {"<l>", true, false, true, false}, {"<r>", true, false, false, true}, {"<b>", true, false, true, true}};
  const Tokenizer tokenizer = file.load();
  EXPECT_EQ(tokenizer.encode("a \u3000<l> b", false), (Ids{'a', 256, ' ', 'b'}));
  EXPECT_EQ(tokenizer.encode("a <r> \n b", false), (Ids{'a', ' ', 257, 'b'}));
  EXPECT_EQ(tokenizer.encode(" <b> <b> ", false), (Ids{258, 258}));
  EXPECT_EQ(tokenizer.encode("<r>  <l>", false), (Ids{257, 256}));
}

TEST(AddedTokens, RefusesWhatWouldMeanTwoThings) {
  const auto refused = [](const std::string& added, std::initializer_list<std::string_view> pieces) {
    TinyFile file;
    file.words = {"word"};  // 256
    std::string json = file.json();
    const std::string empty = "\"added_tokens\": []";
    json.replace(json.find(empty), empty.size(), "\"added_tokens\": [" + added + "]");
    expect_error(ErrorKind::data, pieces, [&] { Tokenizer::from_text(json, "f.json"); });
  };
  const auto token = [](const std::string& id, const std::string& content,
                        const std::string& single_word = "false") {
    return fmt::format(R"({{"id": {}, "content": "{}", "single_word": {}, "lstrip": false, "rstrip": false, )"
                       R"("normalized": false, "special": true}})",
                       id, content, single_word);
  };
  refused(token("258", "<x>"), {"f.json: added_tokens", "\"<x>\"", "258", "257"});
  refused(token("5", "<x>"), {"added_tokens", "5"});
  refused(token("-1", "<x>"), {"added_tokens", "-1"});
  refused(token("9223372036854775807", "<x>"), {"added_tokens", "9223372036854775807"});
  refused(token("1e3", "<x>"), {"added_tokens[0].id"});
  refused(token("257", "word"), {"added_tokens", "\"word\"", "256"});
  refused(token("257", "<x>") + "," + token("257", "<y>"), {"\"<y>\"", "257", "258"});
  refused(token("257", "<x>") + "," + token("257", "<x>"), {"\"<x>\"", "twice"});
  refused(token("257", ""), {"added_tokens[0].content", "empty"});
  refused(token("257", "<x>", "true"), {"added_tokens[0]", "single_word"});
  refused(R"({"id": 257, "content": "<x>"})", {"added_tokens[0]"});
}

TEST(Vocabulary, RefusesIdsThatCannotBe) {
  const auto refused = [](const std::string& vocab, std::initializer_list<std::string_view> pieces) {
    const std::string json =
        R"({"model": {"type": "BPE", "merges": [], "vocab": )" + vocab +
        R"(}, "decoder": {"type": "ByteLevel"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}})";
    expect_error(ErrorKind::data, pieces, [&] { Tokenizer::from_text(json, "f.json"); });
  };
  refused(R"({"a": 0, "b": 0})", {"f.json: model.vocab", "\"a\"", "\"b\"", "same id 0"});
  refused(R"({"a": 0, "b": 2})", {"model.vocab", "\"b\"", "2", "0 to 1"});
  refused(R"({"a": -1})", {"model.vocab", "-1"});
  refused(R"({"a": 1000000000000})", {"model.vocab", "1000000000000"});
  refused(R"({"a": 18446744073709551615})", {"model.vocab"});
  refused(R"({"a": 0.0})", {"model.vocab", "integer"});
  refused(R"({"a": "0"})", {"model.vocab", "integer"});
  refused(R"(["a"])", {"model.vocab"});
  refused(R"({"a": 0, "a": 1})", {"f.json"});  // a key twice
}

TEST(Tokenizer, C074RefusesASentencePieceStyleFileByName) {
  expect_error(ErrorKind::data, {"llama2.tokenizer.json", "not supported"},
               [] { Tokenizer::load(kSmall + "llama2.tokenizer.json"); });
}

TEST(Tokenizer, RefusesOtherTopLevelFields) {
  const auto refused = [](const std::string& fields, std::initializer_list<std::string_view> pieces) {
    TinyFile file;
    file.first_fields = fields;
    expect_error(ErrorKind::data, pieces, [&] { file.load(); });
  };
  refused(R"("version": "2.0")", {"tiny.json: version", "2.0", "1.0"});
  refused(R"("truncation": {"max_length": 512})", {"tiny.json: truncation"});
  refused(R"("padding": {})", {"tiny.json: padding"});
  refused(R"("surprise": 1)", {"tiny.json", "surprise"});
  TinyFile file;
  file.decoder = "null";
  expect_error(ErrorKind::data, {"decoder", "null"}, [&] { file.load(); });
  file.decoder = R"({"type": "Metaspace"})";
  expect_error(ErrorKind::data, {"decoder", "Metaspace", "ByteLevel"}, [&] { file.load(); });
  file = TinyFile();
  file.post_processor = R"({"type": "BertProcessing"})";
  expect_error(ErrorKind::data, {"post_processor", "BertProcessing", "TemplateProcessing"},
               [&] { file.load(); });
  expect_error(ErrorKind::io, {"no-such-file"}, [] { Tokenizer::load("no-such-file"); });
  expect_error(ErrorKind::data, {"f.json"}, [] { Tokenizer::from_text("[1]", "f.json"); });
  expect_error(ErrorKind::data, {"f.json"}, [] { Tokenizer::from_text("", "f.json"); });
}

std::string with_bos_and_eos(const std::string& bos_id) {
  return R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, )"
         R"({"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}], "pair": [], )"
         R"("special_tokens": {"<s>": {"id": "<s>", "ids": [)" +
         bos_id + R"(], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [257], "tokens": ["</s>"]}}})";
}

TEST(PostProcessor, C076OneBosWhoeverWroteIt) {
  TinyFile file;
  file.added = {{"<s>"}, {"</s>"}};
  file.post_processor = with_bos_and_eos("256");
  const Tokenizer tokenizer = file.load();
  EXPECT_EQ(tokenizer.encode("a", false), (Ids{'a'}));
  EXPECT_EQ(tokenizer.encode("a", true), (Ids{256, 'a', 257}));
  EXPECT_EQ(tokenizer.encode("", true), (Ids{256, 257}));
  // A chat template has written the BOS: the reference would put a second one.
  EXPECT_EQ(tokenizer.encode("<s>a", true), (Ids{256, 256, 'a', 257}));
  EXPECT_EQ(tokenizer.encode_prompt("<s>a"), (Ids{256, 'a', 257}));
  EXPECT_EQ(tokenizer.encode_prompt("a</s>"), (Ids{256, 'a', 257}));
  EXPECT_EQ(tokenizer.encode_prompt("a"), (Ids{256, 'a', 257}));
  EXPECT_EQ(tokenizer.encode_prompt("<s>a</s>"), (Ids{256, 'a', 257}));
  EXPECT_EQ(tokenizer.ids_before(), (Ids{256}));
  EXPECT_EQ(tokenizer.ids_behind(), (Ids{257}));
}

TEST(PostProcessor, C077AFileWithoutOneAddsNothing) {
  TinyFile file;
  file.added = {{"<|endoftext|>"}};
  const Tokenizer tokenizer = file.load();
  EXPECT_EQ(tokenizer.encode("a", true), (Ids{'a'}));
  EXPECT_TRUE(tokenizer.ids_before().empty());
  EXPECT_TRUE(tokenizer.ids_behind().empty());
}

TEST(PostProcessor, RefusesBrokenTemplates) {
  TinyFile file;
  file.added = {{"<s>"}, {"</s>"}};
  file.post_processor = with_bos_and_eos("258");
  expect_error(ErrorKind::data, {"post_processor", "<s>", "258", "257"}, [&] { file.load(); });
  file.post_processor = R"({"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}})";
  expect_error(ErrorKind::data, {"post_processor.single", "0 times"}, [&] { file.load(); });
  file.post_processor =
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}}],)"
      R"( "pair": [], "special_tokens": {}})";
  expect_error(ErrorKind::data, {"post_processor.single", "\"x\"", "special_tokens"}, [&] { file.load(); });
}

TEST(Decode, SpecialAndUnknownIds) {
  TinyFile file;
  file.added = {{"<s>", true}, {"<think>", false}, {"\u00e9\u0120", false}};
  const Tokenizer tokenizer = file.load();
  const Ids ids = {256, 'a', 257, 'b'};
  EXPECT_EQ(tokenizer.decode(ids, false), "<s>a<think>b");
  EXPECT_EQ(tokenizer.decode(ids, true), "a<think>b");
  EXPECT_EQ(tokenizer.decode(Ids{'a', 259, 100000, 'b'}, false), "ab");  // padded rows of an embedding
  // An added token is read through the byte alphabet too when it can be: U+00E9 is the byte E9, U+0120 the space.
  EXPECT_EQ(tokenizer.decode(Ids{258}, false), "\uFFFD ");
  expect_error(ErrorKind::data, {"-1"}, [&] { static_cast<void>(tokenizer.decode(Ids{-1}, false)); });
  EXPECT_EQ(tokenizer.id_of("<think>"), 257);
  EXPECT_EQ(tokenizer.id_of("\u0120"), ' ');
  EXPECT_FALSE(tokenizer.id_of("nothing"));
  EXPECT_EQ(tokenizer.token_of(' '), "\u0120");
  EXPECT_EQ(tokenizer.bytes_of(' '), " ");
  EXPECT_TRUE(tokenizer.is_special(256));
  EXPECT_FALSE(tokenizer.is_special(257));
  EXPECT_EQ(tokenizer.require_id("<s>", "data.eos"), 256);
  expect_error(ErrorKind::config, {"data.eos", "</s>", "259"},
               [&] { tokenizer.require_id("</s>", "data.eos"); });
}

TEST(StreamingDecoder, C079ACharacterIsPrintedWholeOrReplacedOnce) {
  const Tokenizer tokenizer = TinyFile().load();
  StreamingDecoder decoder(tokenizer, false);
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x91), "");
  EXPECT_EQ(decoder.push(0x8D), "\U0001F44D");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(decoder.push(0xE2), "");  // usable again
  EXPECT_EQ(decoder.push('b'),
            "\uFFFD"
            "b");
  EXPECT_EQ(decoder.push(300), "");
}

TEST(Tokenizer, C083BlankLinesAndIndentationComeBack) {
  const std::string text = "def f():\n\n    if x:\n\t\treturn 1  \n\r\n\n\n    # end\n";
  for (const char* family : {"deepseek_v3", "gptoss", "llama3", "qwen3"}) {
    const Tokenizer tokenizer = Tokenizer::load(kSmall + family + ".tokenizer.json");
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, false), false), text) << family;
  }
}

TEST(Tokenizer, C084TheHighestIdComesBack) {
  for (const std::int64_t size : {65'535, 65'536, 65'537, 151'936}) {
    TinyFile file;
    file.model_fields += R"(, "ignore_merges": true)";
    for (std::int64_t id = 256; id < size; ++id) file.words.push_back(fmt::format("w{}", id));
    file.pre_tokenizer = tests::sequence_of(tests::split_component(R"(\s+|\S+)"));
    const Tokenizer tokenizer = file.load();
    EXPECT_EQ(tokenizer.vocab_size(), size);
    const std::string text = fmt::format("w{} w256", size - 1);
    const Ids ids = {static_cast<std::int32_t>(size - 1), ' ', 256};
    EXPECT_EQ(tokenizer.encode(text, false), ids);
    EXPECT_EQ(tokenizer.decode(ids, false), text);
  }
}

TEST(Tokenizer, C084AnotherFileHasAnotherHash) {
  TinyFile file;
  const std::uint64_t hash = file.load().hash();
  EXPECT_EQ(hash, xxh3_64(file.json()));
  file.words = {"word"};
  EXPECT_NE(file.load().hash(), hash);
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const Tokenizer tokenizer = TinyFile().load();
  expect_error(ErrorKind::data, {"byte 3", "\\xff"},
               [&] { static_cast<void>(tokenizer.encode("abc\xFF", false)); });
}

TEST(Tokenizer, ManyThreadsGetTheSameIds) {
  const Tokenizer tokenizer = Tokenizer::load(kSmall + "qwen3.tokenizer.json");
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += fmt::format("line {} of caf\u00e9 <think> \u4f60\u597d {}\n", i, i * 7919);
  const Ids expected = tokenizer.encode(text, false);
  std::vector<Ids> found(4);
  std::vector<std::thread> threads;
  for (Ids& ids : found) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) ids = tokenizer.encode(text, false);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : found) EXPECT_EQ(ids, expected);
}

TEST(VerifyVectors, ReportsEachField) {
  TinyFile file;
  file.added = {{"<s>"}, {"</s>"}};
  file.post_processor = with_bos_and_eos("256");
  const TempFolder folder;
  const std::string good = folder.write(
      "good.jsonl",
      "{\"text\": \"ab\", \"ids\": [97, 98], \"decoded\": \"ab\", \"ids_with_special\": [256, 97, 98, 257]}\n"
      "{\"ids\": [256, 240], \"decoded\": \"<s>\uFFFD\", \"decoded_skip_special\": \"\uFFFD\"}\n");
  const std::string path = folder.write("tokenizer.json", file.json());
  std::vector<VectorRow> rows = verify_tokenizer_vectors(good, path);
  ASSERT_EQ(rows.size(), 8U);
  for (const VectorRow& row : rows) EXPECT_TRUE(row.ok) << row.line << " " << row.what << " " << row.detail;
  EXPECT_EQ(rows[0].line, 1);
  EXPECT_EQ(rows[7].line, 2);

  const std::string wrong =
      folder.write("wrong.jsonl", "{\"text\": \"ab\", \"ids\": [97, 99], \"decoded\": \"ab\"}\n");
  rows = verify_tokenizer_vectors(wrong, path);
  ASSERT_EQ(rows.size(), 5U);
  for (const VectorRow& row : rows) EXPECT_FALSE(row.ok) << row.what;
  EXPECT_EQ(rows[0].what, "ids");
  EXPECT_NE(rows[0].detail.find("token 1: expected 99, found 98"), std::string::npos) << rows[0].detail;

  const std::string broken = folder.write("broken.jsonl", "\n{\"text\": \"ab\"}\n");
  expect_error(ErrorKind::data, {"broken.jsonl:2", "ids"}, [&] { verify_tokenizer_vectors(broken, path); });
}

}  // namespace
}  // namespace planalto
