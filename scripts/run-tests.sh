#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: run-tests.sh BUILD_DIR [ctest arguments]
# Runs every test of the build and prints, last, "N passed, M failed": GoogleTest cases and "ok - "/"not ok - " lines of the script
# tests, each counted once. A test program that dies counts the case it was in (or itself) as failed. Exit 1 when any failed.
set -uo pipefail
build=${1:?usage: run-tests.sh BUILD_DIR [ctest arguments]}
shift
log=$build/test-output.txt
ctest --test-dir "$build" -V -j "${JOBS:-$(nproc)}" --timeout 900 "$@" 2>&1 | tee "$log" |
  grep --line-buffered -E '^ *[0-9]+/[0-9]+ Test +#|^No tests were found|^CMake Error'

# Lines of ctest -V begin with "<number of the test>: ".
awk '
function tail_of(id,   i, from) {
  from = lines[id] > 40 ? lines[id] - 40 : 1
  for (i = from; i <= lines[id]; i++) print "    " text[id, i]
}
function show(id, from,   i) {
  for (i = from; i <= lines[id]; i++) print "    " text[id, i]
}
match($0, /^[0-9]+: /) {
  id = substr($0, 1, RLENGTH - 2) + 0
  line = substr($0, RLENGTH + 1)
  text[id, ++lines[id]] = line
  if (line ~ /^\[ RUN      \] /) { running[id] = substr(line, 14); began[id] = lines[id] }
  else if (line ~ /^\[       OK \] /) { passed++; own[id]++; running[id] = "" }
  else if (line ~ /^\[  SKIPPED \] .*ms\)$/) { skipped++; own[id]++; running[id] = "" }
  else if (line ~ /^\[  FAILED  \] .*ms\)$/ && running[id] != "") {
    failed++; bad[id]++; own[id]++
    print "FAILED " running[id]; show(id, began[id]); running[id] = ""
  }
  else if (line ~ /^ok - /) { passed++; own[id]++; began[id] = lines[id] + 1 }
  else if (line ~ /^not ok - /) {
    failed++; bad[id]++; own[id]++
    print "FAILED " substr(line, 10); show(id, began[id] ? began[id] : 1); began[id] = lines[id] + 1
  }
  next
}
match($0, /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /) {
  split($0, part, "#"); id = part[2] + 0
  ran++
  if ($0 ~ / Passed +[0-9.]+ sec$/) { if (!own[id]) passed++ }
  else if (!bad[id]) {
    failed++
    print "FAILED " (running[id] != "" ? running[id] " (its program ended inside it)" : "test #" part[2]); tail_of(id)
  }
}
END {
  if (!ran) { print "no test ran"; failed++ }
  if (skipped) print skipped " skipped"
  print passed + 0 " passed, " failed + 0 " failed"
  exit failed > 0
}' "$log"
