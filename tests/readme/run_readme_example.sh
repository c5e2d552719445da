#!/usr/bin/env bash
# Usage: run_readme_example.sh SOURCE_ROOT LIBRARY_FOLDER
# Compiles the first C block of README.md against the built library and compares its output with
# the text block that follows it.
set -euo pipefail

# block LANGUAGE FILE: the first fenced block of that language.
block() {
  awk -v fence='```' -v language="$1" '
    $0 == fence language { inside = 1; next }
    inside && $0 == fence { exit }
    inside' "$2"
}

root=$1
library=$2
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

block c "$root/README.md" >"$scratch/prog.c"
block text "$root/README.md" >"$scratch/expected"
[[ -s $scratch/prog.c && -s $scratch/expected ]] || {
  printf 'README.md holds no c block or no text block\n' >&2
  exit 1
}
"${CC:-cc}" -std=c99 -Wall -Wextra -Werror "$scratch/prog.c" -o "$scratch/prog" \
  -I"$root/include" -L"$library" -lpith
LD_LIBRARY_PATH=$library "$scratch/prog" | diff "$scratch/expected" -
