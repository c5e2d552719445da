#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that has one, and nothing else of ours: no network, no
# packages. Programs are built beforehand, elsewhere, and carried along; where they do not run they
# are built there. Without a GPU each part does what it can and says so.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
readonly root
readonly pack=${GPU_PACK:-$root/tools/gpu/pack} tree=${GPU_TREE:-$root/build-gpu}
readonly results=$tree/results # kept from command to command; $OUT gets a copy at the end
readonly most_bytes=$((62 << 20)) # of pack and working tree, which travel together
readonly most_seconds=580          # of a command, which is killed after ten minutes
readonly programs=(driver_facts test_cuda_gpu test_cuda_device gpu_calls)

# What a build there needs beyond nvcc, g++, cmake and ninja. From Debian; Ubuntu 24.04 takes them.
readonly debs=(libhwy-dev libhwy1 libfmt-dev libfmt9 libspdlog-dev libspdlog1.10 libssl-dev
  libcli11-dev nlohmann-json3-dev catch2 pkgconf-bin libpkgconf3)

usage() {
  cat <<'END'
Usage: bash tools/gpu/run.sh [--prebuild | --pack | --plan] [PART...]

  --prebuild  here, without a GPU but with nvcc: builds the programs for sm_90 and PTX, and puts
              them with the libraries they need, as an archive into tools/gpu/pack (ignored by git)
  --pack      here, with a network: adds to it what a build there needs, from Debian
  --plan      the commands of a first day of thirty minutes, the most telling first

Parts, each with a limit of its own; without one: facts tests
  facts      what the driver does where its documentation is silent (driver_facts)
  tests      streams, capture, groups, views, faults and compressed calls; then every kernel
  calls      all-reduces of two and four ranks on the GPU, in threads and in processes, steps
             run by launches and by workers
  perf       cuda_perf: kernels against device copies and CUB; the top-k step in PyTorch
  clients    PyTorch, JAX and CuPy through LD_PRELOAD of libnccl.so.2
  peers      calls over loopback, plain and compressed, beside NVIDIA's library over the same;
             first as over links of 10 Gbit/s, where that can be had
  fallback   the same calls by way of Pith to NVIDIA's library, eager and from PyTorch
  nccltests  nccl-tests, from $NCCL_TESTS or pack/nccl-tests, through LD_PRELOAD under mpirun
  sanitize   kernels under compute-sanitizer: memcheck, then racecheck and synccheck
  kernels    nvcc compiles every kernel: PTX, and code for this machine's GPU
  build      the library, its tests and programs, into build-gpu: only where the carried do not run
  table      what the parts have left, as one table and one JSON file

Results are kept in build-gpu/results; at the end they go to $OUT, where that is set, as
results.tar.gz, table.txt and gpu.json.
END
}

# Seconds are limits: what is left of the day goes to starts and transfers.
plan() {
  local command part seconds total=0
  printf 'limit   command, with tools/gpu/pack carried along\n'
  for command in "facts tests" "calls perf" clients "peers fallback" \
    "nccltests sanitize"; do
    seconds=0
    for part in $command; do seconds=$((seconds + $(limit_of "$part"))); done
    total=$((total + seconds))
    printf '%4d s  bash tools/gpu/run.sh %s\n' "$seconds" "$command"
  done
  printf '%4d s  together, of 1800\n' "$total"
  cat <<'END'
One after another without a pause, for a machine that idles goes back. Look at the facts before
the second: a line with HANGS, STUCK or WAITS says which way of running steps is left. Where the
carried programs do not run, the first command builds them there and asks for the facts; go on with
tests and calls, while the machine is the same, and let the rest be.
END
}

limit_of() {
  case $1 in
    facts) printf 150 ;;
    tests) printf 270 ;;
    calls) printf 245 ;;
    perf) printf 140 ;;
    clients) printf 300 ;;
    peers) printf 220 ;;
    fallback) printf 90 ;;
    nccltests) printf 115 ;;
    sanitize) printf 120 ;;
    kernels) printf 300 ;;
    build) printf 550 ;;
    *) printf 30 ;;
  esac
}

say() { printf 'gpu: %s\n' "$*"; }

# GPU_STUB: a folder with a stub driver, so that the script itself can be tried; GPU_TREE and
# GPU_PACK are other folders than build-gpu and pack.
has_gpu() {
  [[ -n ${GPU_STUB:-} || -e /dev/nvidia0 ]] || nvidia-smi -L >/dev/null 2>&1
}

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

