#!/usr/bin/env bash
# usage: run_installed.sh SOURCE_DIR BUILD_DIR
# Installs, moves what was installed, and uses it.
set -euo pipefail
readonly source=$1 build=$2
folder=$(mktemp -d)
readonly folder
trap 'rm -rf -- "$folder"' EXIT

cmake --install "$build" --prefix "$folder/first" >"$folder/log" || { cat "$folder/log"; exit 1; }
mv "$folder/first" "$folder/pith"
if grep -rlF -e "$folder/first" -e "$source" --include='*.h' --include='*.cmake' \
  --include='*.pc' "$folder/pith"; then
  echo 'these name folders of this machine, though what is installed may be moved' >&2
  exit 1
fi
"$(dirname "$0")/use_installed.sh" "$source" "$folder/pith"
