// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>

#include "app/commands.h"
#include "base/error.h"
#include "base/json.h"
#include "infer/evaluator.h"
#include "train/data_source.h"

namespace planalto {

namespace {

struct EvalArguments {
  std::string model, data, precision = "fp32";
  TextSourceOptions text;
  std::int64_t seq_len = 0, rows = 1;
  int threads = 0;
  bool json = false;
};

// The documents of a text, tokenised into memory.
class MemorySource final : public TokenSource {
 public:
  std::int64_t num_documents() const override { return static_cast<std::int64_t>(documents_.size()); }
  std::int64_t document_length(std::int64_t d) const override {
    return static_cast<std::int64_t>(documents_[static_cast<std::size_t>(d)].size());
  }
  void copy(std::int64_t d, std::int64_t first, std::int64_t n, std::int32_t* out) const override {
    std::copy_n(documents_[static_cast<std::size_t>(d)].begin() + first, n, out);
  }
  void add(std::vector<std::int32_t> ids) { documents_.push_back(std::move(ids)); }

 private:
  std::vector<std::vector<std::int32_t>> documents_;
};

int run_eval(const EvalArguments& a) {
  const LoadedModel model = LoadedModel::open(a.model);
  const Tokenizer tokenizer = model.tokenizer();
  if (tokenizer.vocab_size() > model.config.vocab_size) {
    fail(ErrorKind::data, "{}: tokenizer.json has {} tokens, the model {} vocabulary rows", a.model,
         tokenizer.vocab_size(), model.config.vocab_size);
  }
  MemorySource source;
  const TextSourceReport report = for_each_document(
      a.data, a.text, [&](const TextDocument& d) { source.add(tokenizer.encode(d.text, true)); });
  EvaluatorOptions options;
  options.precision = parse_precision(a.precision);
  options.seq_len = a.seq_len > 0 ? a.seq_len : std::min<std::int64_t>(model.config.max_positions, 512);
  if (options.seq_len > model.config.max_positions) {
    fail(ErrorKind::config, "--seq-len {} is above max_position_embeddings = {} of {}", options.seq_len,
         model.config.max_positions, a.model);
  }
  options.rows = a.rows;
  options.target = this_target(a.threads);
  Evaluator evaluator(model, options);
  const TextLoss loss = evaluator.run(source);
  if (loss.labels == 0)
    fail(ErrorKind::data, "{} holds no token to predict: a document needs at least two tokens", a.data);
  const double perplexity = std::exp(loss.loss());
  const double bits_per_byte = loss.loss_sum / std::log(2.0) / static_cast<double>(report.num_bytes);
  if (a.json) {
    JsonObject o;
    o.set("loss", loss.loss());
    o.set("perplexity", perplexity);
    o.set("bits_per_byte", bits_per_byte);
    o.set("labels", loss.labels);
    o.set("tokens", loss.tokens);
    o.set("bytes", report.num_bytes);
    o.set("documents", report.num_documents);
    o.set("seq_len", options.seq_len);
    std::printf("%s\n", write_json(o, JsonStyle::pretty).c_str());
  } else {
    std::printf(
        "loss %.6f nats a token, perplexity %.4f, %.4f bits per byte (%lld labels, %lld bytes, sequences of "
        "%lld)\n",
        loss.loss(), perplexity, bits_per_byte, static_cast<long long>(loss.labels),
        static_cast<long long>(report.num_bytes), static_cast<long long>(options.seq_len));
  }
  return 0;
}

}  // namespace

void add_eval_command(CLI::App& app, int* status) {
  auto a = std::make_shared<EvalArguments>();
  CLI::App* c = app.add_subcommand("eval", "loss, perplexity and bits per byte of a model on text");
  c->add_option("model", a->model, "Hugging Face folder or checkpoint")->required();
  c->add_option("--data", a->data, "text or JSONL file, or a folder of them")->required();
  c->add_option("--text-field", a->text.text_field, "JSONL: the field that holds the text")
      ->capture_default_str();
  c->add_option("--separator", a->text.separator, "text: a line that parts documents; empty: a file is one");
  c->add_option("--seq-len", a->seq_len, "tokens a sequence; 0: the model's context, 512 at most")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 24));
  c->add_option("--rows", a->rows, "sequences a batch")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 16))
      ->capture_default_str();
  c->add_option("--precision", a->precision, "fp32 or bf16")->capture_default_str();
  c->add_option("--threads", a->threads, "worker threads; 0: all cores of this process")
      ->check(CLI::Range(0, 1024));
  c->add_flag("--json", a->json, "print JSON");
  c->footer("Example: planalto eval my-model --data held-out.txt");
  c->callback([a, status] { *status = run_eval(*a); });
}

}  // namespace planalto
