#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that has one, and nothing else of ours: no network, no
# packages. Programs are built beforehand, elsewhere, and carried along; where they do not run they
# are built there. Without a GPU each part does what it can and says so.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
readonly root
readonly here=$root/tools/gpu
readonly pack=${GPU_PACK:-$here/pack} tree=${GPU_TREE:-$root/build-gpu}
readonly results=$tree/results # kept from command to command; $OUT gets a copy at the end
readonly most_seconds=580          # of a command, which is killed after ten minutes
# Seconds that each part may take.
readonly -A limits=([facts]=160 [tests]=290 [calls]=240 [perf]=140 [clients]=300 [peers]=220
  [fallback]=90 [nccltests]=115 [sanitize]=95 [kernels]=300 [build]=550 [table]=30)
readonly hand_over_s=${GPU_HAND_OVER:-20} # results are handed over so often during a part
readonly programs=(driver_facts test_cuda_gpu test_cuda_device gpu_calls)

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
             run by launches and by workers, one by one and queued, with workers of 8, 16, 32 blocks
  perf       cuda_perf: kernels against device copies and CUB; the top-k step in PyTorch
  clients    this machine's own PyTorch, JAX and CuPy, which are too large to be carried, through
             LD_PRELOAD of libnccl.so.2, both ways; says of each that is not there
  peers      calls over loopback, plain and compressed, beside NVIDIA's library over the same;
             first as over links of 10 Gbit/s, where that can be had
  fallback   the same calls by way of Pith to NVIDIA's library, eager and from PyTorch
  nccltests  nccl-tests, from $NCCL_TESTS or pack/nccl-tests, through LD_PRELOAD under mpirun
  sanitize   kernels under compute-sanitizer: memcheck, then racecheck and synccheck
  kernels    nvcc compiles every kernel: PTX, and code for this machine's GPU
  build      the library, its tests and programs, into build-gpu: only where the carried do not run
  table      what the parts have left, as one table and one JSON file

One process holds a context of the device throughout, or each would start it anew. Steps are run
first the way that the facts say is safe, the other one last: steps.txt says which, and why.

Results are kept in build-gpu/results; during and after each part they go to $OUT, where that is
set, as results.tar.gz, table.txt and gpu.json.
END
}

# Seconds are limits: what is left of the day goes to starts and transfers.
plan() {
  local command part seconds total=0
  printf 'limit   command, with tools/gpu/pack carried along\n'
  for command in "facts tests" calls clients "perf peers" "fallback nccltests sanitize"; do
    seconds=0
    for part in $command; do seconds=$((seconds + limits[$part])); done
    total=$((total + seconds))
    printf '%4d s  bash tools/gpu/run.sh %s\n' "$seconds" "$command"
  done
  printf '%4d s  together, of 1800\n' "$total"
  cat <<'END'
Facts; kernels bit for bit, ranks in threads and processes; the same timed; clients both ways;
benchmarks. No command takes ten minutes. One after another without a pause, for a machine that
idles goes back. Results: table.txt (read it first), gpu.json and results.tar.gz in $OUT, else in
build-gpu/results; what is there when a command is cut off is at most 20 s old. On a new machine
unpack results.tar.gz into tools/gpu/pack, or the second command knows no facts and begins with
launches. Where the carried programs do not run, the first command builds them there and asks for
the facts; go on with tests and calls, while the machine is the same, and let the rest be.
END
}

# A part's own words stay with its results, where the table finds them.
say() {
  printf 'gpu: %s\n' "$*"
  [[ -z ${part:-} ]] || printf '%s\n' "$*" >>"$results/notes-$part.txt"
}

# GPU_STUB: a folder with a stub driver, so that the script itself can be tried; GPU_TREE and
# GPU_PACK are other folders than build-gpu and pack, GPU_HAND_OVER other seconds than 20.
has_gpu() {
  [[ -n ${GPU_STUB:-} || -e /dev/nvidia0 ]] || timeout 20 nvidia-smi -L >/dev/null 2>&1
}

# sm_90 for compute capability 9.0; PTX where nobody knows.
gpu_code() {
  local capability
  capability=$(timeout 20 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
    head -n 1) || true
  if [[ $capability =~ ^[0-9]+\.[0-9]+$ ]]; then
    printf 'sm_%s' "${capability/./}"
  else
    printf ptx
  fi
}

find_nvcc() {
  command -v nvcc || { [[ -x /usr/local/cuda/bin/nvcc ]] && printf '/usr/local/cuda/bin/nvcc'; }
}

# Not imported: that takes seconds, and may hang where the GPU does.
has_module() {
  python3 -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))' "$1"
}

readonly not_reached=123 # an exit status that is nobody's else