has_module() { python3 -c "import $1" 2>/dev/null; }

# --- here, without a GPU ------------------------------------------------------------------------

configure() {
  local generator=() launcher=()
  if command -v ninja >/dev/null; then generator=(-G Ninja); fi
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  cmake -S "$root" -B "$tree" "${generator[@]}" "${launcher[@]}" -DCMAKE_BUILD_TYPE=Release \
    -DPITH_TESTS=ON "$@" >"$tree/configure.log" || { cat "$tree/configure.log" && return 1; }
}

compile_cuda_perf() {
  local nvcc
  nvcc=$(find_nvcc) || { say "no nvcc: no cuda_perf" && return 0; }
  [[ ! -x $tree/bin/cuda_perf || $root/perf/cuda_perf.cu -nt $tree/bin/cuda_perf ]] || return 0
  "$nvcc" -std=c++20 -O3 --expt-relaxed-constexpr -fmad=false "-arch=$1" "-I$root" "-I$root/src" \
    -o "$tree/bin/cuda_perf" "$root/perf/cuda_perf.cu"
}

# What the programs load beyond libc and the compiler's own, which every machine has.
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -Ev '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|libnccl|libcuda)\.so' ||
    true
}

prebuild() {
  find_nvcc >/dev/null || { say "prebuild: needs nvcc" && return 1; }
  local into=$tree/programs program
  rm -rf -- "$into" "$pack/bin" "$pack/lib" "$pack/spare"
  mkdir -p "$pack" "$into/bin" "$into/lib" "$into/spare" "$into/net"
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
  configure "-DPITH_CUDA_CODE=${PREBUILD_CODE:-sm_90+ptx}"
  cmake --build "$tree" --parallel "${JOBS:-$(nproc)}" --target nccl "${programs[@]}"
  compile_cuda_perf sm_90
  for program in "${programs[@]}" cuda_perf; do
    install -s "$tree/bin/$program" "$into/bin/$program"
  done
  install -s "$tree/lib/libnccl.so.2" "$into/lib/libnccl.so.2"
  # For links of a known rate, where the machine has none itself.
  for program in ip tc; do
    program=$(PATH=$PATH:/usr/sbin:/sbin command -v "$program") && cp -L "$program" "$into/net/"
  done
  libraries_of "$into"/bin/* "$into"/net/* "$into/lib/libnccl.so.2" |
    while read -r program; do cp -L "$program" "$into/spare/"; done
  # What travels is counted as it lies there, and device code shrinks to a third.
  tar -czf "$pack/programs.tar.gz" -C "$into" bin lib spare net
  git -C "$root" describe --always --dirty >"$pack/commit" 2>/dev/null || printf '?' >"$pack/commit"
  check_pack
}

make_pack() {
  mkdir -p "$pack/debs"
  (cd "$pack/debs" && rm -f -- *.deb && apt-get download "${debs[@]}")
  check_pack
}

# Files that git has or would take, without a repository all.
tree_bytes() {
  (cd "$root" && git ls-files -z --cached --others --exclude-standard 2>/dev/null |
    du -cb --files0-from=- 2>/dev/null | tail -n 1 | cut -f1)
}

check_pack() {
  local bytes others
  bytes=$(du -sb "$pack" | cut -f1)
  others=$(tree_bytes)
  say "tools/gpu/pack has $((bytes >> 20)) MiB, and the working tree $((${others:-0} >> 20))"
  ((bytes + ${others:-0} <= most_bytes)) || { say "pack: too much to be carried" && return 1; }
}

# --- programs -----------------------------------------------------------------------------------

# What these lack: libraries, or versions of them (then the name of the program).
missing_in() { ldd "$@" 2>/dev/null | awk '/not found/ {print $1}' | sort -u; }

# Sets $carried to the folder of the carried programs.
unpack_programs() {
  carried=$pack
  [[ -f $pack/programs.tar.gz ]] || return 0
  carried=$tree/carried
  [[ ! $carried/unpacked -nt $pack/programs.tar.gz ]] || return 0
  rm -rf -- "$carried"
  mkdir -p "$carried"
  tar -xzf "$pack/programs.tar.gz" -C "$carried" && touch "$carried/unpacked"
}

# Whether the carried programs run here. Libraries that the system has are not replaced, for they
# are Python's too; a library that was lacking may lack others.
carried_run() {
  unpack_programs
  [[ -f $carried/bin/test_cuda_gpu ]] || return 1
  chmod u+x "$carried"/bin/* 2>/dev/null || true # where only contents were carried
  local library round spare=$tree/spare
  mkdir -p "$spare"
  LD_LIBRARY_PATH=$carried/lib:$spare${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
  for round in 1 2; do
    for library in $(missing_in "$carried"/bin/* "$carried"/net/* "$carried/lib/libnccl.so.2"); do
      if [[ -f $carried/spare/$library ]]; then cp "$carried/spare/$library" "$spare/"; fi
    done
  done
  library=$(missing_in "$carried"/bin/* "$carried/lib/libnccl.so.2")
  [[ -z $library ]] || { say "the carried programs lack: ${library//$'\n'/ }" && return 1; }
}

# Sets $at to the folder whose programs run here: the carried ones, else those built here.
find_programs() {
  [[ -z ${GPU_STUB:-} ]] || export LD_LIBRARY_PATH=$GPU_STUB${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  if carried_run; then
    at=$carried
  elif [[ -x $tree/bin/test_cuda_gpu ]]; then
    use_debs
    at=$tree
    export LD_LIBRARY_PATH=$at/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  else
    return 1
  fi
}

# The carried packages beside the system's; nothing is installed.
use_debs() {
  [[ -d $pack/debs ]] || return 0
  local into=$tree/pack file
  if [[ ! -d $into ]]; then
    mkdir -p "$into"
    for file in "$pack"/debs/*.deb; do dpkg -x "$file" "$into"; done
    ln -sf pkgconf "$into/usr/bin/pkg-config"
  fi
  local libraries=$into/usr/lib/x86_64-linux-gnu
  command -v pkg-config >/dev/null || PATH=$PATH:$into/usr/bin
  export PATH CMAKE_PREFIX_PATH=$into/usr
  # OpenSSL's configuration lies where only a compiler's own /usr is searched.
  export CPATH=$into/usr/include/x86_64-linux-gnu${CPATH:+:$CPATH}
  export PKG_CONFIG_SYSROOT_DIR=$into
  export PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$into/usr/share/pkgconfig
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries
}

# What a part needs to go on: its programs and a GPU.
ready() {
  find_programs || { say "$1: no program runs here, run.sh build makes them: skipped" && return 1; }
  has_gpu || { say "$1: no GPU: skipped" && return 1; }
}

# --- parts --------------------------------------------------------------------------------------

# Never longer than the part has left, so that nothing of it runs beside the next one.
limited() { # SECONDS COMMAND...
  local most=$1 left=$((part_end - SECONDS - 6))
  shift
  ((left > 2)) || { say "no time is left for $*" && return 124; }
  timeout -k 5 "$((left < most ? left : most))" "$@"
}

part_build() {
  use_debs
  # Another compiler than ours may warn of more.
  configure -DPITH_UCX=OFF -DPITH_WERROR=OFF "-DPITH_CUDA_CODE=$(gpu_code)"
  cmake --build "$tree" --parallel "${JOBS:-$(nproc)}" --target nccl "${programs[@]}"
  say "build: ${programs[*]}"
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

part_facts() {
  ready facts || return 0
  # A probe that hangs is a fact, and no failure of this part.
  limited 600 "$at/bin/driver_facts" ${GPU_STUB:+--seconds 60} | tee "$results/facts.txt" || true
}

part_tests() {
  ready tests || return 0
  local failed=0 cases=()
  if [[ -n ${GPU_STUB:-} ]]; then
    cases=('divisions and scales*,sums of lists on*')
  else
    export PITH_TEST_GPU=1
  fi
  # The kernels first: they are quick, and what they break tells of the rest.
  run_cases test_cuda_device 70 "$results/tests.txt" "${cases[@]}" || failed=1
  local steps
  for steps in launch worker; do
    PITH_CUDA_STEPS=$steps run_cases test_cuda_gpu 95 "$results/streams-$steps.txt" || failed=1
  done
  return "$failed"
}

# Each case in a process of its own: one that hangs, or breaks the context, costs no other.
run_cases() { # PROGRAM SECONDS LOG [CASES]
  local program=$at/bin/$1 end=$((SECONDS + $2)) log=$3 name left fate status=0
  shift 3
  ((end < part_end - 8)) || end=$((part_end - 8))
  local names
  # Its exit status may be their number.
  names=$("$program" --list-tests --verbosity quiet "$@" | sed -n 's/^  \([^ ].*\)/\1/p') || true
  : >"$log"
  [[ -n $names ]] || { say "$program lists no cases" | tee "$log" && return 1; }
  while IFS= read -r name; do
    left=$((end - SECONDS))
    fate=ok
    if ((left <= 0)); then
      fate='not reached'
    else
      limited "$((left < 30 ? left : 30))" "$program" "${name//,/\\,}" >"$log.case" 2>&1 ||
        fate=$(fate_of $?)
      [[ $fate == ok ]] || cat "$log.case" | tee -a "$log"
    fi
    [[ $fate == ok ]] || status=1
    printf 'case %s: %s\n' "$name" "$fate" | tee -a "$log"
  done <<<"$names"
  rm -f -- "$log.case"
  return "$status"
}

# By the exit status of what `timeout` ran.
fate_of() {
  case $1 in
    124 | 137) printf HANGS ;;
    *) printf 'FAILED (%d)' "$1" ;;
  esac
}

part_calls() {
  ready calls || return 0
  local way ranks steps failed=0 most=${CALLS_MOST_BYTES:-268435456}
  rm -f -- "$results/calls.json"
  # Both ways to run steps, beside each other.
  for way in processes threads; do
    for ranks in 2 4; do
      for steps in launch worker; do
        PITH_CUDA_STEPS=$steps PITH_TIMEOUT=20 limited 30 "$at/bin/gpu_calls" "$way" "$ranks" \
          "$results/calls.json" "$most" "$way by $steps" ||
          { say "calls: $way by $steps, $ranks ranks: failed" && failed=1; }
      done
    done
  done
  return "$failed"
}

part_perf() {
  ready perf || return 0
  if [[ $at == "$tree" ]]; then
    local code
    code=$(gpu_code)
    [[ $code != ptx ]] || code=sm_90
    compile_cuda_perf "$code"
  fi
  local failed=0
  limited 85 "$at/bin/cuda_perf" --json "$results/perf.json" || failed=1
  has_module torch || { say "perf: no PyTorch: its step skipped" && return "$failed"; }
  limited 45 python3 "$root/tools/gpu/torch_topk.py" --json "$results/torch.json" || failed=1
  return "$failed"
}

# NVIDIA's library, as PyTorch brings it, or $OTHER_NCCL.
find_other_nccl() {
  [[ -z ${OTHER_NCCL:-} ]] || { printf '%s\n' "$OTHER_NCCL" && return; }
  python3 - <<'END' 2>/dev/null
import glob, os, sysconfig
found = glob.glob(os.path.join(sysconfig.get_paths()["purelib"], "nvidia", "nccl", "lib",
                               "libnccl.so.2"))
print(found[0])
END
}

# Sets $link to what runs a command in a network of its own, where all loopback together carries so
# much; nothing is to be undone, for that network goes with the last process in it.
shape_links() { # GBITS
  local sbin=$PATH:/usr/sbin:/sbin
  [[ ! -d $carried/net ]] || sbin=$sbin:$carried/net
  # Bursts of some packets of loopback's 64 KiB. The queue holds what a few connections may send.
  link=(unshare --net env "PATH=$sbin" bash -c '
    ip link set lo up && tc qdisc add dev lo root tbf rate "$1gbit" burst 1mb limit 64mb &&
      shift && exec "$@"' shaped "$1")
  "${link[@]}" true 2>"$results/shaping.txt"
}

part_peers() {
  ready peers || return 0
  local other failed=0 link=() ranks file=$results/peers.json
  other=$(find_other_nccl) || say "peers: no other libnccl.so.2: only our own"
  rm -f -- "$file"
  # As many hosts with 10 Gbit/s each would share the loopback. The largest ratios are asked there.
  for ranks in 2 4; do
    if shape_links "$((10 * ranks))"; then
      peers_over ", 10 Gbit/s" "$ranks" || failed=1
    else
      say "peers: unshaped, links of 10 Gbit/s cannot be had: $(tail -n 1 "$results/shaping.txt")"
    fi
  done
  link=()
  for ranks in 2 4; do
    peers_over "" "$ranks" || failed=1
  done
  return "$failed"
}

# With $link, $other and $file.
peers_over() { # NAME RANKS
  local name=$1 ranks=$2 status=0
  run_peers() { # LABEL VARIABLE...
    local label=$1$name
    shift
    # Of what is logged, only what compression has to say.
    limited 45 "${link[@]}" env PITH_TIMEOUT=20 NCCL_SOCKET_IFNAME=lo "$@" "$at/bin/gpu_calls" \
      hosts "$ranks" "$file" "${CALLS_MOST_BYTES:-268435456}" "$label" |
      sed -u -e '/PITH_COMPRESS/b' -e '/ NCCL /d' ||
      { say "peers: $label, $ranks ranks: failed" && status=1; }
  }
  if [[ -n $other ]]; then
    run_peers "NVIDIA, sockets" "LD_PRELOAD=$other"
    run_peers "NVIDIA, sockets" "LD_PRELOAD=$other" GPU_CALLS_TYPE=bfloat16
  fi
  run_peers "Pith, tcp, 1 %" PITH_TRANSPORT=tcp NCCL_DEBUG=INFO \
    PITH_COMPRESS=topk:density=0.01,bypass=never
  run_peers "Pith, tcp" PITH_TRANSPORT=tcp
  return "$status"
}

# Where Pith has another library do what it does not speed up itself, both are in one process.
part_fallback() {
  ready fallback || return 0
  local other failed=0 log=$results/fallback.txt
  other=$(find_other_nccl) || { say "fallback: no other libnccl.so.2: skipped" && return 0; }
  rm -f -- "$results/fallback.json"
  limited 40 env PITH_TIMEOUT=20 NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=INFO "PITH_NCCL_FALLBACK=$other" \
    "$at/bin/gpu_calls" hosts 2 "$results/fallback.json" "${CALLS_MOST_BYTES:-67108864}" \
    "NVIDIA by way of Pith" >"$log" 2>&1 || failed=1
  grep -v -e ' NCCL INFO ' -e '^$' "$log" || true
  grep "is served by" "$log" | sed 's/.*NCCL INFO //' | sort | uniq -c || true
  grep -q "is served by $other" "$log" || { say "fallback: nothing went there" && failed=1; }
  ! has_module torch || run_clients "$results/fallback-clients.json" --other "$other" fallback ||
    failed=1
  return "$failed"
}

part_clients() {
  ready clients || return 0
  local failed=0
  run_clients "$results/clients.json" || failed=1
  # CuPy's own tests, which its package does not bring.
  if [[ -d $pack/cupy-tests ]] && has_module cupy && has_module pytest; then
    limited 60 env "LD_PRELOAD=$at/lib/libnccl.so.2" python3 -m pytest -q -p no:cacheprovider \
      "$pack/cupy-tests" 2>&1 | tee "$results/cupy-tests.txt" || failed=1
  fi
  return "$failed"
}

run_clients() { # JSON ARGUMENT...
  local json=$1
  shift
  python3 "$root/tools/gpu/clients.py" --library "$at/lib/libnccl.so.2" --json "$json" \
    --seconds "$((part_end - SECONDS - 8))" "$@"
}

# Sets $tests to the folder of nccl-tests, and lets mpirun be found. Both lie in the pack as folders
# or as archives of such.
find_nccl_tests() {
  local name from
  for name in nccl-tests openmpi; do
    from=$pack/$name
    if [[ -f $from.tar.gz ]]; then
      from=$tree/$name
      [[ -d $from ]] || { mkdir -p "$from" && tar -xzf "$pack/$name.tar.gz" -C "$tree"; }
    fi
    # Only contents may have been carried.
    [[ $name != openmpi || ! -d $from/bin ]] || chmod u+x "$from"/bin/* 2>/dev/null || true
    [[ $name == openmpi ]] || tests=${NCCL_TESTS:-$from}
  done
  chmod u+x "$tests"/*_perf 2>/dev/null || true
  [[ -x $from/bin/mpirun ]] || return 0
  export PATH=$from/bin:$PATH LD_LIBRARY_PATH=$from/lib:${LD_LIBRARY_PATH:-}
  export OPAL_PREFIX=$from PRTE_PREFIX=$from PMIX_PREFIX=$from
}

# Unmodified: its programs look for libnccl.so.2, and check what they get.
part_nccltests() {
  ready nccltests || return 0
  local tests failed=0 program
  find_nccl_tests
  command -v mpirun >/dev/null || { say "nccltests: no mpirun: skipped" && return 0; }
  if [[ ! -x $tests/all_reduce_perf ]]; then
    say "nccltests: $tests has no all_reduce_perf (built with MPI=1): skipped"
    return 0
  fi
  rm -f -- "$results/nccltests.txt"
  run_nccl_test() { # PROGRAM ARGUMENT...
    local command=("$tests/$1_perf" -g 1 -c 1 -w 2 -n 5 "${@:2}")
    [[ -x ${command[0]} ]] || return 0
    printf 'nccl-tests %s\n' "$*" | tee -a "$results/nccltests.txt"
    limited 25 mpirun --allow-run-as-root --oversubscribe -n 2 -x NCCL_TESTS_DEVICE=0 \
      -x "LD_PRELOAD=$at/lib/libnccl.so.2" -x LD_LIBRARY_PATH -x PITH_TIMEOUT=20 "${command[@]}" |
      tee -a "$results/nccltests.txt" || { say "nccltests: $*: failed" && failed=1; }
  }
  for program in all_reduce all_gather reduce_scatter broadcast reduce alltoall sendrecv; do
    run_nccl_test "$program" -b 8 -e 64M -f 8
  done
  run_nccl_test all_reduce -b 64K -e 64K -d all -o all # every type and operation
  run_nccl_test all_reduce -b 8 -e 1M -f 8 -G 2        # captured
  for program in gather scatter alltoallv hypercube; do
    run_nccl_test "$program" -b 8 -e 1M -f 8
  done
  return "$failed"
}

# Each tool for a share of the time: what one has not reached by then is not said to be sound.
part_sanitize() {
  ready sanitize || return 0
  PATH=$PATH:/usr/local/cuda/bin
  command -v compute-sanitizer >/dev/null ||
    { say "sanitize: no compute-sanitizer: skipped" && return 0; }
  local tool failed=0
  rm -f -- "$results/sanitize.txt"
  for tool in memcheck racecheck synccheck; do
    say "sanitize: $tool"
    limited 38 compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$at/bin/test_cuda_device" 'accumulate*,the k largest*,sums of lists*,a histogram*' |
      tee -a "$results/sanitize.txt" || failed=1
  done
  return "$failed"
}

part_table() { python3 "$root/tools/gpu/table.py" "$results"; }

# After each part, for nobody knows what becomes of the next. Only a few files come back from such
# a machine.
hand_over() {
  local folder=${OUT:-}
  part_table >"$results/table.txt" || true
  [[ -n $folder ]] || return 0
  cp "$results/table.txt" "$results/gpu.json" "$folder/" || true
  tar -czf "$folder/results.tar.gz.new" -C "$tree" results &&
    mv "$folder/results.tar.gz.new" "$folder/results.tar.gz"
}

end() {
  hand_over || true
  cat "$results/table.txt" || true
}

main() {
  local parts=() argument
  for argument in "$@"; do
    case $argument in
      -h | --help) usage && return ;;
      --plan) plan && return ;;
      --prebuild) prebuild; return ;; # each step of theirs has to succeed
      --pack) make_pack; return ;;
      facts | tests | calls | perf | clients | peers | fallback | nccltests | sanitize | \
        kernels | build | table)
        parts+=("$argument")
        ;;
      *)
        usage >&2
        say "unknown part '$argument'" >&2
        return 2
        ;;
    esac
  done
  ((${#parts[@]})) || parts=(facts tests)
  mkdir -p "$results"
  # What earlier commands have brought back, where a machine is a new one each time.
  [[ ! -d $pack/results ]] || cp -rn "$pack/results/." "$results/"
  [[ ! -f $pack/commit ]] || say "programs of $(cat "$pack/commit")"
  if [[ " ${parts[*]} " != *" build "* && -z ${GPU_STUB:-} ]] && has_gpu && ! (find_programs); then
    say "no program runs here: build and facts instead of ${parts[*]}"
    parts=(build facts)
  fi
  trap end EXIT
  local part limit failed=()
  for part in "${parts[@]}"; do
    [[ $part != table ]] || continue
    local begin=$SECONDS
    limit=$(limit_of "$part")
    ((begin + limit <= most_seconds)) || limit=$((most_seconds - begin))
    # A part is a process of its own, so that its time can be limited.
    if ((limit < 5)); then
      say "$part: no time is left"
      failed+=("$part")
    elif ! timeout -k 10 "$limit" bash "${BASH_SOURCE[0]}" --one "$part" "$limit"; then
      failed+=("$part")
    fi
    say "$part: $((SECONDS - begin)) s"
    hand_over || true
  done
  ((${#failed[@]} == 0)) || { say "failed: ${failed[*]}" && return 1; }
}

if [[ ${1:-} == --one ]]; then
  readonly part_end=$3 # in $SECONDS, which begin here
  "part_$2"
else
  main "$@"
fi
