// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "app/commands.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/tokenizer/streaming_decoder.h"
#include "infer/generator.h"
#include "infer/loaded_model.h"
#include "infer/sampler.h"

namespace planalto {

namespace {

struct GenerateArguments {
  std::string model, prompt, precision = "fp32";
  std::int64_t max_tokens = 100, seed = 1;
  SamplerOptions sampler;
  int threads = 0;
  bool json = false, ignore_eos = false;
};

// Prints text as it becomes whole characters.
void put(const std::string& text, bool json) {
  if (json) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int run_generate(const GenerateArguments& a) {
  a.sampler.check();
  const LoadedModel model = LoadedModel::open(a.model);
  const Tokenizer tokenizer = model.tokenizer();
  std::vector<std::int32_t> prompt = tokenizer.encode_prompt(a.prompt);
  if (prompt.empty()) {
    if (model.config.bos_token_id < 0)
      fail(ErrorKind::config, "--prompt is empty and the model names no bos_token_id to start from");
    prompt.push_back(static_cast<std::int32_t>(model.config.bos_token_id));
  }
  const auto prompt_size = static_cast<std::int64_t>(prompt.size());
  const std::int64_t context = model.config.max_positions;
  if (prompt_size >= context) {
    fail(ErrorKind::config, "--prompt has {} tokens, the model's context (max_position_embeddings) holds {}",
         prompt_size, context);
  }
  const std::int64_t max_len = std::min(context, prompt_size + a.max_tokens);
  Generator generator(model.config, parse_precision(a.precision), max_len, this_target(a.threads));
  model.load_into(generator.parameters(), generator.table(), generator.address_of());
  Sampler sampler(a.sampler, tokenizer.vocab_size(), static_cast<std::uint64_t>(a.seed));
  StreamingDecoder decoder(tokenizer, true);
  std::string text, reason = "length";
  std::int64_t generated = 0;
  std::span<const float> logits = generator.feed(prompt);
  while (generated < a.max_tokens) {
    const std::int32_t next = sampler.sample(logits);
    ++generated;
    if (!a.ignore_eos && model.is_eos(next)) {
      reason = "eos";
      break;
    }
    const std::string piece = decoder.push(next);
    text += piece;
    put(piece, a.json);
    if (generator.length() == max_len) break;
    if (generated < a.max_tokens) logits = generator.feed({&next, 1});
  }
  const std::string rest = decoder.finish();
  text += rest;
  put(rest, a.json);
  if (a.json) {
    JsonObject o;
    o.set("prompt_tokens", prompt_size);
    o.set("generated_tokens", generated);
    o.set("finish_reason", reason);
    o.set("text", text);
    std::printf("%s\n", write_json(o, JsonStyle::pretty).c_str());
  } else {
    std::printf("\n");
    std::fprintf(stderr, "(%lld prompt tokens, %lld generated, ended by %s; planned memory %lld bytes)\n",
                 static_cast<long long>(prompt_size), static_cast<long long>(generated), reason.c_str(),
                 static_cast<long long>(generator.plan().arena_bytes[0]));
  }
  return 0;
}

}  // namespace

void add_generate_command(CLI::App& app, int* status) {
  auto a = std::make_shared<GenerateArguments>();
  CLI::App* c = app.add_subcommand("generate", "continue a text with a model");
  c->add_option("model", a->model, "Hugging Face folder or checkpoint")->required();
  c->add_option("--prompt", a->prompt, "text to continue")->required();
  c->add_option("--max-tokens", a->max_tokens, "new tokens at most")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->capture_default_str();
  c->add_option("--temperature", a->sampler.temperature, "0: greedy")->capture_default_str();
  c->add_option("--top-k", a->sampler.top_k, "sample among the k best; 0: all")->capture_default_str();
  c->add_option("--top-p", a->sampler.top_p, "sample among the best that hold this share; 1: all")
      ->capture_default_str();
  c->add_option("--seed", a->seed, "of the sampling")->check(CLI::NonNegativeNumber)->capture_default_str();
  c->add_option("--precision", a->precision, "fp32 or bf16")->capture_default_str();
  c->add_option("--threads", a->threads, "worker threads; 0: all cores of this process")
      ->check(CLI::Range(0, 1024));
  c->add_flag("--ignore-eos", a->ignore_eos, "go on behind an end-of-text token");
  c->add_flag("--json", a->json, "print JSON at the end");
  c->footer(
      "Example: planalto generate runs/quickstart/checkpoints/step-00000300 --prompt \"In the beginning\"");
  c->callback([a, status] { *status = run_generate(*a); });
}

}  // namespace planalto
