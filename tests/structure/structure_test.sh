#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: structure_test.sh [BUILD_DIR]
# The rules that no compiler checks. One line a rule, "ok - " or "not ok - ", the findings of a broken rule before it.
# With BUILD_DIR (a finished build) the objects of the instruction sets are looked at too.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=${1:-}
broken=0
report() {  # report NAME FINDINGS
  if [ -n "$2" ]; then printf '%s\nnot ok - %s\n' "$2" "$1"; broken=1; else echo "ok - $1"; fi
}
sources() { find src include tests bench examples \( -name '*.h' -o -name '*.cpp' \) 2>/dev/null | sort; }
includes() { find src -name '*.h' -o -name '*.cpp' | sort | xargs grep -HoE '^ *# *include *["<][^">]+[">]'; }

# Top row first; folders of one row may include each other.
rows='app
verify
train infer
cluster
model
parallel offload
ops
moe
formats
runtime
comm
program
kernels
base'
report "structure: includes point down the table of folders" "$(includes | awk -v rows="$rows" '
  BEGIN { n = split(rows, row, "\n"); for (i = 1; i <= n; i++) { m = split(row[i], f, " "); for (j = 1; j <= m; j++) level[f[j]] = i } }
  {
    colon = index($0, ":"); file = substr($0, 1, colon - 1); split(file, part, "/")
    path = $0; sub(/^[^"<]*["<]/, "", path); sub(/[">]$/, "", path)
    from = part[2]; slash = index(path, "/"); to = slash ? substr(path, 1, slash - 1) : ""
    if (!(from in level)) { if (!seen[from]++) print file ": src/" from " is not in the table" }
    else if ($0 ~ /"/ && !(to in level)) print file ": \"" path "\" does not name a folder of src/"
    else if ((to in level) && level[to] < level[from]) print file ": " from " may not include " path
  }')"
report "structure: reference bodies are for tests, ISA bodies for kernels" "$(includes |
  grep -E '"kernels/(ref|cpu)/' | grep -vE '^src/kernels/(ref/.*"kernels/ref/|cpu/.*"kernels/cpu/|[^/]*:.*"kernels/cpu/)')"
report "structure: a heavy header stays behind its wall" "$(includes | grep -E '<(toml\+\+|nlohmann/|CLI/|hwloc|pcre2|utf8proc|liburing)' |
  grep -vE '^src/base/toml\.cpp:.*toml|^src/base/json\.cpp:.*nlohmann|^src/app/.*CLI|^src/base/.*hwloc|^src/formats/.*(pcre2|utf8proc)|^src/(runtime|base)/.*liburing')"

report "structure: every file begins with its licence" "$({ sources; find scripts tests .ci -name '*.sh' -o -path '.ci/*' -type f; } |
  sort -u | while read -r f; do head -n 2 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$f"; done)"
report "structure: no file over 600 lines (kernel bodies 900)" "$(sources | xargs wc -l | awk '
  $2 != "total" { limit = $2 ~ /^src\/kernels\/cpu\// ? 900 : 600; if ($1 > limit) print $2 ": " $1 " lines, limit " limit }')"
report "structure: no folder or file without a subject" "$(find src include tests bench examples 2>/dev/null |
  grep -iE '/(utils?|common|core|helpers?|misc)(/|\.[a-z]+$|$)')"

# A function begins at a line of column 0 (or 2, inside a class) that has a parenthesis and ends with "}" in the same column.
report "structure: no function much over 60 lines" "$(find src -name '*.h' -o -name '*.cpp' | sort | xargs awk '
  FNR == 1 { start0 = start2 = in_class = 0 }
  /^(namespace|extern "C")/ { next }
  /^(class|struct|template.*struct) .*\{$/ { in_class = 1; start0 = 0; next }
  /^[A-Za-z_\[]/ && !/^(using|enum|typedef|public:|private:|protected:)/ { start0 = index($0, "(") ? FNR : 0 }
  /^\};?$/ && in_class { in_class = 0; next }
  /^\}$/ { if (start0 && FNR - start0 + 1 > 66) print FILENAME ":" start0 ": " FNR - start0 + 1 " lines"; start0 = 0 }
  in_class && /^  [A-Za-z_\[]/ { start2 = index($0, "(") ? FNR : 0 }
  in_class && /^  \}$/ { if (start2 && FNR - start2 + 1 > 66) print FILENAME ":" start2 ": " FNR - start2 + 1 " lines"; start2 = 0 }')"

# A header that its own .cpp includes first is proven by the build.
alone() {
  body=${1%.h}.cpp
  [ -f "$body" ] && [ "$(grep -m 1 -E '^#include' "$body")" = "#include \"${1#src/}\"" ] && return 0
  printf '#include "%s"\n' "${1#src/}" |
    ${CXX:-g++} -std=c++20 -fsyntax-only -Wall -Wextra -Isrc -Iinclude -DPLANALTO_ISA_NS=avx2 -march=x86-64-v3 -x c++ - 2>&1 | grep -m 2 -E 'error' |
    sed "s|^|$1: |"
}
export -f alone
report "structure: headers compile alone" "$(find src include -name '*.h' 2>/dev/null | sort | xargs -n 1 -P "$(nproc)" bash -c 'alone "$0"')"

if [ -n "$build" ]; then
  objects=$(find "$build" -path '*planalto_kernels_*' -name '*.o' | sort)
  if [ -z "$objects" ]; then
    report "structure: objects of an instruction set define no weak symbol" "no objects below $build"
  else
    report "structure: objects of an instruction set define no weak symbol" "$(echo "$objects" | xargs nm -C -A --defined-only |
      grep -E ' [WVu] ')"
  fi
fi
exit $broken
