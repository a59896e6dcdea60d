// SPDX-License-Identifier: Apache-2.0
#include "train/setup.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace planalto {

namespace {

std::vector<ops::AuxLoss> aux_losses(const RouterSection& r) {
  std::vector<ops::AuxLoss> losses;
  const auto kind = [&] {
    switch (r.aux_loss) {
      case AuxLossChoice::sequence:
        return kernels::AuxLossKind::sequence;
      case AuxLossChoice::joined:
        return kernels::AuxLossKind::joined;
      default:
        return kernels::AuxLossKind::microbatch;
    }
  }();
  if (r.aux_loss != AuxLossChoice::none && r.aux_coef > 0.0) {
    losses.push_back({.kind = kind, .coefficient = r.aux_coef, .scale_index = ops::kAuxScale});
  }
  if (r.z_coef > 0.0) {
    losses.push_back({.kind = kernels::AuxLossKind::z, .coefficient = r.z_coef, .scale_index = ops::kZScale});
  }
  return losses;
}

std::string config_json_text(const RunConfig& config) {
  if (config.model.hf.empty())
    return write_json(complete_inline_config(config.model.keys), JsonStyle::pretty) + "\n";
  const std::string path =
      is_folder(config.model.hf) ? join_path(config.model.hf, "config.json") : config.model.hf;
  return read_text_file(path, std::int64_t{1} << 24);
}

// The tokenizer and what stands beside it in a model folder, read now: a checkpoint holds what the run began with.
std::vector<ModelFile> model_files(const RunConfig& config) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 30;
  std::vector<ModelFile> files;
  if (!config.tokenizer_path.empty())
    files.push_back({"tokenizer.json", read_text_file(config.tokenizer_path, kLongest)});
  if (config.model.hf.empty() || !is_folder(config.model.hf)) return files;
  std::vector<ModelFile> beside;
  bool same_tokenizer = true;
  for (const std::string& path : tokenizer_files(config.model.hf)) {
    ModelFile file{file_name(path), read_text_file(path, kLongest)};
    if (file.name == "tokenizer.json" && !files.empty()) {
      same_tokenizer = file.content == files.front().content;
    } else {
      beside.push_back(std::move(file));
    }
  }
  for (ModelFile& file : beside) {
    if (same_tokenizer || file.name == "generation_config.json") files.push_back(std::move(file));
  }
  return files;
}

TextSourceOptions text_options(const DataSection& d) {
  TextSourceOptions o;
  o.format =
      d.format == DataFormat::jsonl ? TextSourceOptions::Format::jsonl : TextSourceOptions::Format::text;
  o.separator = d.document_separator;
  o.text_field = d.text_field;
  o.skip_bad = d.on_bad_record == BadRecord::skip;
  return o;
}

void check_vocabulary(RunSetup& s) {
  const std::int64_t tokens = s.tokenizer->vocab_size(), rows = s.model.vocab_size;
  if (tokens > rows) {
    fail(ErrorKind::config,
         "tokenizer.path = \"{}\" has {} tokens, the model's vocab_size is {}: it must be at least {}",
         s.config.tokenizer_path, tokens, rows, tokens);
  }
  if (tokens < rows) {
    s.notices.push_back(fmt::format(
        "the model has {} vocabulary rows, the tokenizer {} tokens: the rows above are never labels", rows,
        tokens));
  }
}

void notice_skipped(RunSetup& s, const std::string& path, const TextSourceReport& report) {
  constexpr std::size_t kListed = 20;
  if (report.num_skipped == 0) return;
  s.notices.push_back(fmt::format("{}: {} records skipped (data.on_bad_record), {} documents kept", path,
                                  report.num_skipped, report.num_documents));
  for (std::size_t i = 0; i < std::min(kListed, report.skipped.size()); ++i) {
    const SkippedText& skipped = report.skipped[i];
    s.notices.push_back(fmt::format("skipped {}:{}: {}", skipped.file, skipped.line, skipped.reason));
  }
}

// A run needs something to learn from; what trains nothing is counted.
void check_labels(RunSetup& s) {
  const DataSummary& d = s.data;
  if (d.labels == 0) {
    fail(ErrorKind::data,
         "data.train: none of {} tokens in {} documents is a trained label (a document of one token has "
         "none, a "
         "mask may leave none): there is nothing to learn",
         d.tokens, d.documents);
  }
  if (d.without_label > 0)
    s.notices.push_back(
        fmt::format("data.train: {} of {} documents have no trained label", d.without_label, d.documents));
}

std::unique_ptr<ShardSource> open_shards(RunSetup& s, const std::vector<std::string>& paths,
                                         const PrepareOptions& prepare) {
  std::vector<TokenShard> shards;
  TokenShardOptions open;
  if (s.tokenizer) open.tokenizer_hash = s.tokenizer->hash();
  for (const std::string& path : paths) {
    std::string shard_path = path;
    if (s.config.data.format != DataFormat::tokens) {
      const PreparedText prepared = prepare_text(path, *s.tokenizer, prepare);
      shard_path = prepared.shard_path;
      notice_skipped(s, path, prepared.report);
    }
    TokenShard shard = TokenShard::open(shard_path, open);
    if (shard.header().vocab_size > s.model.vocab_size) {
      fail(ErrorKind::data, "{}: made for a vocabulary of {}, the model's vocab_size is {}", shard_path,
           shard.header().vocab_size, s.model.vocab_size);
    }
    shards.push_back(std::move(shard));
  }
  return std::make_unique<ShardSource>(std::move(shards));
}

}  // namespace

