"""One step of exact top-k with error feedback in torch, on one thread and on all cores.

Prints the better median in milliseconds, and its number of threads. Arguments: elements, density,
rounds.
"""
import os
import sys
import time

import torch


def step(accumulator, gradient, k):
    accumulator.add_(gradient)
    indices = torch.topk(accumulator.abs(), k, sorted=False).indices
    values = accumulator[indices]
    accumulator[indices] = 0
    return indices, values


def median_ms(residual, gradient, k, rounds):
    seconds = []
    for _ in range(rounds + 1):
        accumulator = residual.clone()
        start = time.perf_counter()
        step(accumulator, gradient, k)
        seconds.append(time.perf_counter() - start)
    return 1e3 * sorted(seconds[1:])[rounds // 2]


def all_cores():
    """Their number; whoever starts this may have pinned it to one."""
    os.sched_setaffinity(0, range(os.cpu_count()))
    return len(os.sched_getaffinity(0))


def main():
    count, density, rounds = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(1)
    torch.set_num_threads(1)
    gradient = torch.randn(count)
    residual = 0.3 * torch.randn(count)
    k = max(1, int(count * density))
    times = {1: median_ms(residual, gradient, k, rounds)}
    cores = all_cores()  # torch makes its threads, which inherit this, when it first needs them
    if cores > 1:
        torch.set_num_threads(cores)
        times[cores] = median_ms(residual, gradient, k, rounds)
    threads = min(times, key=times.get)
    print(times[threads], threads)


main()