# By the exit status of what `timeout` ran.
fate_of() {
  case $1 in
    "$not_reached") printf 'not reached' ;;
    0) printf ok ;;
    124 | 137) printf HANGS ;;
    *) printf 'FAILED (%d)' "$1" ;;
  esac
}

# shellcheck source=tools/gpu/pack.sh
source "$here/pack.sh"
# shellcheck source=tools/gpu/programs.sh
source "$here/programs.sh"
# shellcheck source=tools/gpu/parts.sh
source "$here/parts.sh"

running='' holder='' # processes of this one
handed_over=0        # in $SECONDS

# By what is known so far; a part may be reading what was known before.
choose_steps() {
  if timeout 30 python3 "$here/steps.py" "$results/facts.txt" >"$results/steps.txt.new"; then
    mv "$results/steps.txt.new" "$results/steps.txt"
  fi
}

# During and after each part, for nobody knows what becomes of it. Only a few files come back from
# such a machine. Tar says 1 of a file that is being written.
hand_over() {
  handed_over=$SECONDS
  choose_steps
  timeout 30 python3 "$here/table.py" "$results" >"$results/table.txt" || true
  [[ -n ${OUT:-} ]] || return 0
  cp "$results/table.txt" "$results/gpu.json" "$OUT/" || true
  tar -czf "$OUT/results.tar.gz.new" -C "$tree" results || (($? == 1)) || return 1
  mv "$OUT/results.tar.gz.new" "$OUT/results.tar.gz"
}

# Without persistence a device starts anew for each process that finds it unused. The holder ends
# with this process, even where that is killed.
hold_context() {
  has_gpu || return 0
  [[ -z $holder ]] || ! kill -0 "$holder" 2>/dev/null || return 0
  # Once by itself: what it unpacks the part needs too.
  (find_programs) >"$results/holder.txt" 2>&1 || return 0
  (find_programs && exec "$at/bin/driver_facts" hold $$) >"$results/holder.txt" 2>&1 &
  holder=$!
}

# A part is a process of its own, so that its time can be limited.
run_part() { # PART
  local part=$1 begin=$SECONDS limit=${limits[$1]} status=0
  rm -f -- "$results/notes-$part.txt"
  ((begin + limit <= most_seconds)) || limit=$((most_seconds - begin))
  ((limit >= 5)) || { say "$part: not reached, no time is left" && return 1; }
  hold_context
  choose_steps
  "${with_parent[@]}" timeout -k 10 "$limit" bash "$here/run.sh" --one "$part" "$limit" &
  running=$!
  while kill -0 "$running" 2>/dev/null; do
    sleep 0.3
    ((SECONDS < handed_over + hand_over_s)) || hand_over || true
  done
  wait "$running" || status=$?
  running=
  say "$part: $(fate_of "$status"), $((SECONDS - begin)) of $limit s"
  return "$status"
}

end() {
  local child
  for child in $running $holder; do kill "$child" 2>/dev/null || true; done
  hand_over || true
  cat "$results/table.txt" || true
}

run_parts() { # PART...
  local one failed=()
  trap end EXIT
  trap 'exit 143' HUP INT TERM
  for one in "$@"; do
    [[ $one != table ]] || continue
    run_part "$one" || failed+=("$one")
    hand_over || true
  done
  ((${#failed[@]} == 0)) || { say "failed: ${failed[*]}" && return 1; }
}

main() {
  local parts=() argument
  for argument in "$@"; do
    case $argument in
      -h | --help) usage && return ;;
      --plan) plan && return ;;
      --prebuild) prebuild; return ;; # each step of theirs has to succeed
      --pack) make_pack; return ;;
    esac
    [[ -n $argument && -n ${limits[$argument]:-} ]] ||
      { usage && say "unknown part '$argument'" && return 2; } >&2
    parts+=("$argument")
  done
  ((${#parts[@]})) || parts=(facts tests)
  mkdir -p "$results"
  # What earlier commands have brought back, where a machine is a new one each time. Some versions
  # of cp call it a failure to keep what is newer.
  [[ ! -d $pack/results ]] || cp -rn "$pack/results/." "$results/" || true
  [[ ! -f $pack/commit ]] || say "programs of $(cat "$pack/commit")"
  if [[ " ${parts[*]} " != *" build "* && -z ${GPU_STUB:-} ]] && has_gpu && ! (find_programs); then
    say "no program runs here: build and facts instead of ${parts[*]}"
    parts=(build facts)
  fi
  run_parts "${parts[@]}"
}

if [[ ${1:-} == --one ]]; then
  mkdir -p "$results"
  part=$2 part_end=$3 # in $SECONDS, which begin here
  "part_$part"
else
  main "$@"
fi
