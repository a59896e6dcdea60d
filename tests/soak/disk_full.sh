#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: disk_full.sh PLANALTO
# C086: a volume with room for one checkpoint and a half. The run that goes on ends with an error at its last save only, the one that
# stops ends at the second; both leave the first checkpoint whole. Needs the right to mount a tmpfs.
set -uo pipefail
planalto=$(realpath "${1:?usage: disk_full.sh PLANALTO}")
work=$(mktemp -d)
mkdir "$work/volume"
if ! mount -t tmpfs -o size=64m tmpfs "$work/volume" 2>/dev/null; then
  echo "skipped: C086 needs the right to mount a tmpfs"
  rm -rf "$work"
  exit 0
fi
trap 'umount "$work/volume"; rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
verdict() {
  if [ "$1" = 0 ]; then echo "ok - $2"; else echo "not ok - $2"; tail -n 5 log.txt; failed=1; fi
}
for _ in $(seq 400); do echo "a line of text that is long enough to learn $RANDOM from"; done >text.txt
"$planalto" tokenizer train text.txt --out tokenizer.json --vocab-size 300 --special '<|end|>' >log.txt 2>&1
# 3.5 M parameters: 42 MB a checkpoint.
cat >run.toml <<'T'
[model]
model_type = "qwen3_moe"
vocab_size = 304
hidden_size = 256
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
num_experts = 8
num_experts_per_tok = 2
moe_intermediate_size = 256
max_position_embeddings = 32
eos_token_id = 0
[tokenizer]
path = "tokenizer.json"
[data]
train = "text.txt"
cache_dir = "tokens"
[train]
seq_len = 16
micro_batch = 2
global_batch = 2
steps = 8
[checkpoint]
dir = "volume/checkpoints"
every = 2
keep = 2
T
for choice in continue stop; do
  rm -rf volume/checkpoints out
  "$planalto" train run.toml --set output.dir=out --set checkpoint.on_failed_save="$choice" >log.txt 2>&1
  status=$?
  [ "$status" = 4 ] && grep -q 'bytes, .* are free' log.txt && "$planalto" inspect volume/checkpoints/step-00000002 >>log.txt &&
    [ "$(ls -A volume/checkpoints)" = step-00000002 ]
  verdict $? "C086 $choice: the error names the bytes, the checkpoint before is whole"
  if [ "$choice" = continue ]; then
    [ "$(grep -c 'goes on' log.txt)" = 2 ]
    verdict $? "C086 continue: the saves of steps 4 and 6 were said to have failed"
  else
    ! grep -q 'step 5/8' log.txt
    verdict $? "C086 stop: no step after the save that failed"
  fi
done
exit "$failed"
