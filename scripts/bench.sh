#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: bench.sh BUILD_DIR
# Peaks and kernels of this machine and their roofline, then whole training steps, as shares of the peak measured in the same run.
set -euo pipefail
build=${1:?usage: bench.sh BUILD_DIR}
cd "$(dirname "$0")/.."
"$build/planalto" bench
echo
"$build/bench/stream_bench" --json "$build/stream.json"
echo
"$build/bench/gemm_bench" --only small-moe --json "$build/gemm.json"
echo
"$build/bench/ffn_bench" --only small-moe/t2048 --json "$build/ffn.json"
bench/roofline "$build/gemm.json" "$build/ffn.json" "$build/stream.json" >"$build/roofline.svg"
echo "roofline: $build/roofline.svg"
for threads in 1 "$(nproc)"; do
  echo
  "$build/bench/step_bench" --threads "$threads" --ops
done
