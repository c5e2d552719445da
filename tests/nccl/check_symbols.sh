#!/usr/bin/env bash
# libnccl.so.2 exports the names of the table and of exported.txt and nothing else, each plain one
# weak over a strong one of the same address; its soname is NCCL's; it needs what every C++ program
# has; it loads with every symbol bound, and loading starts no thread and says nothing; it stays
# when it is closed.
# Usage: check_symbols.sh LIBRARY PROGRAM    (PROGRAM: symbols.c, linked with the library)
set -euo pipefail
library=$1 program=$2

expected=$(LD_BIND_NOW=1 "$program" | sort)
exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort)
if ! diff <(printf '%s\n' "$expected") <(printf '%s\n' "$exported"); then
  echo 'the table has < and the library exports >' >&2
  exit 1
fi
grep -v '^p' <<<"$exported" |
  "$(dirname "$0")/../api/check_exported.sh" "$library" "$(dirname "$0")/exported.txt"

# address type name: W plain, T with a p, the same address
if nm -D --defined-only "$library" | awk '
    $3 ~ /^p/ { strong[substr($3, 2)] = $1; if ($2 != "T") print $3 " is " $2 }
    $3 !~ /^p/ { weak[$3] = $1; if ($2 != "W") print $3 " is " $2 }
    END { for (name in weak) if (weak[name] != strong[name]) print name " is no alias" }' |
  grep .; then
  echo 'expected weak aliases of strong symbols' >&2
  exit 1
fi
if readelf -V "$library" | grep -q 'Version definition'; then
  echo 'symbols have versions, NCCL has none' >&2
  exit 1
fi
readelf -d "$library" | grep -q 'SONAME.*\[libnccl.so.2\]'
"$(dirname "$0")/../api/check_needed.sh" "$library"
python3 - "$library" <<'PYTHON'
import _ctypes, ctypes, os, sys
before = len(os.listdir("/proc/self/task"))
signals = [line for line in open("/proc/self/status") if line.startswith(("SigCgt", "SigIgn"))]
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL)
assert len(os.listdir("/proc/self/task")) == before, "a thread was started"
assert signals == [line for line in open("/proc/self/status")
                   if line.startswith(("SigCgt", "SigIgn"))], "a signal handler was set"
version = ctypes.c_int(0)
assert library.ncclGetVersion(ctypes.byref(version)) == 0 and version.value == 22809
_ctypes.dlclose(library._handle)
assert os.path.realpath(sys.argv[1]) in open("/proc/self/maps").read(), "it was unloaded"
PYTHON
said=$(PITH_LOG=debug python3 -c "import ctypes; ctypes.CDLL('$library')" 2>&1)
[[ -z $said ]] || { printf 'said on loading: %s\n' "$said" >&2; exit 1; }
