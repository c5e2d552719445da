#!/usr/bin/env bash
# Usage: run_readme_example.sh SOURCE_ROOT LIBRARY_FOLDER
# Compiles every C program in README.md against the built library and compares its output with the
# text block that follows it.
set -euo pipefail

# block N LANGUAGE FILE: the nth fenced block of that language.
block() {
  awk -v n="$1" -v fence='```' -v language="$2" '
    $0 == fence language { inside = ++found == n; next }
    $0 == fence { inside = 0 }
    inside' "$3"
}

root=$1
library=$2
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

programs=$(grep -c '^```c$' "$root/README.md" || true)
((programs > 0)) || {
  printf 'README.md holds no C program\n' >&2
  exit 1
}
for ((n = 1; n <= programs; ++n)); do
  block "$n" c "$root/README.md" >"$scratch/prog.c"
  block "$n" text "$root/README.md" >"$scratch/expected"
  [[ -s $scratch/expected ]] || {
    printf 'C program %s of README.md has no text block\n' "$n" >&2
    exit 1
  }
  "${CC:-cc}" -std=c99 -Wall -Wextra -Werror "$scratch/prog.c" -o "$scratch/prog" \
    -I"$root/include" -L"$library" -lpith
  LD_LIBRARY_PATH=$library "$scratch/prog" | diff "$scratch/expected" -
done
