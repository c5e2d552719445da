"""One step of exact top-k with error feedback in torch; prints its median milliseconds.

Arguments: elements, density, rounds.
"""
import sys
import time

import torch


def step(accumulator, gradient, k):
    accumulator.add_(gradient)
    indices = torch.topk(accumulator.abs(), k, sorted=False).indices
    values = accumulator[indices]
    accumulator[indices] = 0
    return indices, values


def main():
    count, density, rounds = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    gradient = torch.randn(count)
    residual = 0.3 * torch.randn(count)
    seconds = []
    for _ in range(rounds + 1):
        accumulator = residual.clone()
        start = time.perf_counter()
        step(accumulator, gradient, max(1, int(count * density)))
        seconds.append(time.perf_counter() - start)
    print(1e3 * sorted(seconds[1:])[rounds // 2])


main()
