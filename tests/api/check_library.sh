#!/usr/bin/env bash
# The shared library exports what the header declares, which is what exported.txt lists, each name
# with the version of its soname; it needs what every C++ program has, and loads with every symbol
# bound.
# Usage: check_library.sh LIBRARY
set -euo pipefail
library=$1

headers=$(dirname "$0")/../../include/pith
declared=$(grep -ohE '\bpith[A-Z][A-Za-z]*\(' "$headers"/*.h | tr -d '(' | sort -u)
# The version itself is an absolute symbol.
versioned=$(nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort -u)
exported=$(sed 's,@@.*,,' <<<"$versioned")
if ! diff <(printf '%s\n' "$declared") <(printf '%s\n' "$exported"); then
  echo 'the headers declare < and the library exports >' >&2
  exit 1
fi
soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
if grep -v "@@PITH_${soname#libpith.so.}\$" <<<"$versioned" >&2; then
  echo "expected the version PITH_N of libpith.so.N ($soname): see src/api/pith.map" >&2
  exit 1
fi
"$(dirname "$0")/check_exported.sh" "$library" "$(dirname "$0")/exported.txt" <<<"$exported"

"$(dirname "$0")/check_needed.sh" "$library"
python3 - "$library" <<'PYTHON'
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL)
version = ctypes.c_int(0)
assert library.pithGetVersion(ctypes.byref(version)) == 0 and version.value > 0
PYTHON
