#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: tools_test.sh
# bench/compare and bench/roofline on results made by hand. Skipped, with a word, where there is no Python.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
if ! command -v python3 >/dev/null; then echo "ok - bench: no python3 here, tools not tested"; exit 0; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
broken=0
report() { if [ -n "$2" ]; then printf '%s\nnot ok - %s\n' "$2" "$1"; broken=1; else echo "ok - $1"; fi; }

# result FILE SHARES: one entry, four rounds with these shares of a peak of 100 GFLOP/s, 1 GFLOP and 10 MB each.
result() {
  cat >"$folder/$1" <<END
{"program": "p", "command": "p", "commit": "c", "date": "2026-01-01T00:00:00Z", "cpu": "x", "isa": "avx2", "threads": 1, "clock": "wall",
 "peaks": {"f32": 1e11, "update": 2e10}, "entries": [{"name": "m/s f32 forward", "by": "planalto", "bound": "f32", "flops": 1e9, "bytes": 1e7,
 "median_seconds": 0.02, "seconds": [0.02, 0.02, 0.02, 0.02], "dropped": 0, "steady": true, "of_peak": [$2]}]}
END
}
# says BEFORE AFTER WORD [OPTION]: the verdict's word must come.
says() {
  out=$(bench/compare "$folder/$1" "$folder/$2" ${4:+"$4"} 2>&1)
  grep -qE "(%|  )  $3\$" <<<"$out" || echo "$1 $2: not \"$3\": $out"
}
result base.json '0.50, 0.51, 0.52, 0.53'
result little.json '0.51, 0.51, 0.52, 0.53' # median 0.3% up
result up.json '0.60, 0.61, 0.62, 0.63'
result noisy.json '0.40, 0.50, 0.70, 0.90' # median 0.60, half of the quartiles' distance 23%
report "bench: compare tells a change from noise" "$(
  says base.json little.json same
  says base.json up.json FASTER
  says up.json base.json SLOWER
  says base.json noisy.json same
  says base.json up.json same --times # the seconds are equal
)"
report "bench: compare --strict fails on what is slower alone" "$(
  bench/compare "$folder/up.json" "$folder/base.json" --strict >/dev/null && echo "slower: status 0"
  bench/compare "$folder/base.json" "$folder/up.json" --strict >/dev/null || echo "faster: status $?"
)"
echo '{"entries": 3}' >"$folder/odd.json"
report "bench: compare refuses what is no result" "$(
  out=$(bench/compare "$folder/odd.json" "$folder/base.json" 2>&1) && echo "accepted"
  grep -q 'odd.json is not the result' <<<"$out" || echo "$out"
)"
# 1 GFLOP over 10 MB is 100 flop/byte at 50 GFLOP/s; the ridge is at 5.
report "bench: roofline is well-formed and places the entry" "$(
  bench/roofline "$folder/base.json" >"$folder/r.svg" && python3 -c "import sys, xml.dom.minidom as m; m.parse(sys.argv[1])" "$folder/r.svg" || echo "no SVG"
  grep -q 'm/s f32 forward, planalto: 50.0 GFLOP/s at 100.0 flop/byte' "$folder/r.svg" || echo "the entry is not there"
)"
exit $broken
