#!/usr/bin/env bash
# All C, C++ and CUDA sources are as clang-format 14 leaves them. Other versions format a little
# differently, so with none but those the check is skipped (status 77) instead of failing.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

find_clang_format() {
  local name
  for name in clang-format-14 clang-format; do
    if [[ $("$name" --version 2>/dev/null) == *"version 14."* ]]; then
      printf '%s\n' "$name"
      return
    fi
  done
  printf 'format: skipped: clang-format 14 is not installed\n' >&2
  exit 77
}

tool=$(find_clang_format)
folders=()
for folder in include src transport collectives cuda perf tests tools; do
  [[ -d $folder ]] && folders+=("$folder")
done
find "${folders[@]}" \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.c' \
  -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 "$tool" --dry-run -Werror
