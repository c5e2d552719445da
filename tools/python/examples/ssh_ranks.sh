#!/usr/bin/env bash
# usage: ssh_ranks.sh HOST[:RANKS]... -- PROGRAM.py [ARGUMENTS]
# Starts the ranks by ssh, in the same folder on every host: ssh_ranks.sh alice:2 bob:2 -- train.py
# The program calls torch.distributed.init_process_group("pith"). PYTHON and MASTER_PORT may be set;
# the first host must be reachable under its name by all others.
set -euo pipefail
hosts=()
while (($#)) && [[ $1 != -- ]]; do
  ranks=1
  [[ $1 == *:* ]] && ranks=${1##*:}
  for ((i = 0; i < ranks; ++i)); do hosts+=("${1%:*}"); done
  shift
done
if (($# < 2 || ${#hosts[@]} == 0)); then
  sed -n '2p' "$0" >&2
  exit 2
fi
shift
pids=()
for rank in "${!hosts[@]}"; do
  printf -v command '%q ' env RANK="$rank" WORLD_SIZE=${#hosts[@]} MASTER_ADDR="${hosts[0]}" \
    MASTER_PORT="${MASTER_PORT:-29500}" "${PYTHON:-python3}" "$@"
  ssh "${hosts[rank]}" "cd $(printf %q "$PWD") && exec $command" </dev/null &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit "$status"
