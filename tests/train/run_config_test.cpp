// SPDX-License-Identifier: Apache-2.0
// run_config_test.cpp: strict reading, overrides, combined mistakes, printing, the reference page.
#include "train/run_config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "train/config_keys.h"

namespace planalto {
namespace {

const std::string kModel =
    "[model]\nmodel_type = \"qwen3_moe\"\nhidden_size = 64\nnum_hidden_layers = 2\nvocab_size = "
    "512\nnum_attention_heads = 4\n"
    "num_key_value_heads = 2\nnum_experts = 8\nnum_experts_per_tok = 2\nmoe_intermediate_size = 96\n"
    "max_position_embeddings = 64\n";                                                        // 11 lines
const std::string kData = "[data]\ntrain = \"text.txt\"\n[tokenizer]\npath = \"t.json\"\n";  // 4 lines
const std::string kGood = kModel + kData;

RunConfig parsed(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_run_config(text, "run.toml", overrides);
}
std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parsed(text, overrides);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::config);
    return e.what();
  }
  return {};
}
void expect_has(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}

TEST(RunConfig, ValuesOfEveryType) {
  const RunConfig c =
      parsed(kGood +
             "[train]\nseq_len = 64\nprecision = \"fp32\"\nrecompute = true\n[optimizer]\nlearning_rate = 1\n"
             "schedule = \"wsd\"\ndecay_exempt = [\"*norm\"]\n[memory]\ndevice_budget = \"1.5GiB\"\n"
             "host_budget = 4096\n[debug]\nrouter = \"replay:ids.bin\"\n");
  EXPECT_EQ(c.train.seq_len, 64);
  EXPECT_EQ(c.train.precision, Precision::fp32);
  EXPECT_TRUE(c.train.recompute);
  EXPECT_EQ(c.optimizer.learning_rate, 1.0);
  EXPECT_EQ(c.optimizer.schedule, ScheduleKind::wsd);
  EXPECT_EQ(c.memory.device_budget.bytes, 1610612736);
  EXPECT_EQ(c.memory.host_budget.bytes, 4096);
  EXPECT_EQ(c.debug.router_kind(), RouterDebug::replay);
  EXPECT_EQ(c.debug.router_file(), "ids.bin");
  EXPECT_EQ(c.data.train, (std::vector<std::string>{"text.txt"}));
  EXPECT_EQ(c.origins.at("train.seq_len"), "run.toml:17");
  EXPECT_FALSE(c.given("train.steps"));
  EXPECT_FALSE(decays(c, "layers.0.input_layernorm"));
  EXPECT_TRUE(decays(c, "layers.0.self_attn.q_proj.bias"));
  EXPECT_EQ(c.model_config().moe.num_experts, 8);
  EXPECT_EQ(c.checkpoint_dir(), "runs/default/checkpoints");
  EXPECT_EQ(c.metrics_path(), "runs/default/metrics.jsonl");
}

TEST(RunConfig, C098AllMistakesTogetherWithLineAndNearestKey) {
  const std::string message = refusal(
      kGood +
      "[optimizer]\nlearning_ratee = 0.1\nclip_norm = -1\n[train]\ngradient_checkpoint = true\nmax_len = 7\n"
      "steps = \"many\"\nsteps = 5\nweight_decay = 0.1\nprecision = \"fp8\"\n[optimiser]\nx = 1\n[model2]\n");
  EXPECT_EQ(message,
            "run.toml:17: unknown key optimizer.learning_ratee; nearest known key: optimizer.learning_rate\n"
            "run.toml:18: optimizer.clip_norm = -1; legal: number, from 0 to 1000000000\n"
            "run.toml:20: unknown key train.gradient_checkpoint; nearest known key: train.recompute\n"
            "run.toml:21: unknown key train.max_len; nearest known key: train.seq_len\n"
            "run.toml:22: train.steps = \"many\"; legal: integer, from 1\n"
            "run.toml:23: steps stands twice\n"
            "run.toml:24: unknown key train.weight_decay; nearest known key: optimizer.weight_decay\n"
            "run.toml:25: train.precision = \"fp8\"; legal: \"fp32\", \"bf16\"\n"
            "run.toml:26: unknown section [optimiser]; nearest known section: [optimizer]\n"
            "run.toml:28: unknown section [model2]; nearest known section: [model]");
}

