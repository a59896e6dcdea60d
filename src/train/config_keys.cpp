// SPDX-License-Identifier: Apache-2.0
#include "train/config_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/toml.h"

namespace planalto {
namespace {

template <class E>
ConfigField choice(E& field) {
  return ChoiceField{&field, [](const void* p) { return static_cast<int>(*static_cast<const E*>(p)); },
                     [](void* p, int value) { *static_cast<E*>(p) = static_cast<E>(value); }};
}

constexpr double kBig = 1099511627776.0;  // 2^40: above any count of tokens or steps that a run can mean
constexpr Range kNone{};

#define FIELD(expression) [](RunConfig& c) -> ConfigField { return &c.expression; }
#define CHOICE(expression) [](RunConfig& c) -> ConfigField { return choice(c.expression); }
// clang-format off
const ConfigKeyRow kRows[] = {
    {"model", "hf", FIELD(model.hf), kNone, "folder or config.json", "a Hugging Face folder or its config.json; empty: its keys stand in [model] instead", "path name"},
    {"model", "init", CHOICE(model.init), kNone, "random weights", "where the first weights come from: drawn at random, or read from the folder hf", "pretrained"},
    {"model", "seed", FIELD(model.seed), {0, kBig}, "", "seed of the random weights", "init_seed"},
    {"tokenizer", "path", FIELD(tokenizer_path), kNone, "file", "a tokenizer.json; needed for text and jsonl", "tokenizer"},
    {"data", "train", FIELD(data.train), kNone, "path or list of paths", "training files or folders", "train_files dataset path"},
    {"data", "eval", FIELD(data.eval), kNone, "path or list of paths", "held-out files or folders", "validation valid val_files test"},
    {"data", "eval_fraction", FIELD(data.eval_fraction), {0, 1, false, true}, "", "share of the training documents that is held out instead of data.eval; 0: none", "validation_split"},
    {"data", "format", CHOICE(data.format), kNone, "text jsonl tokens", "text: UTF-8 files; jsonl: one object a line; tokens: shards that are tokenised already", "type"},
    {"data", "text_field", FIELD(data.text_field), kNone, "name", "jsonl: the field that holds the text", "text_key"},
    {"data", "document_separator", FIELD(data.document_separator), kNone, "text", "text: what parts documents inside a file; empty: a file is a document", "separator delimiter"},
    {"data", "add_bos", FIELD(data.add_bos), kNone, "", "a begin-of-text token before each document", "bos"},
    {"data", "add_eos", FIELD(data.add_eos), kNone, "", "an end-of-text token after each document", "eos"},
    {"data", "shuffle", FIELD(data.shuffle), kNone, "", "documents in an order drawn from train.seed for each epoch; false: the order of the files", ""},
    {"data", "cache_dir", FIELD(data.cache_dir), kNone, "folder", "where token shards are kept; empty: \"tokens\" in the output folder", "cache"},
    {"data", "on_bad_record", CHOICE(data.on_bad_record), kNone, "stop skip", "a record that cannot be read stops the preparation, or is skipped, counted and listed", ""},
    {"train", "seq_len", FIELD(train.seq_len), {1, 16777216}, "", "tokens of a sequence", "max_len max_length max_seq_len sequence_length context_length block_size"},
    {"train", "micro_batch", FIELD(train.micro_batch), {1, 1048576}, "", "sequences of a microbatch on one rank", "micro_batch_size batch_size per_device_train_batch_size"},
    {"train", "global_batch", FIELD(train.global_batch), {1, 1073741824}, "", "sequences of a step: a multiple of micro_batch x ranks", "global_batch_size gradient_accumulation_steps"},
    {"train", "steps", FIELD(train.steps), {1, kBig}, "", "steps of the whole run, skipped ones included", "max_steps num_steps iterations train_iters"},
    {"train", "precision", CHOICE(train.precision), kNone, "fp32 bf16", "weights and activations; master weights, moments and gradients are fp32 in both", "dtype bf16 fp16"},
    {"train", "recompute", FIELD(train.recompute), kNone, "", "a block's activations are computed again in its backward instead of kept", "gradient_checkpoint gradient_checkpointing activation_checkpointing"},
    {"train", "seed", FIELD(train.seed), {0, kBig}, "", "seed of the data order", "random_seed"},
    {"train", "packing", CHOICE(train.packing), kNone, "documents none", "documents: several share a sequence, none sees another; none: one document a sequence", "pack"},
    {"train", "eval_every", FIELD(train.eval_every), {0, kBig}, "", "steps between evaluations of the held-out loss; 0: never", "eval_steps eval_interval"},
    {"train", "eval_tokens", FIELD(train.eval_tokens), {0, kBig}, "", "held-out tokens of an evaluation; 0: all", "eval_iters"},
    {"train", "log_every", FIELD(train.log_every), {1, kBig}, "", "steps between progress lines", "logging_steps log_interval"},
    {"train", "on_nonfinite", CHOICE(train.on_nonfinite), kNone, "stop skip", "a step whose loss or gradient is not finite stops the run, or is skipped: no weight or moment changes, its data is used up", "skip_nan"},
    {"train", "max_bad_steps", FIELD(train.max_bad_steps), {1, kBig}, "", "on_nonfinite skip: as many skipped steps in a row stop the run", ""},
    {"train", "threads", FIELD(train.threads), {0, 1024}, "", "threads of a rank; 0: the cores that this process may use", "num_threads"},
    {"train", "mtp_lambda", FIELD(train.mtp_lambda), {0, 100}, "", "weight of the multi-token prediction losses, where the model has such modules", "mtp_loss_weight"},
    {"optimizer", "learning_rate", FIELD(optimizer.learning_rate), {0, 1000, true}, "", "the highest, after the warm-up", "lr max_lr"},
    {"optimizer", "beta1", FIELD(optimizer.beta1), {0, 1, false, true}, "", "AdamW: decay of the first moment", "adam_beta1"},
    {"optimizer", "beta2", FIELD(optimizer.beta2), {0, 1, false, true}, "", "AdamW: decay of the second moment", "adam_beta2"},
    {"optimizer", "eps", FIELD(optimizer.eps), {0, 1, true}, "", "AdamW: added to the root of the second moment", "epsilon adam_epsilon"},
    {"optimizer", "weight_decay", FIELD(optimizer.weight_decay), {0, 1000}, "", "a step multiplies weights by 1 - learning rate x this", "decay"},
    {"optimizer", "decay_exempt", FIELD(optimizer.decay_exempt), kNone, "list of patterns", "parameters without weight decay, by name; * stands for any characters", "no_decay"},
    {"optimizer", "clip_norm", FIELD(optimizer.clip_norm), {0, 1e9}, "", "gradients are scaled down to this global norm; 0: off", "grad_clip max_grad_norm clip_grad"},
    {"optimizer", "schedule", CHOICE(optimizer.schedule), kNone, "constant cosine linear wsd", "course of the learning rate after the warm-up; wsd: stable, then a linear decay at the end", "lr_scheduler lr_decay_style"},
    {"optimizer", "warmup_steps", FIELD(optimizer.warmup_steps), {0, kBig}, "", "steps in which the learning rate rises from 0", "warmup warmup_iters"},
    {"optimizer", "decay_steps", FIELD(optimizer.decay_steps), {0, kBig}, "", "length of the decay; 0: all steps after the warm-up, wsd: a tenth of the run", "lr_decay_iters"},
    {"optimizer", "min_lr_ratio", FIELD(optimizer.min_lr_ratio), {0, 1}, "", "the learning rate at the end of the decay, as a share of the highest", "min_lr"},
    {"router", "bias_update_rate", FIELD(router.bias_update_rate), {0, 1}, "", "step of the correction bias towards even load, where the model has one; 0: it stays as it is", "bias_rate"},
    {"router", "aux_loss", CHOICE(router.aux_loss), kNone, "none sequence microbatch joined", "auxiliary balance loss: per sequence, per microbatch and layer, or over all layers joined", "load_balancing_loss"},
    {"router", "aux_coef", FIELD(router.aux_coef), {0, 1000}, "", "its coefficient", "aux_loss_coef router_aux_loss_coef aux_loss_alpha"},
    {"router", "z_coef", FIELD(router.z_coef), {0, 1000}, "", "coefficient of the mean squared log-sum-exp of the router's logits; 0: off", "z_loss_coef"},
    {"memory", "device_budget", FIELD(memory.device_budget), kNone, "bytes", "what the plan may use of the device tier; auto: what the machine and its limits allow", "budget max_memory"},
    {"memory", "host_budget", FIELD(memory.host_budget), kNone, "bytes", "what the plan may use of the host tier", ""},
    {"memory", "packed_weights", FIELD(memory.packed_weights), kNone, "", "in bf16, matrices are kept in the two forms that products read, written by each update; false: one plain form (2 bytes less a weight), rearranged by every product", ""},
    {"memory", "loss_tile_rows", FIELD(memory.loss_tile_rows), {0, 1048576}, "", "tokens of a tile of the vocabulary projection; 0: as many as make 64 MiB of logits, 128 to 512", ""},
    {"checkpoint", "dir", FIELD(checkpoint.dir), kNone, "folder", "where checkpoints go; empty: \"checkpoints\" in the output folder", "save_dir"},
    {"checkpoint", "every", FIELD(checkpoint.every), {0, kBig}, "", "steps between checkpoints; 0: one at the end", "save_every save_steps save_interval"},
    {"checkpoint", "keep", FIELD(checkpoint.keep), {-1, 1e6}, "", "how many of the newest stay; 0 or -1: all", "save_total_limit keep_last"},
    {"checkpoint", "resume", CHOICE(checkpoint.resume), kNone, "none auto", "auto: go on from the newest complete checkpoint in dir when there is one", "resume_from_checkpoint"},
    {"checkpoint", "on_failed_save", CHOICE(checkpoint.on_failed_save), kNone, "continue stop", "a save during the run that the disk refuses costs a checkpoint, said loudly, or stops the run; the last save of a run always must succeed", ""},
    {"output", "dir", FIELD(output.dir), kNone, "folder", "where a run puts its files", "output_dir out_dir"},
    {"output", "metrics", FIELD(output.metrics), kNone, "file", "one JSON object a logged step; a relative path counts from the output folder", "log_file"},
    {"debug", "router", FIELD(debug.router), kNone, "none, balanced, all_to_one, replay:FILE or record:FILE", "balanced: experts in turn instead of the router's choice; all_to_one: the same for every token; replay: recorded ids; record: write the ids that are chosen, each step at once, so that a run that fails or is killed leaves all its steps, and a resumed one goes on behind them (format: src/train/route_file.h)", ""},
    {"debug", "poison", FIELD(debug.poison), kNone, "", "transient memory is filled with NaN before each step", ""},
    {"debug", "measure_memory", FIELD(debug.measure_memory), kNone, "", "the highest byte written in each arena is measured and compared with the plan", ""},
    {"parallel", "ranks", FIELD(parallel.ranks), {1, 1}, "", "ranks of the run; this version runs one", "world_size nproc num_gpus"},
    {"parallel", "ep", FIELD(parallel.ep), {1, 1}, "", "ranks that share the experts; this version runs one", "expert_parallel expert_model_parallel_size"},
};
// clang-format on
#undef FIELD
#undef CHOICE

const ConfigSection kSections[] = {
    {"model",
     "The model: either `hf`, or the keys of a Hugging Face `config.json` (`model_type`, `hidden_size`, ...) "
     "themselves, in "
     "either style. A key that a `config.json` would hold as null is left out here."},
    {"tokenizer", "The tokenizer of text data."},
    {"data",
     "What is trained and evaluated on. Relative paths count from the folder in which the program is "
     "started."},
    {"train", "The step."},
    {"optimizer", "AdamW, clipping and the learning rate."},
    {"router", "What keeps the experts' load even. The model's own `router_aux_loss_coef` is not used."},
    {"memory",
     "Budgets of the memory plan. Sizes are bytes or have a unit: KiB, MiB, GiB, TiB, kB, MB, GB, TB."},
    {"checkpoint", "Saved states."},
    {"output", "Files that a run writes."},
    {"debug", "For tests and comparisons."},
    {"parallel", "Ranks."},
};

std::string format_number(double value) {
  if (value == std::floor(value) && std::fabs(value) < 1e15) return fmt::format("{:.1f}", value);
  return fmt::format("{}", value);
}
std::string short_number(double value) {
  return value == std::floor(value) && std::fabs(value) < 1e15
             ? fmt::format("{}", static_cast<std::int64_t>(value))
             : fmt::format("{}", value);
}

std::string format_list(const std::vector<std::string>& list) {
  std::string all;
  for (const std::string& text : list) all += (all.empty() ? "" : ", ") + quote_toml(text);
  return "[" + all + "]";
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

std::span<const ConfigKeyRow> config_key_rows() {
  return kRows;
}
std::span<const ConfigSection> config_sections() {
  return kSections;
}

std::vector<std::string_view> split_words(std::string_view words) {
  std::vector<std::string_view> list;
  while (!words.empty()) {
    const std::size_t space = std::min(words.find(' '), words.size());
    if (space > 0) list.push_back(words.substr(0, space));
    words.remove_prefix(std::min(space + 1, words.size()));
  }
  return list;
}

std::string describe_range(const ConfigKeyRow& row, RunConfig& config) {
  const auto numbers = [&](const char* kind) {
    const Range& r = row.range;
    if (r.low == r.high) return fmt::format("only {}", short_number(r.low));
    std::string text = r.low_open ? "above " + short_number(r.low) : "from " + short_number(r.low);
    if (r.high < kBig)
      text += (r.high_open ? ", below " : r.low_open ? ", at most " : " to ") + short_number(r.high);
    return kind + (", " + text);
  };
  return std::visit(Overloaded{
                        [&](std::int64_t*) { return numbers("integer"); },
                        [&](double*) { return numbers("number"); },
                        [](bool*) { return std::string("true or false"); },
                        [&](std::string*) { return std::string(row.choices); },
                        [&](std::vector<std::string>*) { return std::string(row.choices); },
                        [](ByteSize*) { return std::string("a size such as \"2GiB\", or \"auto\""); },
                        [&](const ChoiceField&) {
                          std::string all;
                          for (const std::string_view name : split_words(row.choices)) {
                            all += (all.empty() ? "" : ", ") + quote_toml(name);
                          }
                          return all;
                        },
                    },
                    row.field(config));
}

std::string format_value(const ConfigKeyRow& row, RunConfig& config) {
  return std::visit(
      Overloaded{
          [](const std::int64_t* v) { return std::to_string(*v); },
          [](const double* v) { return format_number(*v); },
          [](const bool* v) { return std::string(*v ? "true" : "false"); },
          [](const std::string* v) { return quote_toml(*v); },
          [](const std::vector<std::string>* v) { return format_list(*v); },
          [](const ByteSize* v) { return quote_toml(to_string(*v)); },
          [&](const ChoiceField& v) {
            return quote_toml(split_words(row.choices)[static_cast<std::size_t>(v.get(v.field))]);
          },
      },
      row.field(config));
}

}  // namespace planalto
