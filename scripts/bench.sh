#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: bench.sh BUILD_DIR
# Peaks and kernels of this machine, then whole training steps, as shares of the peak measured in the same run.
set -euo pipefail
build=${1:?usage: bench.sh BUILD_DIR}
"$build/planalto" bench
for threads in 1 "$(nproc)"; do
  echo
  "$build/bench/step_bench" --threads "$threads" --ops
done
