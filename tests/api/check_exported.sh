#!/usr/bin/env bash
# The names that a library exports are those of a list: a name that went breaks programs that were
# built before, and none shall come unnoticed.
# Usage: check_exported.sh LIBRARY LIST    (standard input: the exported names)
set -euo pipefail
export LC_ALL=C
library=$(basename "$1")
readonly library list=$2

exported=$(sort -u)
listed=$(sort -u "$list")
gone=$(comm -13 <(printf '%s\n' "$exported") <(printf '%s\n' "$listed"))
new=$(comm -23 <(printf '%s\n' "$exported") <(printf '%s\n' "$listed"))
if [[ -n $new ]]; then
  printf '%s exports names that are not in %s:\n%s\n' "$library" "$list" "$new" >&2
  echo 'If that is meant, add them there and to CHANGELOG.md: they are to stay.' >&2
fi
if [[ -n $gone ]]; then
  printf '%s no longer exports names of %s:\n%s\n' "$library" "$list" "$gone" >&2
  echo 'Programs built before do not start any more: keep the names. If they must go, the' >&2
  echo 'library needs another SOVERSION (CONTRIBUTING.md, "The interface of the library").' >&2
fi
[[ -z $new$gone ]]
