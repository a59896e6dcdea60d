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
for isa in $isas; do
  report "verify: mxfp8 $isa, blocks by rows and by columns, element tables, 1 and 2 threads" "$(
    export PLANALTO_ISA=$isa
    for threads in 1 2; do
      all_pass verify $golden/mxfp8/mxfp8_blocks.jsonl --threads $threads
      tail -n 1 "$scratch/out" | grep -q '^verify: 16 passed' || tail -n 1 "$scratch/out"
    done
    all_pass verify $golden/mxfp8
    tail -n 1 "$scratch/out" | grep -q '^verify: 24 passed' || tail -n 1 "$scratch/out")"
done
report "verify: a changed scale or code of a block fails, by rows and by columns" "$(
  sed '7s/"scale":[0-9]*/"scale":3/; 9s/"out":\[[0-9]*/"out":[255/' $golden/mxfp8/mxfp8_blocks.jsonl >"$scratch/blocks.jsonl"
  run 1 verify "$scratch/blocks.jsonl" && has out 'line 7' 'line 9, element 0' 'expected 0xff'
  tail -n 1 "$scratch/out" | grep -q '^verify: 12 passed, 4 failed$' || tail -n 1 "$scratch/out")"
report "verify: lines that are no MXFP8 block, tables of another size" "$(
  bad() { sed "3$1" $golden/mxfp8/mxfp8_blocks.jsonl >"$scratch/blocks.jsonl"; shift; run 3 verify "$scratch/blocks.jsonl" && has err 'blocks.jsonl:3' "$@"; }
  bad 's/"e5m2"/"e5m3"/' 'format is "e5m3"' 'e4m3, e5m2'
  bad 's/"floor"/"ceil"/' 'scale_mode is "ceil"' 'floor, rceil'
  bad 's/"00000000",//' 'in has 31 elements'
  bad 's/"out":\[0/"out":[256/' 'out is 256' '0 to 255'
  bad 's/"in":\["0/"in":["x/' 'hex digits'
  bad 's/"scale":/"scales":/' 'scale'
  bad 's/}$//' ''
  head -c 65535 $golden/mxfp8/bf16_to_e4m3.bin >"$scratch/bf16_to_e4m3.bin"
  run 3 verify "$scratch/bf16_to_e4m3.bin" && has err '65535' '65536'
  mkdir "$scratch/nothing"
  run 3 verify "$scratch/nothing" && has err 'no model case' 'MXFP8')"
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
