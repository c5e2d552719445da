#!/usr/bin/env bash
# usage: use_installed.sh SOURCE_DIR PREFIX
# Builds the first example of README.md against what is installed in PREFIX: through pkg-config with
# the shared library and the static one, and through CMake. Then runs what is installed itself.
set -euo pipefail
readonly source=$1 prefix=$2
folder=$(mktemp -d)
readonly folder
trap 'rm -rf -- "$folder"' EXIT

awk '/^```c$/ {inside = 1; next} /^```$/ && inside {exit} inside' "$source/README.md" \
  >"$folder/prog.c"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name pith.pc)")
export PKG_CONFIG_PATH
lib=$(dirname "$PKG_CONFIG_PATH")

# expect WHAT WANTED PROGRAM...: its output begins so.
expect() {
  local what=$1 wanted=$2 printed
  shift 2
  printed=$("$@" 2>&1) || { echo "$what ended with $?: $printed" >&2; exit 1; }
  [[ $printed == "$wanted"* ]] || { echo "$what printed: $printed" >&2; exit 1; }
}
readonly sums="rank 0 has 3, rank 1 has 3"

# shellcheck disable=SC2046  # the flags are words
cc "$folder/prog.c" $(pkg-config --cflags --libs pith) -o "$folder/shared"
expect "the shared library" "$sums" env LD_LIBRARY_PATH="$lib" "$folder/shared"
readelf -d "$folder/shared" | grep -q 'NEEDED.*\[libpith\.so\.[0-9]*\]'

# shellcheck disable=SC2046
cc "$folder/prog.c" $(pkg-config --cflags pith) "$lib/libpith.a" \
  $(pkg-config --static --libs pith | sed 's/-lpith//') -o "$folder/static"
expect "the static library" "$sums" "$folder/static"

mkdir "$folder/cmake"
cp "$folder/prog.c" "$folder/cmake"
cat >"$folder/cmake/CMakeLists.txt" <<'LISTS'
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(Pith 0.1 REQUIRED)
add_executable(user prog.c)
target_link_libraries(user Pith::pith)
LISTS
built=$folder/cmake/build
cmake -G Ninja -S "$folder/cmake" -B "$built" -DCMAKE_PREFIX_PATH="$prefix" >"$folder/log" &&
  cmake --build "$built" >>"$folder/log" || { cat "$folder/log"; exit 1; }
expect "the CMake package" "$sums" "$built/user"

# The programs find the library, and the demo its data.
expect pith-info "pith-info " "$prefix/bin/pith-info" --version
expect pith-trace "pith-trace " "$prefix/bin/pith-trace" --version
expect all_reduce_perf "# nccl-tests version" "$prefix/bin/all_reduce_perf" --ranks 2 -b 8 -e 8
demo=(--ranks 2 --epochs 1 --no-comparison)
(cd "$folder" && "$prefix/bin/pith-demo" "${demo[@]}" >log 2>&1) || grep -q 'demo: accuracy' \
  "$folder/log" || { cat "$folder/log"; exit 1; }

# As a user of NCCL's programs loads it.
expect "libnccl.so.2" "" env LD_PRELOAD="$lib/pith/libnccl.so.2" true
for page in "$prefix"/share/man/man1/*.1.gz; do
  [[ -e $page ]] || break  # made where help2man is
  name=$(basename "$page" .1.gz)
  zcat "$page" | grep -q "^$name .- " || { echo "$page says not what $name is" >&2; exit 1; }
done
