#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that has one, nvcc and g++, and nothing else of ours:
# no network, no packages. Where there is no GPU each part does what it can and says so.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
readonly root
readonly pack=$root/tools/gpu/pack tree=$root/build-gpu
readonly results=${OUT:-$tree/results}
readonly part_seconds=470 # each part ends within eight minutes
readonly most_pack_bytes=$((64 << 20))

# What the build needs beyond nvcc, g++ and make. Debian's; they also serve Ubuntu 24.04.
readonly debs=(libhwy-dev libhwy1 libfmt-dev libfmt9 libspdlog-dev libspdlog1.10 libssl-dev libssl3
  libcli11-dev nlohmann-json3-dev catch2 pkgconf-bin libpkgconf3)
readonly wheels=(cmake ninja)

usage() {
  cat <<'END'
Usage: bash tools/gpu/run.sh [--pack] [PART...]

  --pack     here, with a network: fill tools/gpu/pack (ignored by git, 64 MiB at most), which is
             carried to the machine with the GPU; needs apt-get and pip

Parts, each under eight minutes; without one: kernels build tests perf
  kernels    nvcc compiles every kernel: PTX, and code for this machine's GPU
  build      the library, its tests and programs, into build-gpu
  tests      every kernel through the compute seam, against the host's, bit for bit
  sanitize   the same under compute-sanitizer (memcheck)
  perf       cuda_perf: kernels against device copies and CUB; the top-k step in PyTorch
  calls      all-reduces of two and four ranks on the GPU, in threads and in processes
  clients    PyTorch through LD_PRELOAD of libnccl.so.2
  nccltests  nccl-tests, from $NCCL_TESTS (its build folder), through LD_PRELOAD under mpirun
  table      what the parts have left, as one table and one JSON file

Results go to $OUT, or build-gpu/results.
END
}

say() { printf 'gpu: %s\n' "$*"; }

has_gpu() { nvidia-smi -L >/dev/null 2>&1; }

# sm_90 for compute capability 9.0; PTX where nobody knows.
gpu_code() {
  local capability
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1) ||
    true
  if [[ $capability =~ ^[0-9]+\.[0-9]+$ ]]; then
    printf 'sm_%s' "${capability/./}"
  else
    printf ptx
  fi
}

find_nvcc() {
  command -v nvcc || { [[ -x /usr/local/cuda/bin/nvcc ]] && printf '/usr/local/cuda/bin/nvcc'; }
}

make_pack() {
  mkdir -p "$pack/debs" "$pack/wheels"
  (cd "$pack/debs" && rm -f -- *.deb && apt-get download "${debs[@]}")
  python3 -m pip download --quiet --no-deps --only-binary :all: \
    --platform manylinux2014_x86_64 --dest "$pack/wheels" "${wheels[@]}"
  local bytes
  bytes=$(du -sb "$pack" | cut -f1)
  say "pack: $((bytes >> 20)) MiB in tools/gpu/pack"
  ((bytes <= most_pack_bytes)) || { say "pack: more than 64 MiB" && return 1; }
}

