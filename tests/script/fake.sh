#!/bin/sh
# Stands in for each program by whose name it is copied: adds a line with its arguments to
# $WORLD/log and does the least that its caller needs. Files in $WORLD say how things are:
# lacks-PACKAGE, and fails-NAME or fails-NAME.TREE.
here=${WORLD:?}
name=${0##*/}
key=$name

case $name in
  ctest) key=ctest.${PWD##*/} ;;
  cmake) [ "$1" != --build ] || key=cmake.${2##*/} ;;
esac
printf '%s\n' "$key $*" >>"$here/log"
[ ! -e "$here/fails-$key" ] || exit 8

for last; do :; done
case $name in
  dpkg-query) [ -e "$here/lacks-$last" ] || printf installed ;;
  apt-get) rm -f "$here/lacks-$last" ;;
  cmake)
    [ "$1" != --build ] || exit 0
    all="$*"
    while [ "$1" != -B ]; do shift; done
    mkdir -p "$2"
    : >"$2/build.ninja"
    for word in $all; do printf '%s\n' "${word#-D}"; done |
      sed -n 's/^\([A-Z_]*\)=/\1:STRING=/p' >"$2/CMakeCache.txt"
    ;;
  python3) [ "$1 $2" != "-m venv" ] || { mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; } ;;
  sudo) exec "$@" ;;
  setarch) shift && exec "$@" ;;
esac
