#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: kill_big_save.sh PLANALTO KILLS
# C085 with 1 GB of training state: a run that saves after every step, killed KILLS times, every other time inside a save. Whatever the
# moment, the newest complete checkpoint is whole and is what the run goes on from, and in the end it is the run that was not killed.
set -uo pipefail
planalto=$(realpath "${1:?usage: kill_big_save.sh PLANALTO KILLS}")
kills=${2:?usage: kill_big_save.sh PLANALTO KILLS}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
free_kib=$(df --output=avail -k . | tail -n 1)
if [ "$free_kib" -lt $((8 * 1024 * 1024)) ]; then
  echo "skipped: C085 with 1 GB of state needs 8 GiB in ${TMPDIR:-/tmp}"
  exit 0
fi
RANDOM=11
failed=0
verdict() {
  if [ "$1" = 0 ]; then echo "ok - $2"; else echo "not ok - $2"; failed=1; fi
}
for _ in $(seq 300); do echo "a line of text that is long enough to learn $RANDOM from"; done >text.txt
"$planalto" tokenizer train text.txt --out tokenizer.json --vocab-size 300 --special '<|end|>' >log.txt 2>&1
# 85 M parameters: 12 bytes of masters and moments each.
cat >run.toml <<'T'
[model]
model_type = "qwen3_moe"
vocab_size = 304
hidden_size = 512
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
num_experts = 36
num_experts_per_tok = 2
moe_intermediate_size = 768
max_position_embeddings = 32
eos_token_id = 0
[tokenizer]
path = "tokenizer.json"
[data]
train = "text.txt"
cache_dir = "tokens"
[train]
seq_len = 16
micro_batch = 1
global_batch = 1
steps = 8
log_every = 1
[optimizer]
learning_rate = 1e-3
[checkpoint]
every = 1
keep = 1
resume = "auto"
T
"$planalto" train run.toml --set output.dir=whole >whole.log 2>&1
status=$?
bytes=$(du -sb whole/checkpoints/step-00000008 2>/dev/null | cut -f 1)
[ "$status" = 0 ] && [ "${bytes:-0}" -gt 1000000000 ]
verdict $? "a run whose checkpoints have ${bytes:-0} bytes"
[ "$failed" = 0 ] || { tail -n 5 whole.log; exit 1; }

newest() { find killed/checkpoints -maxdepth 1 -name 'step-*' 2>/dev/null | sort | tail -n 1; }
left_overs() { find killed/checkpoints -maxdepth 1 -name '.planalto*' 2>/dev/null; }
in_saves=0 finished=0 bad=0
for round in $(seq "$kills"); do
  before=$(newest)
  "$planalto" train run.toml --set output.dir=killed >killed.log 2>&1 &
  pid=$!
  if [ $((round % 2)) = 0 ]; then
    # What an earlier kill left goes when the next save begins: a name that was not there is a save in progress.
    old=$(left_overs)
    while kill -0 "$pid" 2>/dev/null && { [ -z "$(left_overs)" ] || [ "$(left_overs)" = "$old" ]; }; do sleep 0.02; done
    sleep "$((RANDOM % 3)).$((RANDOM % 10))"
  else
    sleep "$((RANDOM % 6)).$((RANDOM % 10))"
  fi
  kill -KILL "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
  case $? in
    137) [ -n "$(left_overs)" ] && in_saves=$((in_saves + 1)) ;;
    0) finished=$((finished + 1)) ;;
    *) tail -n 5 killed.log; bad=1 ;;
  esac
  # The run went on from the newest that was there, and nothing was lost.
  if [ -n "$before" ] && ! grep -q -e "resumed .*${before##*/}" killed.log && grep -q 'started from random' killed.log; then
    echo "$before was there, but the run began anew"
    bad=1
  fi
  after=$(newest)
  if [ -n "$before" ] && [[ "$after" < "$before" ]]; then
    echo "$before became ${after:-nothing}"
    bad=1
  fi
  if [ -n "$after" ] && ! "$planalto" inspect "$after" >inspect.txt 2>&1; then
    cat inspect.txt
    bad=1
  fi
  if [ "$finished" = 1 ]; then # begin anew: a finished run has no save to be killed in
    diff -r whole/checkpoints killed/checkpoints || bad=1
    rm -rf killed
    finished=0
  fi
done
[ "$bad" = 0 ]
verdict $? "C085 1 GB: killed $kills times, $in_saves of them in a save, the newest checkpoint is whole each time"
"$planalto" train run.toml --set output.dir=killed >killed.log 2>&1 && diff -r whole/checkpoints killed/checkpoints
verdict $? "C085 1 GB: in the end the run that was not killed"
[ -z "$(left_overs)" ]
verdict $? "C085 1 GB: nothing of the killed saves is left"
exit "$failed"
