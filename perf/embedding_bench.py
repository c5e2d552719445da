#!/usr/bin/env python3
"""Times PyTorch's all-reduce of sparse tensors, as gradients of embeddings are: gloo and pith.

Every rank has a process on this machine and one thread. A gradient has ENTRIES rows of WIDTH floats
before equal rows are added, drawn from ROWS by Zipf's law, so that ranks have the frequent ones in
common. Rounds are interleaved; printed are the medians of the slowest rank's times. Needs PyTorch
and the wheel of Pith (./pith wheel --torch).
"""
import argparse
import importlib
import multiprocessing
import os
import socket
import statistics
import time

CALLS = 8


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def gradient_of(torch, rank, options):
    generator = torch.Generator().manual_seed(rank)
    drawn = torch.rand(options.entries, generator=generator, dtype=torch.float64)
    rows = (options.rows ** drawn).long().clamp(max=options.rows - 1)
    values = torch.randn(options.entries, options.width, generator=generator)
    size = (options.rows, options.width)
    return torch.sparse_coo_tensor(rows[None], values, size).coalesce()


def run_rank(rank, size, backend, port, options, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch = importlib.import_module("torch")
    if backend == "pith":
        importlib.import_module("pith.torch")
    torch.set_num_threads(1)
    torch.distributed.init_process_group(backend, rank=rank, world_size=size)
    gradient = gradient_of(torch, rank, options)
    times = []
    for _ in range(CALLS):
        tensor = gradient.clone()
        torch.distributed.barrier()
        begun = time.perf_counter()
        torch.distributed.all_reduce(tensor)
        times.append(time.perf_counter() - begun)
    results.put(statistics.median(times))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def seconds_of(backend, size, options):
    context = multiprocessing.get_context("spawn")
    results, port = context.Queue(), free_port()
    ranks = [context.Process(target=run_rank, args=(rank, size, backend, port, options, results))
             for rank in range(size)]
    for rank in ranks:
        rank.start()
    slowest = max(results.get(timeout=120) for _ in ranks)
    for rank in ranks:
        rank.join()
    return slowest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for size in map(int, options.ranks.split(",")):
        times = {"gloo": [], "pith": []}
        for _ in range(options.rounds):
            for backend, all_times in times.items():
                all_times.append(seconds_of(backend, size, options))
        gloo, pith = (statistics.median(all_times) for all_times in times.values())
        print(f"{size} ranks: gloo {1e3 * gloo:.1f} ms, pith {1e3 * pith:.1f} ms, "
              f"{gloo / pith:.2f} times as fast")


if __name__ == "__main__":
    main()
