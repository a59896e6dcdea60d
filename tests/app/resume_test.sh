#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: resume_test.sh BUILD_DIR
# Resuming and starting from weights as a user does it: damaged checkpoints, abandoned ones, folders of models, metrics of one run.
# shellcheck source=tests/app/expect.sh
source "$(dirname "$0")/expect.sh" "${1:?usage: resume_test.sh BUILD_DIR}"
work=$scratch/work
mkdir "$work"
for i in $(seq 300); do echo "the $((i % 7)) sons of the house went out and came in again on day $i"; done >"$work/text.txt"
"$planalto" tokenizer train "$work/text.txt" --out "$work/tokenizer.json" --vocab-size 280 --special '<|end|>' >/dev/null || exit 1
cat >"$work/run.toml" <<TOML
[model]
model_type = "qwen3_moe"
vocab_size = 288
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 2
num_key_value_heads = 1
num_experts = 4
num_experts_per_tok = 2
moe_intermediate_size = 16
max_position_embeddings = 64
eos_token_id = 0
[tokenizer]
path = "$work/tokenizer.json"
[data]
train = "$work/text.txt"
document_separator = ""
[train]
seq_len = 32
micro_batch = 2
global_batch = 2
steps = 8
log_every = 1
threads = 1
[checkpoint]
every = 2
keep = 3
[output]
dir = "$work/run"
TOML
train() { run "$1" train "$work/run.toml" "${@:2}"; }
checkpoints=$work/run/checkpoints
list_of() { find "$1" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | tr '\n' ' '; }

report "app: C059, C080, C077: the start says what the data is" "$(
  train 0 && has out 'the model has 288 vocabulary rows, the tokenizer 280 tokens' 'longer than a row: split' 'the first document reads ['
  [ "$(list_of "$checkpoints")" = "step-00000004 step-00000006 step-00000008 " ] || list_of "$checkpoints"
  cmp "$work/tokenizer.json" "$checkpoints/step-00000008/tokenizer.json")"
report "app: --resume latest passes over a damaged checkpoint and says so" "$(
  cp -r "$work/run" "$work/whole"
  printf x | dd of="$checkpoints/step-00000008/optimizer.safetensors" bs=1 seek=5000 conv=notrunc status=none
  train 3 --resume "$checkpoints/step-00000008" && has err 'optimizer.safetensors is damaged'
  train 0 --resume latest && has out 'step-00000008 is passed over' 'optimizer.safetensors is damaged' 'resumed' 'at step 6' 'step 7/8'
  diff -r "$work/whole/checkpoints/step-00000008" "$checkpoints/step-00000008"
  [ "$(grep -c '"step"' "$work/run/metrics.jsonl")" = 8 ] || cut -c 1-60 "$work/run/metrics.jsonl")"
report "app: an older checkpoint is not continued beside newer ones, but may be elsewhere" "$(
  train 2 --resume "$checkpoints/step-00000004" && has err 'step-00000008 is newer' 'checkpoint.dir'
  train 0 --resume "$checkpoints/step-00000004" --set "output.dir=$work/branch" && has out 'at step 4'
  diff -r "$checkpoints/step-00000008" "$work/branch/checkpoints/step-00000008")"
report "app: C091, C092: what cannot be resumed is refused by name" "$(
  cp -r "$work/run" "$work/bare"
  for f in "$work"/bare/checkpoints/*; do rm "$f/optimizer.safetensors"; done
  train 3 --resume latest --set "output.dir=$work/bare" && has err 'optimizer.safetensors is missing' 'no checkpoint that is whole'
  train 3 --resume "$checkpoints" && has err 'is a folder of checkpoints'
  train 0 --set checkpoint.resume=auto --set "output.dir=$work/auto" --set train.steps=2 && has out 'holds no checkpoint' 'started from random weights'
  train 3 --resume "$checkpoints/step-00000008" --set model.moe_intermediate_size=24 --set "output.dir=$work/none" --set train.steps=9 &&
    has err 'gate_proj.weight' 'needs [24, 32]')"
report "app: C073, C091: a checkpoint exports, and a run starts from the folder" "$(
  run 0 export "$checkpoints/step-00000008" "$work/model"
  cmp "$work/tokenizer.json" "$work/model/tokenizer.json"
  cmp "$checkpoints/step-00000008/config.json" "$work/model/config.json"
  echo '{"made_up": 1}' >"$work/model/generation_config.json"
  sed -i 's/^{/{\n  "a_key_of_somebody": [1, 2],/' "$work/model/config.json"
  sed "/^\\[model\\]/,/^\\[tokenizer\\]/c [model]\nhf = \"$work/model\"\ninit = \"weights\"\n[tokenizer]" "$work/run.toml" >"$work/from.toml"
  run 0 train "$work/from.toml" --set "output.dir=$work/from" --set train.steps=1 --set optimizer.learning_rate=1e-30 &&
    has out 'started from the weights' 'moments begin at 0'
  cmp "$work/model/config.json" "$work/from/checkpoints/step-00000001/config.json"
  cmp "$work/model/generation_config.json" "$work/from/checkpoints/step-00000001/generation_config.json"
  # Nothing moved at this rate: out come the bytes that went in.
  run 0 export "$work/from/checkpoints/step-00000001" "$work/again"
  cmp "$work/model/model.safetensors" "$work/again/model.safetensors")"
report "app: metrics of a run that saved nothing stand aside" "$(
  mkdir -p "$work/aside"
  echo '{"step":1}' >"$work/aside/metrics.jsonl"
  train 0 --set "output.dir=$work/aside" --set train.steps=2 && has out 'metrics.jsonl.previous'
  [ "$(grep -c . "$work/aside/metrics.jsonl")" = 2 ] || cat "$work/aside/metrics.jsonl")"
exit $broken
