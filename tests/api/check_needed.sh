#!/usr/bin/env bash
# A library that is preloaded into any program needs what that program has anyway: where another one
# is missing, the loader ignores the library, and where it is there, it comes before the program's.
# Usage: check_needed.sh LIBRARY
set -euo pipefail
library=$1

strangers=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
  grep -vE '^(lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+)|ld-linux-[a-z0-9_-]+)\.so\.[0-9]+$' || true)
if [[ -n $strangers ]]; then
  printf '%s needs libraries that may not be there:\n%s\n' "$library" "$strangers" >&2
  exit 1
fi
