#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: install-packages.sh GROUP...   groups of scripts/packages.txt: build, test, check, quickstart, peers
# Installs the packages of these groups that are missing. Touches neither network nor package lists when none is.
set -euo pipefail
list=$(dirname "$0")/packages.txt
[ $# -gt 0 ] || { echo "usage: $0 GROUP...  (groups: $(awk '!/^#/ && NF {print $1}' "$list" | sort -u | xargs))" >&2; exit 2; }

packages=()
for group in "$@"; do
  mapfile -t of_group < <(awk -v group="$group" '!/^#/ && $1 == group {print $2}' "$list")
  [ ${#of_group[@]} -gt 0 ] || { echo "$0: no package group '$group' in $list" >&2; exit 2; }
  packages+=("${of_group[@]}")
done

if ! command -v dpkg-query >/dev/null; then
  echo "$0: this is no Debian system (dpkg-query is missing). Install the equivalents of these yourself: ${packages[*]}" >&2
  exit 1
fi
missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "$0: missing packages: ${missing[*]}" >&2
    echo "$0: installing them needs root, and there is no sudo. Run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "installing Debian packages: ${missing[*]}"
run() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@"; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { run apt-get update -qq && run apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "$0: apt-get could not install: ${missing[*]} (its last words are above)" >&2
  exit 1
fi
