// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "app/commands.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/text_source.h"
#include "formats/tokenizer/tokenizer.h"
#include "formats/tokenizer/trainer.h"

namespace planalto {

namespace {

struct TokenizerArguments {
  std::string file, data, out, text;
  BpeTrainerOptions trainer;
  TextSourceOptions source;
  std::vector<std::int64_t> ids;
  bool json = false, special = false, skip_special = false, from_stdin = false;
};

// The trainer pulls documents, the text source pushes them: all are read first.
int run_train(TokenizerArguments& a) {
  std::vector<std::string> documents;
  for_each_document(a.data, a.source, [&](const TextDocument& d) { documents.emplace_back(d.text); });
  std::size_t at = 0;
  const TrainedTokenizer trained = train_byte_level_bpe(
      [&](std::string* out) {
        if (at == documents.size()) return false;
        *out = std::move(documents[at++]);
        return true;
      },
      a.trainer);
  make_folders(parent_path(a.out));
  write_file_atomically(a.out, trained.json);
  if (trained.vocab_size < a.trainer.vocab_size) {
    std::printf("notice: no pair occurs %lld times any more: %lld entries instead of %lld\n",
                static_cast<long long>(a.trainer.min_frequency), static_cast<long long>(trained.vocab_size),
                static_cast<long long>(a.trainer.vocab_size));
  }
  std::printf("wrote %s: %lld entries, %lld merges, from %lld documents\n", a.out.c_str(),
              static_cast<long long>(trained.vocab_size), static_cast<long long>(trained.num_merges),
              static_cast<long long>(trained.num_documents));
  return 0;
}

int run_encode(const TokenizerArguments& a) {
  const Tokenizer tokenizer = Tokenizer::load(a.file);
  const std::string text = a.from_stdin ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : a.text;
  const std::vector<std::int32_t> ids = tokenizer.encode(text, a.special);
  if (a.json) {
    JsonArray id_array, token_array;
    for (const std::int32_t id : ids) {
      id_array.emplace_back(id);
      token_array.emplace_back(tokenizer.token_of(id));
    }
    JsonObject o;
    o.set("ids", std::move(id_array));
    o.set("tokens", std::move(token_array));
    std::printf("%s\n", write_json(o).c_str());
    return 0;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) std::printf("%s%d", i == 0 ? "" : " ", ids[i]);
  std::printf("\n");
  return 0;
}

int run_decode(const TokenizerArguments& a) {
  const Tokenizer tokenizer = Tokenizer::load(a.file);
  std::vector<std::int32_t> ids;
  for (const std::int64_t id : a.ids) {
    if (id < 0 || id >= tokenizer.vocab_size())
      fail(ErrorKind::data, "id {} is outside this tokenizer: legal: 0 to {}", id,
           tokenizer.vocab_size() - 1);
    ids.push_back(static_cast<std::int32_t>(id));
  }
  const std::string text = tokenizer.decode(ids, a.skip_special);
  if (a.json) {
    JsonObject o;
    o.set("text", text);
    std::printf("%s\n", write_json(o).c_str());
  } else {
    std::printf("%s\n", text.c_str());
  }
  return 0;
}

}  // namespace

void add_tokenizer_command(CLI::App& app, int* status) {
  auto a = std::make_shared<TokenizerArguments>();
  CLI::App* c = app.add_subcommand(
      "tokenizer", "train a byte-level BPE tokenizer; encode and decode with a tokenizer.json");
  c->require_subcommand(1);
  CLI::App* train = c->add_subcommand("train", "make a tokenizer.json from text");
  train->add_option("data", a->data, "text or JSONL file, or a folder of them")->required();
  train->add_option("--out", a->out, "tokenizer.json to write")->required();
  train
      ->add_option("--vocab-size", a->trainer.vocab_size,
                   "entries, special tokens and the 256 bytes included")
      ->required();
  train
      ->add_option("--special", a->trainer.special_tokens,
                   "a special token; may be repeated: they get ids 0, 1, ...")
      ->allow_extra_args(false);
  train->add_option("--min-frequency", a->trainer.min_frequency, "a pair that is rarer is not joined")
      ->capture_default_str();
  train->add_option("--text-field", a->source.text_field, "JSONL: the field that holds the text")
      ->capture_default_str();
  train->footer(
      "Example: planalto tokenizer train corpus.txt --out tokenizer.json --vocab-size 4096 --special "
      "\"<|endoftext|>\"");
  train->callback([a, status] { *status = run_train(*a); });
  CLI::App* encode = c->add_subcommand("encode", "text to ids");
  encode->add_option("tokenizer", a->file, "tokenizer.json")->required();
  CLI::Option* text = encode->add_option("text", a->text, "the text");
  encode->add_flag("--stdin", a->from_stdin, "read the text from standard input")->excludes(text);
  encode->add_flag("--special", a->special, "with what the post-processor adds");
  encode->add_flag("--json", a->json, "print JSON with ids and tokens");
  encode->footer("Example: planalto tokenizer encode tokenizer.json \"In the beginning\"");
  encode->callback([a, status] { *status = run_encode(*a); });
  CLI::App* decode = c->add_subcommand("decode", "ids to text");
  decode->add_option("tokenizer", a->file, "tokenizer.json")->required();
  decode->add_option("ids", a->ids, "the ids")->required();
  decode->add_flag("--skip-special", a->skip_special, "leave special tokens out");
  decode->add_flag("--json", a->json, "print JSON");
  decode->footer("Example: planalto tokenizer decode tokenizer.json 12 345");
  decode->callback([a, status] { *status = run_decode(*a); });
}

}  // namespace planalto
