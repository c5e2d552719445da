# Sourced by run.sh: the parts, each in a process of its own that knows $part and $part_end.
# shellcheck shell=bash

# A command ends with who runs it, where that can be had.
with_parent=()
if command -v setpriv >/dev/null; then with_parent=(setpriv --pdeathsig TERM); fi

# Sets $ways to how steps are run, the safe way first.
read_ways() { { read -ra ways <"$results/steps.txt"; } 2>/dev/null || ways=(launch worker); }

take_safe_way() {
  local ways
  read_ways
  export PITH_CUDA_STEPS=${ways[0]}
}

# Never longer than the part has left, so that nothing of it runs beside the next one.
limited() { # SECONDS COMMAND...
  local most=$1 left=$((part_end - SECONDS - 6))
  shift
  ((left > 2)) || return "$not_reached"
  "${with_parent[@]}" timeout -k 5 "$((left < most ? left : most))" "$@"
}

# Says of a command that does not end well what became of it.
attempt() { # LABEL SECONDS COMMAND...
  local status=0
  limited "${@:2}" || status=$?
  ((status == 0)) || { say "$part: $1: $(fate_of "$status")" && return 1; }
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
  local command=("$nvcc" "${kernel_flags[@]}")
  if [[ $code != ptx ]]; then tell_resources "$code" "$results/resources.txt"; fi
  for kernel in "$root"/cuda/kernels/*.cu; do
    local name
    name=$(basename "$kernel" .cu)
    "${command[@]}" -arch=compute_80 -ptx -o "$tree/kernels/$name.ptx" "$kernel"
    # What a tile of 128-bit accesses must look like, and no memory behind registers.
    if grep -q '__local_depot' "$tree/kernels/$name.ptx"; then
      say "kernels: $name keeps variables in local memory" && return 1
    fi
    compiled=$((compiled + $(grep -c '^\.visible \.entry' "$tree/kernels/$name.ptx")))
  done
  say "kernels: $compiled compiled to PTX$([[ $code == ptx ]] || printf ' and %s' "$code")"
  [[ $code != ptx ]] || say "kernels: no GPU: code of its own skipped"
}

part_facts() {
  ready facts || return 0
  [[ ! -f $at/resources.txt ]] || cp "$at/resources.txt" "$results/"
  # 1 is for probes that hang: facts, and no failure of this part.
  local status=0
  limited 600 "$at/bin/driver_facts" ${GPU_STUB:+--seconds 60} | tee "$results/facts.txt" ||
    status=$?
  ((status <= 1)) || { say "facts: driver_facts: $(fate_of "$status")" && return 1; }
}

part_tests() {
  ready tests || return 0
  local failed=0 cases=() tags steps ways shares=4
  read_ways
  if [[ -n ${GPU_STUB:-} ]]; then
    cases=('divisions and scales*,sums of lists on*')
  else
    export PITH_TEST_GPU=1
  fi
  rm -f -- "$results"/streams-*.txt "$results/tests.txt"
  # The kernels first: they are quick, and what they break tells of the rest. Then what ranks
  # compute, and last what may hang. What one leaves of its share is for the others.
  run_cases test_cuda_device 70 30 "$results/tests.txt" "${cases[@]}" || failed=1
  for tags in '~[may_hang]' '[may_hang]'; do
    for steps in "${ways[@]}"; do
      PITH_CUDA_STEPS=$steps run_cases test_cuda_gpu "$(((part_end - SECONDS - 8) / shares))" 20 \
        "$results/streams-$steps.txt" "$tags" || failed=1
      shares=$((shares - 1))
    done
  done
  return "$failed"
}

# Each case in a process of its own: one that hangs, or breaks the context, costs no other.
run_cases() { # PROGRAM SECONDS SECONDS_OF_A_CASE LOG [CASES]
  local program=$at/bin/$1 end=$((SECONDS + $2)) most=$3 log=$4 name left fate status=0
  shift 4
  ((end < part_end - 8)) || end=$((part_end - 8))
  local names
  # Its exit status may be their number.
  names=$("$program" --list-tests --verbosity quiet "$@" | sed -n 's/^  \([^ ].*\)/\1/p') || true
  [[ -n $names ]] || { say "$program lists no cases" | tee -a "$log" && return 1; }
  while IFS= read -r name; do
    left=$((end - SECONDS))
    fate=ok
    if ((left <= 0)); then
      fate='not reached'
    else
      limited "$((left < most ? left : most))" "$program" "${name//,/\\,}" >"$log.case" 2>&1 ||
        fate=$(fate_of $?)
      [[ $fate == ok ]] || cat "$log.case" | tee -a "$log"
    fi
    [[ $fate == ok ]] || status=1
    printf 'case %s: %s\n' "$name" "$fate" | tee -a "$log"
  done <<<"$names"
  rm -f -- "$log.case"
  return "$status"
}

part_calls() {
  ready calls || return 0
  local way ranks steps ways failed=0 most=${CALLS_MOST_BYTES:-268435456}
  local few=$((most < 67108864 ? most : 67108864))
  read_ways
  rm -f -- "$results/calls.json"
  for steps in "${ways[@]}"; do
    for way in threads processes; do
      for ranks in 2 4; do
        run_calls "$way" "$ranks" "$steps" "$most" || failed=1
      done
      GPU_CALLS_BLOCKS=8,16,32 run_calls "$way" 2 "$steps" "$few" || failed=1
    done
  done
  return "$failed"
}

run_calls() { # WAY RANKS STEPS MOST_BYTES
  local label="$1 by $3" seconds=${GPU_STUB:+60} # whose blocks are threads
  PITH_CUDA_STEPS=$3 PITH_TIMEOUT=15 \
    attempt "$label${GPU_CALLS_BLOCKS:+ of $GPU_CALLS_BLOCKS blocks}, $2 ranks" "${seconds:-20}" \
    "$at/bin/gpu_calls" "$1" "$2" "$results/calls.json" "$4" "$label"
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
  attempt cuda_perf 85 "$at/bin/cuda_perf" --json "$results/perf.json" || failed=1
  has_module torch || { say "perf: no PyTorch: its step skipped" && return "$failed"; }
  attempt torch_topk 45 python3 "$here/torch_topk.py" --json "$results/torch.json" || failed=1
  return "$failed"
}

# NVIDIA's library, as PyTorch brings it, or $OTHER_NCCL.
find_other_nccl() {
  [[ -z ${OTHER_NCCL:-} ]] || { printf '%s\n' "$OTHER_NCCL" && return; }
  python3 - <<'END' 2>/dev/null
import os, sys
paths = (os.path.join(path, "nvidia", "nccl", "lib", "libnccl.so.2") for path in sys.path)
print(next(filter(os.path.exists, paths)))
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
  take_safe_way
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
    attempt "$label, $ranks ranks" 45 "${link[@]}" env PITH_TIMEOUT=20 NCCL_SOCKET_IFNAME=lo \
      "$@" "$at/bin/gpu_calls" hosts "$ranks" "$file" "${CALLS_MOST_BYTES:-268435456}" "$label" |
      sed -u -e '/PITH_COMPRESS/b' -e '/ NCCL /d' || status=1
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
  take_safe_way
  local other failed=0 log=$results/fallback.txt
  other=$(find_other_nccl) || { say "fallback: no other libnccl.so.2: skipped" && return 0; }
  rm -f -- "$results/fallback.json"
  attempt eager 40 env PITH_TIMEOUT=20 NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=INFO \
    "PITH_NCCL_FALLBACK=$other" "$at/bin/gpu_calls" hosts 2 "$results/fallback.json" \
    "${CALLS_MOST_BYTES:-67108864}" "NVIDIA by way of Pith" >"$log" 2>&1 || failed=1
  grep -v -e ' NCCL INFO ' -e '^$' "$log" || true
  grep "is served by" "$log" | sed 's/.*NCCL INFO //' | sort | uniq -c || true
  grep -q "is served by $other" "$log" || { say "fallback: nothing went there" && failed=1; }
  ! has_module torch || run_clients "$results/fallback-clients.json" --other "$other" fallback ||
    failed=1
  return "$failed"
}

part_clients() {
  ready clients || return 0
  local failed=0 ways left
  read_ways
  rm -f -- "$results"/clients-*.json
  left=$((part_end - SECONDS - 8))
  PITH_CUDA_STEPS=${ways[0]} run_clients "$results/clients-${ways[0]}.json" \
    --seconds "$((left * 2 / 3))" || failed=1
  PITH_CUDA_STEPS=${ways[1]} run_clients "$results/clients-${ways[1]}.json" \
    sums ddp graphs 'ddp compressed' moves || failed=1
  # CuPy's own tests, which its package does not bring.
  if [[ -d $pack/cupy-tests ]] && has_module cupy && has_module pytest; then
    attempt "CuPy's own tests" 60 env "LD_PRELOAD=$at/lib/libnccl.so.2" python3 -m pytest -q \
      -p no:cacheprovider "$pack/cupy-tests" 2>&1 | tee "$results/cupy-tests.txt" || failed=1
  fi
  return "$failed"
}

run_clients() { # JSON ARGUMENT...
  local json=$1
  shift
  python3 "$here/clients.py" --library "$at/lib/libnccl.so.2" --json "$json" \
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
  take_safe_way
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
    attempt "$*" 25 mpirun --allow-run-as-root --oversubscribe -n 2 -x NCCL_TESTS_DEVICE=0 \
      -x "LD_PRELOAD=$at/lib/libnccl.so.2" -x LD_LIBRARY_PATH -x PITH_TIMEOUT=20 "${command[@]}" |
      tee -a "$results/nccltests.txt" || failed=1
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
    attempt "$tool" 38 compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$at/bin/test_cuda_device" 'accumulate*,the k largest*,sums of lists*,a histogram*' |
      tee -a "$results/sanitize.txt" || failed=1
  done
  return "$failed"
}
