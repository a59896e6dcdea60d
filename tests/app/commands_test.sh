#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: commands_test.sh BUILD_DIR
# Every command once on a tiny model and text: exit codes, messages, JSON; settings and prompts that must be refused.
# shellcheck source=tests/app/expect.sh
source "$(dirname "$0")/expect.sh" "${1:?usage: commands_test.sh BUILD_DIR}"
work=$scratch/work
mkdir "$work"

commands='train plan generate eval export verify tokenizer inspect doctor bench'
report "app: the help of every command has an example" "$(for c in $commands 'tokenizer train' 'tokenizer encode' 'tokenizer decode'; do
    # shellcheck disable=SC2086
    run 0 $c --help
    [ "$c" = tokenizer ] || has out "Example: planalto $c"
  done)"
report "app: exit status 64 for a wrong command line, with the nearest name" "$(
  run 64 && has err 'usage error'
  run 64 trian && has err 'there is no command "trian"' 'did you mean train?'
  run 64 train x.toml --print-confg && has err '--print-confg' 'did you mean --print-config?'
  run 64 tokenizer encod && has err 'did you mean encode?'
  run 64 train && has err 'config is required'
  run 64 plan && has err 'needs a run config'
  run 64 bench --threads -1 && has err '--threads'
  run 64 plan a.toml --model b && has err '--model'
  run 0 --version && has out 'planalto 0.'
  run 0 --help)"

# A text, a tokenizer of 300 entries and a run config for a model of two layers.
{ for i in $(seq 400); do echo "the $((i % 7)) sons of the house went out and came in again on day $i"; done; } >"$work/text.txt"
cat >"$work/run.toml" <<TOML
[model]
model_type = "qwen3_moe"
vocab_size = 300
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
head_dim = 8
intermediate_size = 48
moe_intermediate_size = 16
num_experts = 4
num_experts_per_tok = 2
max_position_embeddings = 64
bos_token_id = 0
eos_token_id = 0
[tokenizer]
path = "$work/tokenizer.json"
[data]
train = "$work/text.txt"
document_separator = ""
eval_fraction = 0.1
[train]
seq_len = 32
micro_batch = 2
global_batch = 4
steps = 6
eval_every = 3
threads = 1
[checkpoint]
every = 3
keep = 2
[output]
dir = "$work/run"
TOML
report "app: tokenizer train, encode, decode" "$(
  run 0 tokenizer train "$work/text.txt" --out "$work/tokenizer.json" --vocab-size 300 --special '<|endoftext|>' && has out '300 entries'
  run 0 tokenizer encode "$work/tokenizer.json" 'the sons' --json && has out '"ids"' '"tokens"'
  run 0 tokenizer encode "$work/tokenizer.json" 'the sons of day 3'
  # shellcheck disable=SC2046
  run 0 tokenizer decode "$work/tokenizer.json" $(cat "$scratch/out") && has out 'the sons of day 3'
  run 3 tokenizer decode "$work/tokenizer.json" 300 && has err 'legal: 0 to 299')"
report "app: train reports, evaluates, saves" "$(
  run 0 train "$work/run.toml" && has out 'step 1/6' 'step 6/6' 'step 3 | held-out loss' 'saved' 'a unigram model reaches' 'metrics:'
  [ "$(grep -c eval_loss "$work/run/metrics.jsonl")" -eq 3 ] || cat "$work/run/metrics.jsonl"
  [ -d "$work/run/checkpoints/step-00000006" ] || ls -R "$work/run")"
model=$work/run/checkpoints/step-00000006
report "app: train --print-config, --config-reference" "$(
  run 0 train "$work/run.toml" --print-config --set train.steps=9 && has out 'steps = 9' '--set' 'run.toml:'
  run 0 train --config-reference
  diff "$scratch/out" docs/config.md | head -n 10)"
report "app: --set takes one value and may be repeated, before the config too" "$(
  run 0 train --set train.steps=9 --set train.seq_len=16 "$work/run.toml" --print-config && has out 'steps = 9' 'seq_len = 16')"
report "app: --resume continues, and refuses what is not there" "$(
  run 0 train "$work/run.toml" --resume latest --set train.steps=7 && has out 'resumed' 'at step 6' 'step 7/7'
  rm -rf "$work/run/checkpoints/step-00000007"
  run 2 train "$work/run.toml" --resume "$work/none" && has err 'no such folder'
  run 2 train "$work/run.toml" --resume latest --set "output.dir=$work/empty" && has err 'no complete checkpoint'
  run 2 train "$work/run.toml" --resume "$model" --set train.seed=5 && has err 'train.seed')"
report "app: a signal ends a run with status 75 after a save, and the run resumes" "$(
  "$planalto" train "$work/run.toml" --set train.steps=1000000 --set checkpoint.every=0 --set "output.dir=$work/stopped" \
    --set train.eval_every=0 >"$scratch/out" 2>&1 &
  pid=$!
  for _ in $(seq 600); do grep -q 'step 1/' "$scratch/out" && break; sleep 0.05; done
  kill -TERM "$pid"
  wait "$pid"
  status=$?
  [ "$status" -eq 75 ] || echo "exit status $status, expected 75"
  has out 'stopped by a signal after a save'
  step=$(ls "$work/stopped/checkpoints" | sed 's/step-0*//')
  run 0 train "$work/run.toml" --resume latest --set "output.dir=$work/stopped" --set train.steps=$((step + 1)) --set train.eval_every=0 &&
    has out "at step $step")"