TEST(RunConfig, C098KeysOfTheModelTable) {
  expect_has(refusal(kModel + "num_expert = 8\n" + kData),
             {"run.toml:12: unknown key model.num_expert; nearest known key: model.num_experts"});
  expect_has(refusal(kModel + "hf = \"dir\"\n" + kData),
             {"run.toml:3: model.hidden_size and model.hf exclude each other"});
  expect_has(refusal("[model]\nmodel_type = \"qwen3_moe\"\n" + kData),
             {"run.toml:1: [model]: ", "hidden_size is missing"});
  expect_has(refusal("[model]\nmodel_type = \"gpt\"\n" + kData), {"\"gpt\" is unknown", "qwen3_moe"});
  expect_has(refusal(kData), {"no model"});
  expect_has(refusal("seq_len = 4\n" + kGood),
             {"run.toml:1: seq_len stands outside of any section; nearest known key: train.seq_len"});
}

TEST(RunConfig, C099BatchSizesThatDoNotDivide) {
  const std::string seven = batch_mistake(256, 2, 7);
  expect_has(seven, {"train.global_batch = 256", "2 x 7 = 14", "256 = 18 x 14 + 4", "252 or 266"});
  const std::string large = batch_mistake(8, 16, 1);
  expect_has(large,
             {"train.global_batch = 8", "16 x 1 = 16", "nearest global_batch: 16", "nearest micro_batch: 8"});
  expect_has(batch_mistake(0, 2, 1), {"train.global_batch = 0", "2 x 1 = 2", "nearest global_batch: 2"});
  EXPECT_EQ(batch_mistake(256, 2, 8), "");
  EXPECT_NE(batch_mistake(-4, 2, 1), "");

  expect_has(
      refusal(kGood + "[train]\nglobal_batch = 256\nmicro_batch = 2\n[parallel]\nranks = 7\n"),
      {"run.toml:17: train.global_batch = 256", "18 x 14 + 4", "run.toml:20: parallel.ranks = 7", "only 1"});
  expect_has(refusal(kGood + "[train]\nglobal_batch = 8\nmicro_batch = 16\n"),
             {"run.toml:17: ", "nearest global_batch: 16"});
  expect_has(refusal(kGood + "[train]\nglobal_batch = 0\n"),
             {"run.toml:17: train.global_batch = 0; legal", "nearest global_batch: 8"});
  EXPECT_EQ(parsed(kGood + "[train]\nglobal_batch = 32\nmicro_batch = 4\n").microbatches(), 8);
}

TEST(RunConfig, NumbersThatAreNotFiniteAreNamedWithTheirLine) {
  expect_has(
      refusal(kGood + "[optimizer]\nlearning_rate = nan\nclip_norm = inf\nweight_decay = -inf\n"),
      {"run.toml:17: optimizer.learning_rate = nan; legal", "run.toml:18: optimizer.clip_norm = inf; legal",
       "run.toml:19: optimizer.weight_decay = -inf; legal"});
  expect_has(refusal("[model]\nrms_norm_eps = nan\nrope_scaling = {factor = [1.0, inf]}\n"),
             {"run.toml:2: model.rms_norm_eps holds a number that is not finite",
              "run.toml:3: model.rope_scaling holds a number that is not finite"});
}

TEST(RunConfig, AnEmptyOutputFolderIsNoFolder) {
  expect_has(refusal(kGood + "[output]\ndir = \"\"\n"), {"run.toml:17: output.dir is empty"});
}

TEST(RunConfig, C088KeepAllIsZeroOrMinusOne) {
  for (const std::int64_t keep : {-1, 0, 1})
    EXPECT_EQ(parsed(kGood + "[checkpoint]\nkeep = " + std::to_string(keep) + "\n").checkpoint.keep, keep);
  expect_has(refusal(kGood + "[checkpoint]\nkeep = -2\n"),
             {"run.toml:17: checkpoint.keep = -2; legal: integer, from -1 to 1000000"});
}

