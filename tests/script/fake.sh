#!/bin/sh
# Stands in for each program by whose name it is copied: adds a line with its arguments, between
# tabs, to $WORLD/log and does the least that its caller needs. Files in $WORLD say how things are:
# missing/PACKAGE (its content: dpkg's status, or nothing), stale (package lists), fails/NAME or
# fails/NAME.TREE (its content: the exit status).
here=${WORLD:?}
name=${0##*/}
tab='	'
key=$name

case $name in
  ctest) key=ctest.${PWD##*/} ;;
  cmake) [ "$1" != --build ] || key=cmake.${2##*/} ;;
esac
line=$key
for argument; do line=$line$tab$argument; done
[ "$name" != ctest ] || line="$line${tab}PITH_TEST_FULL=${PITH_TEST_FULL-}"
printf '%s\n' "$line" >>"$here/log"

if [ -e "$here/fails/$key" ]; then
  read -r status <"$here/fails/$key"
  exit "$status"
fi

query_package() {
  for package; do :; done
  [ -e "$here/missing/$package" ] || { printf installed; return 0; }
  [ -s "$here/missing/$package" ] || return 1
  cat "$here/missing/$package"
}

run_apt_get() {
  if [ "$1" = update ]; then
    rm -f "$here/stale"
    return
  fi
  [ ! -e "$here/stale" ] || return 100
  for package; do rm -f "$here/missing/$package"; done
}

# Like CMake's own cache: a new setting replaces the old one, others stay.
configure() {
  while [ "$1" != -B ]; do shift; done
  tree=$2
  mkdir -p "$tree"
  : >"$tree/build.ninja"
  : >>"$tree/CMakeCache.txt"
  for argument; do
    setting=${argument#-D}
    [ "$setting" != "$argument" ] || continue
    grep -v "^${setting%%=*}:" "$tree/CMakeCache.txt" >"$tree/kept"
    printf '%s:STRING=%s\n' "${setting%%=*}" "${setting#*=}" >>"$tree/kept"
    mv "$tree/kept" "$tree/CMakeCache.txt"
  done
}

case $name in
  dpkg-query) query_package "$@" ;;
  apt-cache) [ ! -e "$here/stale" ] ;;
  apt-get) run_apt_get "$@" ;;
  cmake) if [ "$1" = --build ]; then echo "built $6"; else configure "$@"; fi ;;
  ctest) printf '100%% tests passed\n\nTotal Test time (real) = 1.00 sec\n' ;;
  sudo) exec "$@" ;;
  setarch) shift && exec "$@" ;;
  pith-demo) echo "demo: accuracy" ;;
esac
