#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: docs_test.sh BUILD_DIR
# What the documents show exists: commands with their options, make targets, files, links; and every command stands in docs/cli.md.
# shellcheck source=tests/app/expect.sh
source "$(dirname "$0")/expect.sh" "${1:?usage: docs_test.sh BUILD_DIR}"
documents=(README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md docs/*.md)

# Lines that begin with "planalto", in code blocks or as `code`; prose about "planalto" has no such form.
shown() { { grep -hoE '^(\$ )?planalto .*' "${documents[@]}"; grep -hoE '`planalto [^`]*`' "${documents[@]}" | tr -d '`'; } | sed 's/^\$ //' | sort -u; }
report "docs: every command shown exists, with its options" "$(
  [ "$(shown | wc -l)" -ge 10 ] || echo "only $(shown | wc -l) commands found in the documents"
  shown | while read -r line; do
    # shellcheck disable=SC2086
    set -- $(printf '%s' "${line%%#*}" | sed 's/"[^"]*"/TEXT/g; s/[][|]/ /g')
    shift
    case ${1:-} in --version | --help | COMMAND) continue ;; esac
    path=$1
    [ "$path" = tokenizer ] && case ${2:-} in train | encode | decode) path="$1 $2" ;; esac
    # shellcheck disable=SC2086
    help=$("$planalto" $path --help 2>/dev/null) || { echo "no command: $line"; continue; }
    for word in "$@"; do
      case $word in --*) printf '%s' "$help" | grep -qE -- "(^|[ ,])${word%%=*}([ ,]|\$)" || echo "no option $word: $line" ;; esac
    done
  done)"
report "docs: docs/cli.md names every command and every option" "$(
  for path in train plan generate eval export verify 'tokenizer train' 'tokenizer encode' 'tokenizer decode' inspect doctor bench; do
    grep -q "planalto $path" docs/cli.md || echo "docs/cli.md: no planalto $path"
    # shellcheck disable=SC2086
    for option in $("$planalto" $path --help | grep -oE '^  (-[a-z],)?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
      [ "$option" = --help ] || awk -v head="## planalto ${path%% *}" -v option="\`$option" '
        /^## / { inside = index($0, head) == 1 } inside && index($0, option) { found = 1 } END { exit !found }' docs/cli.md || echo "docs/cli.md: $path: no $option"
    done
  done)"
report "docs: make targets exist" "$(grep -hoE '(^|`)make [a-z-]+' "${documents[@]}" | sed 's/^`//' | sort -u | while read -r _ target; do
    grep -qE "^$target:" Makefile || echo "no make target $target"
  done)"
report "docs: links and named files exist" "$(for d in "${documents[@]}"; do
    grep -oE '\]\([^)#:]+\)' "$d" | tr -d '])(' | while read -r link; do [ -e "$(dirname "$d")/$link" ] || echo "$d: no $link"; done
    grep -oE '`(src|tests|docs|scripts|cmake|examples|bench)/[A-Za-z0-9_./-]+`' "$d" | tr -d '`' | grep -v '/X[._]' | while read -r f; do [ -e "$f" ] || echo "$d: no $f"; done
    # ARCHITECTURE.md names files below src/ without it.
    [ "$d" != ARCHITECTURE.md ] || grep -oE '`[a-z]+/[a-z_]+(/[a-z_]+)*\.(cpp|h)`' "$d" | tr -d '`' | while read -r f; do [ -e "src/$f" ] || [ -e "$f" ] || echo "$d: no src/$f"; done
  done)"
report "docs: the first command of the README stands before line 20" "$(awk '/^make quickstart$/ && NR < 20 { found = 1 } END { if (!found) print "README.md" }' README.md)"
report "docs: tests that docs/testing.md names exist" "$([ ! -f docs/testing.md ] || grep -oE '`[A-Z][A-Za-z]+\.[A-Z][A-Za-z0-9]+`' docs/testing.md | tr -d '`' | sort -u | while IFS=. read -r suite name; do
    grep -rqE "(TEST|TEST_F|TEST_P)\($suite, *$name\)" tests || echo "docs/testing.md: no test $suite.$name"
  done)"
exit $broken
