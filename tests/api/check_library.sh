#!/usr/bin/env bash
# The shared library exports pith* only, needs what every C++ program has, and loads with every
# symbol bound.
# Usage: check_library.sh LIBRARY
set -euo pipefail
library=$1

strangers=$(nm -D --defined-only "$library" | awk '$3 !~ /^pith[A-Z]/ { print $3 }')
if [[ -n $strangers ]]; then
  printf 'exported, but not of the API:\n%s\n' "$strangers" >&2
  exit 1
fi

header=$(dirname "$0")/../../include/pith/pith.h
declared=$(grep -oE '\bpith[A-Z][A-Za-z]*\(' "$header" | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort -u)
if ! diff <(printf '%s\n' "$declared") <(printf '%s\n' "$exported"); then
  echo 'the header declares < and the library exports >' >&2
  exit 1
fi

"$(dirname "$0")/check_needed.sh" "$library"
python3 - "$library" <<'PYTHON'
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL)
version = ctypes.c_int(0)
assert library.pithGetVersion(ctypes.byref(version)) == 0 and version.value > 0
PYTHON
