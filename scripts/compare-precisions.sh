#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: compare-precisions.sh BUILD_DIR [--set key=value ...]
# Trains the quickstart model in fp32 and in bf16 with the same seeds; fails when the held-out losses at the end differ by 1% or more.
set -euo pipefail
planalto=$(realpath "${1:?usage: compare-precisions.sh BUILD_DIR [--set key=value ...]}")/planalto
shift
cd "$(dirname "$0")/.."
run=runs/precisions
mkdir -p "$run"
bible -f 'Gen1:1-Rev22:21' | sed 's/^[^ ]* //' >"$run/bible.txt"
"$planalto" tokenizer train "$run/bible.txt" --out "$run/tokenizer.json" --vocab-size 4096 --special '<|endoftext|>'

held_out_loss() {
  rm -rf "$run/$1"
  "$planalto" train examples/quickstart.toml --set tokenizer.path="$run/tokenizer.json" --set data.train="$run/bible.txt" \
    --set output.dir="$run/$1" --set checkpoint.every=0 --set train.precision="$1" "${@:2}" >"$run/$1.log"
  grep -o '"eval_loss": *[0-9.]*' "$run/$1/metrics.jsonl" | tail -n 1 | grep -o '[0-9.]*$'
}
fp32=$(held_out_loss fp32 "$@")
bf16=$(held_out_loss bf16 "$@")
awk -v a="$fp32" -v b="$bf16" 'BEGIN {
  d = (b - a) / a * 100
  good = d < 1 && d > -1
  printf "%sok - held-out loss: fp32 %.4f, bf16 %.4f, %+.2f%%\n", good ? "" : "not ", a, b, d
  exit !good
}'