TEST(RunConfig, ContradictionsAreNamed) {
  expect_has(refusal(kGood + "[data]\n"), {"[data] stands twice"});
  expect_has(
      refusal(kModel + "[data]\ntrain = \"a\"\neval = \"b\"\neval_fraction = 0.1\ntext_field = \"t\"\nformat "
                       "= \"tokens\"\n"),
      {"run.toml:15: data.eval_fraction and data.eval exclude each other", "run.toml:16: data.text_field"});
  expect_has(refusal(kModel + "[data]\ntrain = []\n"),
             {"data.train is missing", "tokenizer.path is missing"});
  expect_has(refusal(kGood + "[train]\neval_every = 10\nmax_bad_steps = 3\n"),
             {"train.eval_every needs held-out data", "train.max_bad_steps"});
  expect_has(refusal(kGood + "[train]\nsteps = 10\n[optimizer]\nwarmup_steps = 11\n"),
             {"warmup_steps = 11", "train.steps = 10"});
  expect_has(refusal(kGood + "[train]\nsteps = 10\n[optimizer]\nwarmup_steps = 5\ndecay_steps = 6\n"),
             {"5 + 6 = 11"});
  expect_has(refusal(kGood + "[optimizer]\nschedule = \"constant\"\nmin_lr_ratio = 0.5\n"),
             {"optimizer.min_lr_ratio has no meaning"});
  expect_has(refusal(kGood + "[router]\naux_coef = 0.1\n"), {"router.aux_coef needs router.aux_loss"});
  expect_has(refusal(kGood + "[router]\naux_loss = \"sequence\"\n"),
             {"router.aux_loss needs router.aux_coef"});
  expect_has(refusal(kGood + "[debug]\nrouter = \"replay:\"\n"),
             {"debug.router = \"replay:\"", "record:FILE"});
  expect_has(refusal(kModel + "[model.x]\n" + kData), {"unknown key model.x"});
  // What planning does not need is not asked for.
  RunConfigNeeds plan;
  plan.data = false;
  EXPECT_NO_THROW(parse_run_config(kModel, "run.toml", {}, plan));
}

TEST(RunConfig, SequenceBeyondThePositionsOfTheModel) {
  const RunConfig c = parsed(kGood + "[train]\nseq_len = 65\n");
  try {
    c.model_config();
    FAIL();
  } catch (const Error& e) {
    expect_has(e.what(), {"train.seq_len = 65", "max_position_embeddings = 64"});
  }
}

