#!/usr/bin/env bash
# A program that was linked with another libnccl.so.2, by its path, runs on ours with LD_PRELOAD and
# maps no other; so does what it opens by the soname. Without LD_PRELOAD it runs on the other one.
# Usage: check_preload.sh LIBRARY PROGRAM    (PROGRAM: which.c, linked with the fake)
set -euo pipefail
library=$(readlink -f "$1") program=$2

plain=$("$program")
[[ $plain == 99999* ]] || { printf 'expected the fake:\n%s\n' "$plain" >&2; exit 1; }
[[ $plain != *"$library"* ]] || { echo 'ours is mapped without LD_PRELOAD' >&2; exit 1; }

preloaded=$(LD_PRELOAD=$library "$program")
expected=$(printf '22809\n%s\n22809\n%s' "$library" "$library")
if [[ $preloaded != "$expected" ]]; then
  printf 'with LD_PRELOAD expected\n%s\nfound\n%s\n' "$expected" "$preloaded" >&2
  exit 1
fi