# The pack's packages beside the system's; nothing is installed.
use_pack() {
  [[ -d $pack/debs ]] || return 0
  local at=$tree/pack file
  if [[ ! -d $at ]]; then
    mkdir -p "$at/wheels"
    for file in "$pack"/debs/*.deb; do dpkg -x "$file" "$at"; done
    for file in "$pack"/wheels/*.whl; do python3 -m zipfile -e "$file" "$at/wheels"; done
    # Zip files forget which files are programs.
    find "$at/wheels" \( -path '*/bin/*' -o -path '*/scripts/*' \) -type f -exec chmod +x {} +
    ln -sf pkgconf "$at/usr/bin/pkg-config"
  fi
  local libraries=$at/usr/lib/x86_64-linux-gnu
  command -v cmake >/dev/null || PATH=$at/wheels/cmake/data/bin:$PATH
  command -v ninja >/dev/null || PATH=$PATH:$(dirname "$(find "$at/wheels" -name ninja -type f |
    head -n 1)")
  command -v pkg-config >/dev/null || PATH=$PATH:$at/usr/bin
  export PATH CMAKE_PREFIX_PATH=$at/usr OPENSSL_ROOT_DIR=$at/usr
  export PKG_CONFIG_SYSROOT_DIR=$at PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$at/usr/share/pkgconfig
  export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

part_kernels() {
  local nvcc kernel code compiled=0
  nvcc=$(find_nvcc) || { say "kernels: no nvcc: skipped" && return 0; }
  code=$(gpu_code)
  mkdir -p "$tree/kernels"
  local command=("$nvcc" -std=c++20 -O3 --expt-relaxed-constexpr -fmad=false "-I$root"
    "-I$root/src")
  for kernel in "$root"/cuda/kernels/*.cu; do
    local name
    name=$(basename "$kernel" .cu)
    "${command[@]}" -arch=compute_80 -ptx -o "$tree/kernels/$name.ptx" "$kernel"
    # What a tile of 128-bit accesses must look like, and no memory behind registers.
    if grep -q '__local_depot' "$tree/kernels/$name.ptx"; then
      say "kernels: $name keeps variables in local memory" && return 1
    fi
    compiled=$((compiled + $(grep -c '^\.visible \.entry' "$tree/kernels/$name.ptx")))
    [[ $code == ptx ]] ||
      "${command[@]}" "-arch=$code" -cubin -o "$tree/kernels/$name.cubin" "$kernel"
  done
  say "kernels: $compiled compiled to PTX$([[ $code == ptx ]] || printf ' and %s' "$code")"
  [[ $code != ptx ]] || say "kernels: no GPU: code of its own skipped"
}

part_build() {
  use_pack
  local generator=()
  if command -v ninja >/dev/null; then generator=(-G Ninja); fi
  cmake -S "$root" -B "$tree" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DPITH_TESTS=ON \
    -DPITH_UCX=OFF "-DPITH_CUDA_CODE=$(gpu_code)" >"$tree/configure.log" ||
    { cat "$tree/configure.log" && return 1; }
  local targets=(pith test_cuda_device) target known
  known=$(cmake --build "$tree" --target help)
  for target in all_reduce_perf pith_nccl nccl; do
    if grep -qE "(^|[ .])$target(:|\$)" <<<"$known"; then targets+=("$target"); fi
  done
  cmake --build "$tree" --parallel "${JOBS:-$(nproc)}" --target "${targets[@]}"
  say "build: ${targets[*]}"
}

# The driver's own library, not the stub that the build leaves beside.
part_tests() {
  has_gpu || { say "tests: no GPU: skipped" && return 0; }
  use_pack
  "$tree/bin/test_cuda_device" | tee "$results/tests.txt"
}

part_sanitize() {
  has_gpu || { say "sanitize: no GPU: skipped" && return 0; }
  command -v compute-sanitizer >/dev/null ||
    { say "sanitize: no compute-sanitizer: skipped" && return 0; }
  use_pack
  compute-sanitizer --tool memcheck --error-exitcode 1 "$tree/bin/test_cuda_device" |
    tee "$results/sanitize.txt"
}

part_perf() {
  local nvcc code
  nvcc=$(find_nvcc) || { say "perf: no nvcc: skipped" && return 0; }
  code=$(gpu_code)
  [[ $code != ptx ]] || code=sm_90
  if [[ ! -x $tree/cuda_perf || $root/perf/cuda_perf.cu -nt $tree/cuda_perf ]]; then
    "$nvcc" -std=c++20 -O3 --expt-relaxed-constexpr -fmad=false "-arch=$code" "-I$root" \
      "-I$root/src" -o "$tree/cuda_perf" "$root/perf/cuda_perf.cu"
  fi
  has_gpu || { say "perf: compiled for $code; no GPU: not run" && return 0; }
  "$tree/cuda_perf" --json "$results/perf.json"
  python3 -c 'import torch' 2>/dev/null || { say "perf: no PyTorch: its step skipped" && return 0; }
  python3 "$root/tools/gpu/torch_topk.py" --json "$results/torch.json"
}

# A client of NCCL's symbols that takes device memory, with Pith's library: threads in one process,
# then processes, whose buffers are mapped by CUDA's IPC.
part_calls() {
  local library nvcc
  library=$(find_library) || { say "calls: no libnccl.so.2 in build-gpu: skipped" && return 0; }
  nvcc=$(find_nvcc) || { say "calls: no nvcc: skipped" && return 0; }
  if [[ ! -x $tree/gpu_calls || $root/tests/nccl/gpu_calls.cu -nt $tree/gpu_calls ]]; then
    "$nvcc" -std=c++20 -O2 "-I$root/src" -o "$tree/gpu_calls" "$root/tests/nccl/gpu_calls.cu" \
      -Xlinker "$library"
  fi
  has_gpu || { say "calls: compiled; no GPU: not run" && return 0; }
  use_pack
  local way ranks
  rm -f -- "$results/calls.json"
  for way in threads processes; do
    for ranks in 2 4; do
      LD_LIBRARY_PATH=$(dirname "$library")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        "$tree/gpu_calls" "$way" "$ranks" "$results/calls.json"
    done
  done
}

find_library() {
  local library
  library=$(find "$tree/lib" -maxdepth 1 -name 'libnccl.so.2' -print -quit 2>/dev/null) || true
  [[ -n $library ]] && printf '%s' "$library"
}

part_clients() {
  local library
  library=$(find_library) || { say "clients: no libnccl.so.2 in build-gpu: skipped" && return 0; }
  has_gpu || { say "clients: no GPU: skipped" && return 0; }
  python3 -c 'import torch' 2>/dev/null || { say "clients: no PyTorch: skipped" && return 0; }
  use_pack
  LD_PRELOAD=$library python3 "$root/tools/gpu/torch_client.py" --json "$results/clients.json"
}

# Unmodified: its programs look for libnccl.so.2, and check what they get.
part_nccltests() {
  local library program failed=0
  library=$(find_library) || { say "nccltests: no libnccl.so.2 in build-gpu: skipped" && return 0; }
  has_gpu || { say "nccltests: no GPU: skipped" && return 0; }
  command -v mpirun >/dev/null || { say "nccltests: no mpirun: skipped" && return 0; }
  if [[ ! -x ${NCCL_TESTS:-}/all_reduce_perf ]]; then
    say "nccltests: \$NCCL_TESTS has no all_reduce_perf (built with MPI=1): skipped"
    return 0
  fi
  use_pack
  for program in all_reduce all_gather reduce_scatter broadcast reduce alltoall sendrecv; do
    [[ -x $NCCL_TESTS/${program}_perf ]] || continue
    say "nccltests: $program"
    mpirun --allow-run-as-root --oversubscribe -n 2 -x NCCL_TESTS_DEVICE=0 \
      -x "LD_PRELOAD=$library" "$NCCL_TESTS/${program}_perf" -b 8 -e 64M -f 8 -g 1 -c 1 \
      -w 2 -n 5 | tee -a "$results/nccltests.txt" || failed=1
  done
  return "$failed"
}

part_table() { python3 "$root/tools/gpu/table.py" "$results"; }

main() {
  local parts=() argument
  for argument in "$@"; do
    case $argument in
      -h | --help) usage && return ;;
      --pack) make_pack && return ;;
      kernels | build | tests | sanitize | perf | calls | clients | nccltests | table)
        parts+=("$argument")
        ;;
      *)
        usage >&2
        say "unknown part '$argument'" >&2
        return 2
        ;;
    esac
  done
  ((${#parts[@]})) || parts=(kernels build tests perf)
  mkdir -p "$tree" "$results"
  local part failed=()
  for part in "${parts[@]}"; do
    # A part is a process of its own, so that its time can be limited.
    if ! timeout -k 10 "$part_seconds" bash "${BASH_SOURCE[0]}" --one "$part"; then
      failed+=("$part")
    fi
  done
  part_table
  ((${#failed[@]} == 0)) || { say "failed: ${failed[*]}" && return 1; }
}

if [[ ${1:-} == --one ]]; then
  "part_$2"
else
  main "$@"
fi
