#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: soak.sh BUILD_DIR
# The tests that need minutes, gigabytes, root or a file system of their own. The last line reads "N passed, M failed".
set -uo pipefail
build=$(realpath "${1:?usage: soak.sh BUILD_DIR}")
cd "$(dirname "$0")/.." || exit 1
log=$build/soak-output.txt
: >"$log"
note() { tee -a "$log"; }
tests/soak/kill_resume.sh "$build/planalto" 50 20 2000 2>&1 | note
tests/soak/kill_big_save.sh "$build/planalto" 20 2>&1 | note
tests/soak/disk_full.sh "$build/planalto" 2>&1 | note
PLANALTO_SOAK=1 "$build/tests/test_kernels" --gtest_filter='GroupedGemm.C018*:GroupedGemm.C019*' 2>&1 | note
PLANALTO_SOAK=1 "$build/tests/test_train" --gtest_filter='TrainingMemory.C042*' 2>&1 | note
scripts/compare-precisions.sh "$build" 2>&1 | note
passed=$(grep -cE '^ok - |^\[       OK \] ' "$log")
failed=$(grep -cE '^not ok - |^\[  FAILED  \] .*ms\)$' "$log")
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
