# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of the command line: expect.sh BUILD_DIR. One line a test, "ok - " or "not ok - ", its findings before it.
set -uo pipefail
build=$(cd "$1" && pwd)
planalto=$build/planalto
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
root=$PWD
unset PLANALTO_ISA
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
broken=0
report() {  # report NAME FINDINGS
  if [ -n "$2" ]; then printf '%s\nnot ok - %s\n' "$2" "$1"; broken=1; else echo "ok - $1"; fi
}
# run STATUS ARGUMENTS...: runs the program, keeps its output in $out and $err, prints a finding when the exit status is another.
run() {
  local want=$1 got
  shift
  "$planalto" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
  got=$?
  [ "$got" -eq "$want" ] && return 0
  echo "planalto $*: exit status $got, expected $want"
  head -n 5 "$scratch/out" "$scratch/err"
}
# has FILE TEXT...: a finding for every text that the file lacks.
has() {
  local file=$scratch/$1 text
  shift
  for text in "$@"; do grep -qF -- "$text" "$file" || { echo "not in $(basename "$file"): $text"; cat "$file"; }; done
}
# number KEY FILE: the integer of a "key": value line of pretty JSON, the first one.
number() { sed -n "s/^ *\"$1\": *\\(-\\{0,1\\}[0-9]*\\),\\{0,1\\}\$/\\1/p" "$2" | head -n 1; }
