#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: verify_test.sh BUILD_DIR
# Reference vectors through `planalto verify`: every case, both configs, 1 and 2 threads, every instruction set; counts of published models.
# shellcheck source=tests/app/expect.sh
source "$(dirname "$0")/expect.sh" "${1:?usage: verify_test.sh BUILD_DIR}"
golden=tests/golden
isas=$("$planalto" doctor --json | sed -n 's/^ *"isas": "\(.*\)",$/\1/p' | tr -d ',')
all_pass() { run 0 "$@"; tail -n 1 "$scratch/out" | grep -qE '^verify: [1-9][0-9]* passed, 0 failed$' || { echo "planalto $*"; tail -n 3 "$scratch/out"; }; }

for isa in $isas; do
  for model in deepseek_v3-a deepseek_v3_mtp-a qwen3_moe-a glm4_moe-a; do
    for config in config.json config_v5.json; do
      report "verify: $model $config $isa, 1 and 2 threads, recompute" "$(
        export PLANALTO_ISA=$isa
        for threads in 1 2; do all_pass verify $golden/$model --config $config --threads $threads; done
        all_pass verify $golden/$model --config $config --threads 2 --recompute)"
    done
  done
  report "verify: routing.safetensors $isa" "$(PLANALTO_ISA=$isa all_pass verify $golden/routing/routing.safetensors)"
done
report "verify: rope.json" "$(all_pass verify $golden/rope/rope.json)"
for vectors in "$golden"/tokenizers/small/*.jsonl; do
  name=$(basename "$vectors" .jsonl)
  case $name in llama2*) continue ;; esac
  report "verify: tokenizer vectors $name" "$(all_pass verify "$vectors" --tokenizer "$golden/tokenizers/small/${name%.decode}.tokenizer.json")"
done
report "verify: a changed weight fails, with status 1" "$(
  cp -r $golden/qwen3_moe-a "$scratch/case"
  size=$(stat -c %s "$scratch/case/model.safetensors")
  # The upper half of an fp32 weight near the end of the file.
  printf '\x40\x41' | dd of="$scratch/case/model.safetensors" bs=1 seek=$((size - 402)) conv=notrunc status=none
  run 1 verify "$scratch/case" --threads 1 && has out FAIL
  tail -n 1 "$scratch/out" | grep -qE ', [1-9][0-9]* failed$' || tail -n 1 "$scratch/out")"

for model in "$golden"/configs/*/; do
  name=$(basename "$model")
  report "plan: counts of $name equal counts.json" "$(
    run 0 plan --model "$model" --json
    sed -n "/\"$name\": {/,/}/p" $golden/configs/counts.json | sed -n 's/^ *"\([a-z_]*\)": *\([0-9]*\),\{0,1\}$/\1 \2/p' >"$scratch/counts"
    [ "$(wc -l <"$scratch/counts")" -ge 8 ] || echo "only $(wc -l <"$scratch/counts") keys of $name in counts.json"
    while read -r key count; do
      [ "$(number "$key" "$scratch/out")" = "$count" ] || echo "$key: $(number "$key" "$scratch/out"), expected $count"
    done <"$scratch/counts")"
done
exit $broken
