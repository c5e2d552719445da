#!/usr/bin/env bash
# fuzz.sh PROGRAM SECONDS: fuzzes from the program's own seeds and what earlier runs have found,
# which is kept beside the program. What fails is written there too; PROGRAM FILE runs it again.
set -euo pipefail
program=$1
seconds=$2
corpus=$program.corpus
mkdir -p "$corpus"
"$program" --seeds "$corpus"
# The longest seeds take 25 kB. A peer may announce a message of 2 GiB, which takes memory only as
# it comes.
exec "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
  -malloc_limit_mb=4096 -max_len=32768 -print_final_stats=1 -artifact_prefix="$program." "$corpus"
