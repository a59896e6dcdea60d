#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: quickstart.sh BUILD_DIR
# The whole path on real text: a tokenizer, a memory plan, a training run, a few lines from the model.
set -euo pipefail
planalto=${1:?usage: quickstart.sh BUILD_DIR}/planalto
cd "$(dirname "$0")/.."
run=runs/quickstart
mkdir -p "$run"
say() { printf '\n== %s\n' "$1"; }

say "text: the King James Bible (Debian package bible-kjv)"
bible -f 'Gen1:1-Rev22:21' | sed 's/^[^ ]* //' >"$run/bible.txt"
wc -c "$run/bible.txt"

say "tokenizer: byte-level BPE of 4096 entries"
"$planalto" tokenizer train "$run/bible.txt" --out "$run/tokenizer.json" --vocab-size 4096 --special '<|endoftext|>'

say "memory plan"
"$planalto" plan examples/quickstart.toml | tail -n 5

say "training"
rm -rf "$run/checkpoints" "$run/metrics.jsonl"
"$planalto" train examples/quickstart.toml

say "a few lines from the model"
model=$(ls -d "$run"/checkpoints/step-* | tail -n 1)
for prompt in "In the beginning" "And the LORD said unto Moses,"; do
  printf '%s' "$prompt"
  "$planalto" generate "$model" --prompt "$prompt" --max-tokens 60 --temperature 0.7 --seed 1 2>/dev/null
done

say "where things are"
printf 'model and training state  %s\nmetrics                   %s\n' "$model" "$run/metrics.jsonl"
printf 'continue the run          %s train examples/quickstart.toml --resume latest --set train.steps=800\n' "$planalto"