StepOptions step_options(const RunConfig& c, const ModelConfig& model) {
  StepOptions o;
  o.precision = c.train.precision;
  o.max_tokens = c.train.seq_len * c.train.micro_batch;
  o.num_microbatches = c.microbatches();
  o.max_positions = c.train.seq_len;
  o.recompute = c.train.recompute;
  o.loss_tile_rows = c.memory.loss_tile_rows;
  o.packed_weights = c.memory.packed_weights;
  if (model.num_moe_layers() > 0) o.aux_losses = aux_losses(c.router);
  o.router_bias_rate = static_cast<float>(c.router.bias_update_rate);
  o.clip_norm = c.optimizer.clip_norm;
  o.weight_decay = static_cast<float>(c.optimizer.weight_decay);
  if (c.given("optimizer.decay_exempt")) {
    o.decays = [c](const ParameterSpec& spec) { return decays(c, spec.name); };
  }
  const RouterDebug router = c.debug.router_kind();
  o.record_routes = router == RouterDebug::record;
  o.replay_routes = !o.record_routes && router != RouterDebug::none;
  return o;
}

namespace {

// debug.router, the trainer's part of it.
void set_routes(TrainerOptions& o, const RunConfig& config, const ModelConfig& model) {
  const RouterDebug router = config.debug.router_kind();
  if (router == RouterDebug::none) return;
  if (num_moe_blocks(model) == 0) {
    fail(ErrorKind::config, "debug.router = \"{}\": the model has no MoE layer", config.debug.router);
  }
  if (router == RouterDebug::record) o.record_path = config.debug.router_file();
  if (router == RouterDebug::replay) o.replay_path = config.debug.router_file();
  if (router == RouterDebug::balanced) o.forced_routes = moe::ForcedPattern::balanced;
  if (router == RouterDebug::all_to_one) o.forced_routes = moe::ForcedPattern::all_to_one;
}

}  // namespace

RunSetup setup_model(const RunConfig& config, const Target& target) {
  RunSetup s;
  s.config = config;
  s.model = config.model_config();
  s.config_text = config_json_text(config);
  TrainerOptions& o = s.options;
  o.step = step_options(config, s.model);
  o.schedule = config.schedule();
  o.target = target;
  o.executor = {.poison = config.debug.poison, .measure = config.debug.measure_memory};
  o.seq_len = config.train.seq_len;
  o.micro_batch = config.train.micro_batch;
  o.steps = config.train.steps;
  o.seed = static_cast<std::uint64_t>(config.train.seed);
  o.init_seed = static_cast<std::uint64_t>(config.model.seed);
  o.shuffle = config.data.shuffle;
  o.pack = config.train.packing == Packing::documents;
  o.beta1 = config.optimizer.beta1;
  o.beta2 = config.optimizer.beta2;
  o.eps = config.optimizer.eps;
  o.mtp_lambda = config.train.mtp_lambda;
  o.on_nonfinite = config.train.on_nonfinite;
  o.max_bad_steps = config.train.max_bad_steps;
  o.eval_every = config.train.eval_every;
  o.eval_tokens = config.train.eval_tokens;
  o.save_every = config.checkpoint.every;
  o.keep = config.checkpoint.keep;
  o.checkpoint_dir = config.checkpoint_dir();
  o.config_text = s.config_text;
  set_routes(o, config, s.model);
  o.on_failed_save = config.checkpoint.on_failed_save;
  if (config.train.seq_len > s.model.max_positions) {
    s.notices.push_back(fmt::format("train.seq_len = {} exceeds max_position_embeddings = {} of the model",
                                    config.train.seq_len, s.model.max_positions));
  }
  return s;
}

void setup_data(RunSetup& s) {
  const DataSection& d = s.config.data;
  PrepareOptions prepare;
  prepare.text = text_options(d);
  prepare.add_bos = d.add_bos;
  prepare.add_eos = d.add_eos;
  prepare.cache_dir = d.cache_dir.empty() ? join_path(s.config.output.dir, "tokens") : d.cache_dir;
  if (!s.config.tokenizer_path.empty()) {
    s.tokenizer = std::make_unique<Tokenizer>(Tokenizer::load(s.config.tokenizer_path));
    s.options.tokenizer_hash = s.tokenizer->hash();
    check_vocabulary(s);
    prepare.bos_id = static_cast<std::int32_t>(s.model.bos_token_id);
    prepare.eos_id =
        s.model.eos_token_ids.empty() ? -1 : static_cast<std::int32_t>(s.model.eos_token_ids.front());
    if (d.add_eos && prepare.eos_id < 0)
      s.notices.push_back("data.add_eos is on, but the model names no eos_token_id: none is added");
    if (d.add_bos && prepare.bos_id < 0)
      s.notices.push_back("data.add_bos is on, but the model names no bos_token_id: none is added");
  }
  s.train = open_shards(s, d.train, prepare);
  if (!d.eval.empty()) {
    s.eval = open_shards(s, d.eval, prepare);
  } else if (d.eval_fraction > 0.0) {
    const std::int64_t total = s.train->num_tokens();
    const auto held_out = static_cast<std::int64_t>(static_cast<double>(total) * d.eval_fraction);
    s.eval = std::make_unique<ShardSource>(s.train->split_off(total - held_out, total));
  }
  s.options.data_hash = s.train->hash();
  s.options.files = model_files(s.config);
  s.data = summarize(*s.train, s.config.train.seq_len);
  check_labels(s);
  if (s.eval && s.eval->num_tokens() == 0) {
    s.notices.push_back("data.eval_fraction holds out no token: there is no evaluation");
    s.eval.reset();
  }
}

PlanRequest plan_request(const RunSetup& s) {
  return {s.model, s.options.step, s.config.train.seq_len, s.config.train.micro_batch, s.options.target};
}

}  // namespace planalto