report "app: eval, export, inspect" "$(
  run 0 eval "$model" --data "$work/text.txt" --json && has out '"perplexity"' '"bits_per_byte"'
  run 0 eval "$model" --data "$work/text.txt" && has out 'nats a token'
  run 0 export "$model" "$work/exported" --dtype bf16 && has out 'tensors'
  run 2 export "$model" "$work/exported2" --dtype int8 && has err 'legal: keep, bf16, fp32'
  run 2 export "$model" "$work/exported2" --layout stacked && has err 'legal: keep, per-expert, fused'
  run 0 export "$model" "$work/fused" --layout fused && run 0 inspect "$work/fused" --tensors && has out 'experts.gate_up_proj'
  "$planalto" export "$model" "$work/exported" >/dev/null 2>"$scratch/err" && echo 'an export over a folder that is there passed'
  run 0 export "$model" "$work/exported" --dtype bf16 --replace
  mkdir -p "$work/precious" && echo text >"$work/precious/notes.md" && run 2 export "$model" "$work/precious" --replace &&
    has err 'notes.md' 'remove the folder first' && [ -s "$work/precious/notes.md" ] || echo 'a folder of other files was replaced'
  run 2 export "$model" "$(dirname "$(dirname "$model")")" --replace && has err 'is or lies in'
  run 2 export "$model" "$model" --replace && has err 'is or lies in'
  ln -sfn "$work/exported" "$work/link" && run 2 export "$model" "$work/link" --replace && has err 'symbolic link'
  run 2 eval "$model" --data "$work/text.txt" --seq-len 100000 && has err 'max_position_embeddings'
  cp -r "$model" "$work/flipped" && printf '\377' | dd of="$work/flipped/model.safetensors" bs=1 seek=20001 conv=notrunc status=none
  for c in "eval $work/flipped --data $work/text.txt" "generate $work/flipped --prompt the" "export $work/flipped $work/never"; do
    # shellcheck disable=SC2086
    run 3 $c && has err 'the checkpoint is damaged' 'model.safetensors'
  done
  run 0 inspect "$model" --json && has out '"problems"'
  run 0 inspect "$work/exported" --tensors && has out 'no problems' 'model.embed_tokens.weight'
  run 0 inspect "$work/run.toml" && has out 'text file'
  head -c 100 "$model/model.safetensors" >"$work/cut.safetensors"
  "$planalto" inspect "$work/cut.safetensors" >/dev/null 2>&1 && echo "a cut file passed"
  true)"
report "app: doctor" "$(run 0 doctor && has out 'instructions' 'cores' 'memory' 'PLANALTO_ISA'
  run 0 doctor --json && has out '"profile"' '"environment"'
  PLANALTO_ISA=avx2 run 0 doctor && has out 'PLANALTO_ISA names it'
  PLANALTO_ISA=sse2 run 2 doctor && has err 'legal: avx2, avx512, avx512_bf16')"
report "app: bench" "$(run 0 bench --repeats 1 --threads 1 --json && has out '"flops_per_second"' '"bytes_per_second"' '"of_peak"')"

generate() { run 0 generate "$model" --prompt 'the sons of' --max-tokens 12 --threads 1 --json --ignore-eos "$@" && grep '"text"' "$scratch/out"; }
greedy=$(generate)
report "app: C101 temperature 0 is greedy, tiny is greedy, top-k 1 is greedy" "$(
  case $greedy in *'"text"'*) ;; *) echo "$greedy" ;; esac
  for options in '--temperature 0' '--temperature 1e-30' '--temperature 1e-4' '--temperature 1 --top-k 1' '--temperature 1 --top-p 1e-9'; do
    # shellcheck disable=SC2086
    [ "$(generate $options)" = "$greedy" ] || echo "$options: $(cat "$scratch/out" "$scratch/err")"
  done
  generate --temperature 1 --top-k 999999 >/dev/null || cat "$scratch/err"
  a=$(generate --temperature 1 --seed 3) b=$(generate --temperature 1 --seed 3)
  [ "$a" = "$b" ] || echo "the same seed gave $a and $b")"
report "app: C101 impossible sampling is refused" "$(
  for options in '--temperature -1' '--temperature nan' '--top-p 0' '--top-p 1.5' '--top-p -1' '--top-k -1'; do
    # shellcheck disable=SC2086
    "$planalto" generate "$model" --prompt x $options >"$scratch/out" 2>"$scratch/err"
    status=$?
    case $status in 2 | 64) ;; *) echo "$options: exit status $status: $(cat "$scratch/err")" ;; esac
  done)"
