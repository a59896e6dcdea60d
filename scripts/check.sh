#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: check.sh BUILD_DIR   (configured, with compile_commands.json): clang-format, clang-tidy, structure rules. Exit 1 on any finding.
set -uo pipefail
build=${1:?usage: check.sh BUILD_DIR}
cd "$(dirname "$0")/.." || exit 1
failures=0
folders=()
for folder in src include tests bench examples; do [ -d "$folder" ] && folders+=("$folder"); done

echo "clang-format"
find "${folders[@]}" \( -name '*.h' -o -name '*.cpp' \) -print0 | xargs -0 -r clang-format --dry-run -Werror || failures=$((failures + 1))

echo "clang-tidy"
# A kernel body stands in compile_commands.json once per instruction set: clang-tidy looks at each file once here.
grep -o '"file": "[^"]*"' "$build/compile_commands.json" | cut -d'"' -f4 | sort -u | grep -v "/$build/" |
  xargs -r -n 1 -P "${JOBS:-$(nproc)}" clang-tidy -p "$build" --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option 2>/dev/null || failures=$((failures + 1))

echo "structure"
tests/structure/structure_test.sh "$build" || failures=$((failures + 1))

if [ "$failures" -gt 0 ]; then echo "check: $failures of 3 parts failed"; exit 1; fi
echo "check: clean"
