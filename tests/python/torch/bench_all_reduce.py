"""dist.all_reduce with the backend pith beside Gloo, in one run, interleaved.

    bench_all_reduce.py [--ranks 2,4] [--sizes 8,1K,64K,1M,16M] [--transport shm,tcp] [--rounds 5]

Rank i is bound to core i modulo the number of cores. A round times each backend once for each size;
the ratio is that of the medians over the rounds: above 1, pith is faster.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

from ranks import run_ranks


def bytes_of(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def calls_for(size: int) -> int:
    return max(3, min(2000, (1 << 23) // max(size, 4096)))


def time_calls(group: dist.ProcessGroup, tensor: torch.Tensor, calls: int) -> float:
    dist.all_reduce(tensor, group=group)
    dist.barrier(group)
    begin = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - begin) / calls


def run(rank: int, size: int, sizes: list[int], rounds: int) -> dict[str, dict[int, float]]:
    os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})
    groups = {"pith": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    times: dict[str, dict[int, list[float]]] = {name: {n: [] for n in sizes} for name in groups}
    for turn in range(rounds):
        for n in sizes:
            order = list(groups) if turn % 2 == 0 else list(reversed(groups))
            for name in order:
                took = torch.tensor([time_calls(groups[name], torch.zeros(n // 4), calls_for(n))])
                dist.all_reduce(took, op=dist.ReduceOp.MAX)
                times[name][n].append(float(took))
    return {
        name: {n: statistics.median(found) for n, found in by_size.items()}
        for name, by_size in times.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes", default="8,1K,8K,64K,256K,1M,4M,16M")
    parser.add_argument("--transport", default="shm,tcp")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    sizes = [bytes_of(text) for text in args.sizes.split(",")]
    for transport in args.transport.split(","):
        for ranks in (int(text) for text in args.ranks.split(",")):
            settings = {"PITH_TRANSPORT": transport}
            found = run_ranks(run, ranks, sizes, args.rounds, settings=settings, timeout=600)[0]
            print(f"{transport}, {ranks} ranks: bytes, us with pith, us with Gloo, ratio")
            for n in sizes:
                pith, gloo = found["pith"][n] * 1e6, found["gloo"][n] * 1e6
                print(f"{n:>10} {pith:>10.1f} {gloo:>10.1f} {gloo / pith:>8.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