# Each digit of this tokenizer is a token of its own: a prompt of n digits has n tokens, at most.
prompt_of() {
  local text='' ids
  while true; do
    ids=$("$planalto" tokenizer encode "$work/tokenizer.json" "$text" | wc -w)
    [ "$ids" -ge "$1" ] && break
    text="${text}Z"
  done
  printf '%s' "$text"
}
report "app: C102 prompts of 0, 63, 64 and 65 tokens against a context of 64" "$(
  run 0 generate "$model" --prompt '' --max-tokens 2 --json --ignore-eos && { [ "$(number prompt_tokens "$scratch/out")" = 1 ] || echo 'empty: not the BOS alone'; }
  run 0 generate "$model" --prompt "$(prompt_of 63)" --max-tokens 100 --json --ignore-eos && has out '"finish_reason": "length"' '"prompt_tokens": 63'
  for n in 64 65; do run 2 generate "$model" --prompt "$(prompt_of $n)" --max-tokens 100 && has err "has $n tokens" 'holds 64'; done)"

report "app: C098 several mistakes stand in one message, with lines and nearest keys" "$(
  sed -e 's/^steps = 6/steps = "six"/' -e 's/^seq_len/max_len/' -e 's/^every = 3/every = -1/' -e 's/^keep = 2/kepe = 2/' "$work/run.toml" >"$work/bad.toml"
  for c in train plan; do
    run 2 $c "$work/bad.toml" && has err "bad.toml:$(grep -n '^steps' "$work/bad.toml" | cut -d: -f1)" 'seq_len' 'checkpoint.every' 'keep'
  done
  run 2 train "$work/run.toml" --set train.micro_batch=3 && has err 'global_batch'
  run 4 train "$work/none.toml")"

profile() { printf '{"name": "another machine", "isa": "%s", "cores": %s, "memory_bytes": %s}\n' "$1" "$2" "$3" >"$work/profile.json"; }
report "app: plan prints terms that add up, in text and JSON" "$(
  run 0 plan "$work/run.toml" --all && has out 'weights' 'optimizer states' 'it fits' 'peak at op'
  run 0 plan "$work/run.toml" --json
  sum=0
  for n in $(sed -n '/"terms": {/,/}/s/^ *"[^"]*": \([0-9]*\),\{0,1\}$/\1/p' "$scratch/out"); do sum=$((sum + n)); done
  [ "$sum" -eq "$(number device_bytes "$scratch/out")" ] || echo "terms add up to $sum: $(number device_bytes "$scratch/out")")"
report "app: C106 plan shows in what gradients are summed" "$(
  run 0 plan "$work/run.toml" --set train.precision=bf16 && has out 'gradients are summed in f32'
  run 0 plan "$work/run.toml" --set train.precision=bf16 --json && has out '"gradient_dtype": "f32"')"
report "app: plan for a machine that is not here" "$(
  profile avx512_bf16 64 1099511627776
  run 0 plan "$work/run.toml" --set train.threads=0 --profile "$work/profile.json" && has out 'another machine' 'avx512_bf16' '64 threads' '1024.00 GiB'
  profile avx2 4 100000000
  run 5 plan "$work/run.toml" --profile "$work/profile.json" && has out 'it does not fit' && has err 'profile.json'
  profile sparc 4 1000000
  run 2 plan "$work/run.toml" --profile "$work/profile.json" && has err 'legal: avx2')"
report "app: over budget, plan and train refuse, and the setting that they name fits" "$(
  run 0 plan "$work/run.toml" --json --set train.micro_batch=4
  all=$(number total_bytes "$scratch/out")
  run 0 plan "$work/run.toml" --json --set train.micro_batch=4 --set train.recompute=true
  less=$(number total_bytes "$scratch/out")
  [ "$less" -lt "$all" ] || echo "recompute needs $less, without it $all"
  budget="--set memory.device_budget=$(((all + less) / 2)) --set train.micro_batch=4 --set output.dir=$work/budget"
  for c in plan train; do
    # shellcheck disable=SC2086
    run 5 $c "$work/run.toml" $budget && has err 'memory.device_budget' 'Largest terms' 'train.recompute = true'
  done
  # shellcheck disable=SC2086
  run 0 plan "$work/run.toml" $budget --set train.recompute=true && has out 'it fits'
  run 5 plan "$work/run.toml" --set memory.device_budget=1MiB && has err 'No smaller batch fits')"

report "app: C035 no TMPDIR, launcher variables, a read-only TMPDIR" "$(
  for c in 'doctor' "plan $work/run.toml" "inspect $model" "eval $model --data $work/text.txt" "verify tests/golden/rope/rope.json" \
    "train $work/run.toml --set output.dir=$work/launcher"; do
    for environment in 'SLURM_JOB_ID=1 SLURM_NTASKS=8 SLURM_PROCID=3 OMPI_COMM_WORLD_SIZE=4 PMI_RANK=2' 'TMPDIR=/proc' 'HOSTNAME=no.such.host.invalid'; do
      # shellcheck disable=SC2086
      rm -rf "$work/launcher" && env -u TMPDIR -u HOME $environment "$planalto" $c >"$scratch/out" 2>"$scratch/err" || echo "$environment planalto $c: $(cat "$scratch/err")"
    done
  done)"
exit $broken
