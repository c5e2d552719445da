#!/usr/bin/env bash
# usage: check_packages.sh SOURCE_DIR
# Makes the Debian packages, reads what they say, and uses their files without installing them.
set -euo pipefail
readonly source=$1
folder=$(mktemp -d)
readonly folder root=$folder/root
trap 'rm -rf -- "$folder"' EXIT

"$source/pith" package >"$folder/log" 2>&1 || { tail -50 "$folder/log"; exit 1; }
library=("$source"/build/packages/libpith[0-9]*.deb)
development=("$source"/build/packages/libpith-dev_*.deb)
tools=("$source"/build/packages/pith-tools_*.deb)
version=$(dpkg-deb -f "${library[0]}" Version)
package=$(dpkg-deb -f "${library[0]}" Package)

# expect DEB FIELD PATTERN
expect() {
  local found
  found=$(dpkg-deb -f "$1" "$2")
  [[ $found =~ $3 ]] || { echo "$(basename "$1"): $2: '$found', expected $3" >&2; exit 1; }
}
expect "${library[0]}" Depends 'libc6 .*libstdc\+\+6'
expect "${library[0]}" Recommends 'libhwloc15'
expect "${development[0]}" Depends "^$package \(= $version\)$"
expect "${tools[0]}" Depends "$package \(= $version\)"
expect "${tools[0]}" Depends 'libc6 .*libhwloc15'
for deb in "${library[0]}" "${development[0]}" "${tools[0]}"; do
  expect "$deb" Maintainer '.+ <.+@.+>'
  dpkg-deb -x "$deb" "$root"
  for name in copyright changelog.gz changelog.Debian.gz; do
    [[ -s $root/usr/share/doc/$(dpkg-deb -f "$deb" Package)/$name ]] ||
      { echo "$(basename "$deb") has no $name" >&2; exit 1; }
  done
done
dpkg-deb -e "${library[0]}" "$folder/control"
[[ $(<"$folder/control/shlibs") == "libpith "* ]] && ! grep -q nccl "$folder/control/shlibs" ||
  { echo "shlibs tells of more than libpith: $(<"$folder/control/shlibs")" >&2; exit 1; }

# dpkg would have told the loader of the folder.
LD_LIBRARY_PATH=$(dirname "$(find "$root" -name 'libpith.so.0')")
export LD_LIBRARY_PATH
if readelf -d "$root"/usr/bin/* | grep -E 'R(UN)?PATH'; then
  echo 'programs below /usr look for libraries where the loader looks anyway' >&2
  exit 1
fi
"$(dirname "$0")/use_installed.sh" "$source" "$root/usr"

if command -v lintian >/dev/null; then
  lintian --fail-on error "$source"/build/packages/*.deb
fi