TEST(RunConfig, OverridesWinAndAreTypedByTheTable) {
  const RunConfig c = parsed(
      kGood + "[train]\nsteps = 5\n",
      {"train.steps=7", "train.seq_len=64", "output.dir=2024", "data.train=[\"a\", \"b\"]",
       "data.eval=c d.txt", "train.precision=fp32", "optimizer.learning_rate=1e-3", "model.num_experts=16",
       "memory.device_budget=2GiB", "tokenizer.path=\"x=y.json\"", "train.recompute=true"});
  EXPECT_EQ(c.train.steps, 7);
  EXPECT_EQ(c.output.dir, "2024");
  EXPECT_EQ(c.data.train, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.data.eval, (std::vector<std::string>{"c d.txt"}));
  EXPECT_EQ(c.train.precision, Precision::fp32);
  EXPECT_EQ(c.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(c.model_config().moe.num_experts, 16);
  EXPECT_EQ(c.memory.device_budget.bytes, std::int64_t{2} << 30);
  EXPECT_EQ(c.tokenizer_path, "x=y.json");
  EXPECT_EQ(c.origins.at("train.steps"), "--set");
  const std::string message =
      refusal(kGood, {"train.stepz=7", "steps=7", "train.steps", "train.steps=x", "train.recompute=1"});
  expect_has(message, {"--set train.stepz: unknown key; nearest known key: train.steps",
                       "--set steps=7: section.key=value", "--set train.steps: section.key=value",
                       "train.steps = \"x\"; legal: integer", "train.recompute = 1; legal: true or false"});
}

TEST(RunConfig, PrintedConfigReadsBack) {
  const RunConfig c =
      parsed(kGood + "[train]\nsteps = 5\n[memory]\ndevice_budget = 4097\n[optimizer]\neps = 1e-12\n",
             {"train.micro_batch=2", "model.rope_scaling={rope_type = \"linear\", factor = 2.0}"});
  const std::string text = print_config(c);
  expect_has(text, {"# run.toml:17\n", "# --set\n", "# default\n", "hidden_size = 64"});
  const RunConfig again = parse_run_config(text, "printed.toml");
  EXPECT_EQ(again.train.steps, 5);
  EXPECT_EQ(again.memory.device_budget.bytes, 4097);
  EXPECT_EQ(again.optimizer.eps, 1e-12);
  EXPECT_EQ(again.model.keys, c.model.keys);
  RunConfig a = c;
  RunConfig b = again;
  for (const ConfigKeyRow& row : config_key_rows()) {
    if (row.key == "hf") continue;
    EXPECT_EQ(format_value(row, a), format_value(row, b)) << row.key;
  }
}

// A default that its own range refuses could never be written down.
TEST(RunConfig, DefaultsAreLegalAndKeysUnique) {
  RunConfig defaults;
  std::map<std::string, int> seen;
  for (const ConfigKeyRow& row : config_key_rows()) {
    EXPECT_EQ(++seen[std::string(row.section) + "." + std::string(row.key)], 1) << row.key;
    const ConfigField field = row.field(defaults);
    double number = row.range.low_open ? row.range.high : row.range.low;
    if (auto* const* integer = std::get_if<std::int64_t*>(&field)) number = static_cast<double>(**integer);
    if (auto* const* real = std::get_if<double*>(&field)) number = **real;
    EXPECT_TRUE(row.range.contains(number)) << row.key;
    EXPECT_FALSE(format_value(row, defaults).empty()) << row.key;
  }
}

TEST(RunConfig, ByteSizes) {
  ByteSize size;
  for (const auto& [text, bytes] : {std::pair{"2GiB", std::int64_t{2} << 30},
                                    {"512 MiB", 512 << 20},
                                    {"1.5GB", 1500000000},
                                    {"4096", 4096},
                                    {"1kB", 1000},
                                    {"auto", 0}}) {
    EXPECT_TRUE(parse_byte_size(text, size)) << text;
    EXPECT_EQ(size.bytes, bytes) << text;
  }
  for (const char* text : {"", "GiB", "2 gib", "-1GiB", "0", "nan", "inf", "1e30", "2GiBx"})
    EXPECT_FALSE(parse_byte_size(text, size)) << text;
  EXPECT_EQ(to_string(ByteSize{std::int64_t{3} << 30}), "3GiB");
  EXPECT_EQ(to_string(ByteSize{1536}), "1536");
  EXPECT_EQ(to_string(ByteSize{2048}), "2KiB");
}

TEST(RunConfig, Patterns) {
  EXPECT_TRUE(matches_pattern("layers.0.input_layernorm", "*norm"));
  EXPECT_FALSE(matches_pattern("layers.0.input_layernorm.x", "*norm"));
  EXPECT_TRUE(matches_pattern("layers.12.router", "layers.*.router"));
  EXPECT_TRUE(matches_pattern("aXbXc", "a*b*c"));
  EXPECT_FALSE(matches_pattern("aXbX", "a*b*c"));
  EXPECT_TRUE(matches_pattern("", "*"));
  EXPECT_FALSE(matches_pattern("a", ""));
}

TEST(RunConfig, ReferencePageIsCurrent) {
  std::ifstream file(PLANALTO_GOLDEN "/../../docs/config.md");
  std::stringstream page;
  page << file.rdbuf();
  if (page.str() != config_reference()) {
    std::ofstream("config.md.expected") << config_reference();
    ADD_FAILURE() << "docs/config.md differs from the table: copy config.md.expected from the folder of this "
                     "run over it";
  }
}

}  // namespace
}  // namespace planalto
