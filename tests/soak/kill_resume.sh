#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: kill_resume.sh PLANALTO KILLS STOPS STEPS
# One tiny run of STEPS steps, then the same run killed KILLS times at random moments (C085) and stopped STOPS times by signals
# (C094): the last checkpoint and the metrics must equal those of the uninterrupted run, byte for byte but for the times.
set -uo pipefail
planalto=$(realpath "${1:?usage: kill_resume.sh PLANALTO KILLS STOPS STEPS}")
kills=$2 stops=$3 steps=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
verdict() { # verdict STATUS NAME
  if [ "$1" = 0 ]; then echo "ok - $2"; else echo "not ok - $2"; failed=1; fi
}

RANDOM=7
words=(in the beginning was word and light on deep waters of many voices he said unto them go up to mountain see)
for _ in $(seq 600); do
  line=
  for _ in $(seq $((3 + RANDOM % 9))); do line+="${words[RANDOM % ${#words[@]}]} "; done
  echo "$line"
done >text.txt
"$planalto" tokenizer train text.txt --out tokenizer.json --vocab-size 300 --special '<|end|>' >log.txt 2>&1 ||
  { cat log.txt; verdict 1 "a tokenizer for the killed runs"; exit 1; }
cat >run.toml <<'T'
[model]
model_type = "deepseek_v3"
vocab_size = 304
hidden_size = 32
num_hidden_layers = 2
first_k_dense_replace = 1
intermediate_size = 48
num_attention_heads = 2
num_key_value_heads = 2
kv_lora_rank = 16
qk_nope_head_dim = 8
qk_rope_head_dim = 8
v_head_dim = 8
n_routed_experts = 4
num_experts_per_tok = 2
moe_intermediate_size = 16
n_shared_experts = 1
n_group = 1
topk_group = 1
topk_method = "noaux_tc"
scoring_func = "sigmoid"
norm_topk_prob = true
routed_scaling_factor = 1.0
max_position_embeddings = 32
num_nextn_predict_layers = 1
eos_token_id = 0
[tokenizer]
path = "tokenizer.json"
[data]
train = "text.txt"
eval_fraction = 0.05
document_separator = ""
[train]
seq_len = 16
micro_batch = 2
global_batch = 4
precision = "bf16"
eval_every = 50
log_every = 1
threads = 1
[optimizer]
learning_rate = 3e-3
warmup_steps = 20
[checkpoint]
every = 7
keep = 2
resume = "auto"
T
train() { "$planalto" train run.toml --set train.steps="$steps" --set output.dir="$1" >>"$1.log" 2>&1; }
fail_with_log() {
  tail -n 5 "$1.log"
  verdict 1 "$2"
  exit 1
}
# The metrics without what a clock says.
untimed() { sed -E 's/"(seconds|[a-z_]*per_second)":[^,}]*//g' "$1/metrics.jsonl"; }
last=$(printf 'step-%08d' "$steps")
same_as_whole() { # same_as_whole RUN
  diff -r "whole/checkpoints/$last" "$1/checkpoints/$last" && diff <(untimed whole) <(untimed "$1")
}

train whole || fail_with_log whole "the uninterrupted run of $steps steps"
same_as_whole whole
verdict $? "the uninterrupted run of $steps steps"

# cut RUN SIGNAL [twice]: starts or continues the run and sends the signal up to 30 ms after it has reported a random step (at times
# at once, before the first step).
cut() {
  local newest at target pid seen
  newest=$(find "$1/checkpoints" -name 'step-*' 2>/dev/null | sort | tail -n 1)
  at=$((10#0${newest##*step-}))
  target=$((at + RANDOM % (steps / 8 + 2)))
  "$planalto" train run.toml --set train.steps="$steps" --set output.dir="$1" >"$1.log" 2>&1 &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    [ "$target" = "$at" ] && break
    seen=$(tail -n 4 "$1.log" | sed -n 's|^step \([0-9]*\)/.*|\1|p' | tail -n 1)
    [ "${seen:-0}" -ge "$target" ] && break
    sleep 0.01
  done
  sleep "0.0$((RANDOM % 3))$((RANDOM % 10))"
  kill -s "$2" "$pid" 2>/dev/null
  [ "${3:-}" = twice ] && kill -s "$2" "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
}
whole_checkpoints() { # every checkpoint that stands there is whole
  local folder
  for folder in "$1"/checkpoints/step-*; do
    [ -d "$folder" ] || continue
    "$planalto" inspect "$folder" >inspect.txt 2>&1 || { cat inspect.txt; return 1; }
  done
}

left_overs() { find killed/checkpoints -name '.planalto*' -prune 2>/dev/null | sort; }
done_kills=0 in_saves=0 round=0 bad=0
while [ "$done_kills" -lt "$kills" ] && [ "$round" -lt $((kills * 4)) ]; do
  round=$((round + 1))
  before=$(left_overs)
  cut killed KILL
  status=$?
  if [ "$status" = 137 ]; then
    done_kills=$((done_kills + 1))
    after=$(left_overs)
    if [ -n "$after" ] && [ "$after" != "$before" ]; then in_saves=$((in_saves + 1)); fi
    whole_checkpoints killed || bad=1
  elif [ "$status" = 0 ]; then # finished before the signal: compare, then begin anew
    same_as_whole killed || bad=1
    rm -rf killed killed.log
  else
    fail_with_log killed "C085 a killed run: status $status"
  fi
done
train killed || fail_with_log killed "C085 going on after $done_kills kills"
same_as_whole killed && [ "$bad" = 0 ] && [ "$done_kills" = "$kills" ]
verdict $? "C085 killed $done_kills times, $in_saves of them in a save: the same run"
[ -z "$(left_overs)" ]
verdict $? "C085 nothing of the killed saves is left"

done_stops=0 round=0 bad=0
signals=(TERM INT USR1)
while [ "$done_stops" -lt "$stops" ] && [ "$round" -lt $((stops * 6)) ]; do
  round=$((round + 1))
  twice=
  [ $((round % 4)) = 0 ] && twice=twice
  cut stopped "${signals[round % 3]}" "$twice"
  status=$?
  case $status in
    75) done_stops=$((done_stops + 1)); whole_checkpoints stopped || bad=1 ;;
    0) same_as_whole stopped || bad=1; rm -rf stopped stopped.log ;;
    130 | 138 | 143) whole_checkpoints stopped || bad=1 ;; # before the first step, or by the second signal
    *) fail_with_log stopped "C094 a stopped run: status $status" ;;
  esac
done
train stopped || fail_with_log stopped "C094 going on after $done_stops stops"
same_as_whole stopped && [ "$bad" = 0 ] && [ "$done_stops" = "$stops" ]
verdict $? "C094 stopped $done_stops times by signals: the same run"
exit "$failed"
