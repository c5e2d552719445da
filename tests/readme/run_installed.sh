#!/usr/bin/env bash
# usage: run_installed.sh SOURCE_DIR BUILD_DIR
# Installs, moves what was installed, and builds the first example of README.md against it: through
# pkg-config with the shared library and the static one, and through CMake.
set -euo pipefail
readonly source=$1 build=$2
folder=$(mktemp -d)
readonly folder
trap 'rm -rf -- "$folder"' EXIT

cmake --install "$build" --prefix "$folder/first" >"$folder/log" || { cat "$folder/log"; exit 1; }
mv "$folder/first" "$folder/pith"
awk '/^```c$/ {inside = 1; next} /^```$/ && inside {exit} inside' "$source/README.md" \
  >"$folder/prog.c"
PKG_CONFIG_PATH=$(dirname "$(find "$folder/pith" -name pith.pc)")
export PKG_CONFIG_PATH
lib=$(dirname "$PKG_CONFIG_PATH")

check() {
  local printed
  printed=$(LD_LIBRARY_PATH=$lib "$2")
  [[ $printed == "rank 0 has 3, rank 1 has 3" ]] || { echo "$1 printed: $printed" >&2; exit 1; }
}

# shellcheck disable=SC2046  # the flags are words
cc "$folder/prog.c" $(pkg-config --cflags --libs pith) -o "$folder/shared"
check "the shared library" "$folder/shared"

# shellcheck disable=SC2046
cc "$folder/prog.c" $(pkg-config --cflags pith) "$lib/libpith.a" \
  $(pkg-config --static --libs pith | sed 's/-lpith//') -o "$folder/static"
check "the static library" "$folder/static"

mkdir "$folder/cmake"
cp "$folder/prog.c" "$folder/cmake"
cat >"$folder/cmake/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(Pith 0.1 REQUIRED)
add_executable(user prog.c)
target_link_libraries(user Pith::pith)
END
built=$folder/cmake/build
cmake -G Ninja -S "$folder/cmake" -B "$built" -DCMAKE_PREFIX_PATH="$folder/pith" >"$folder/log" &&
  cmake --build "$built" >>"$folder/log" || { cat "$folder/log"; exit 1; }
check "the CMake package" "$built/user"
