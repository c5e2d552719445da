#!/usr/bin/env python3
"""The exact top-k step with error feedback as PyTorch does it: add, abs, topk, index.

torch_topk.py --json FILE writes the median microseconds by case, named as cuda_perf names them.
"""
import argparse
import json
import statistics

import torch


def step(accumulator, gradient, k):
    accumulator.add_(gradient)
    indices = torch.topk(accumulator.abs(), k, sorted=False).indices
    values = accumulator[indices]
    accumulator[indices] = 0
    return indices, values


def measure(elements, density, rounds):
    pristine = torch.randn(elements, device="cuda")
    gradient = torch.randn(elements, device="cuda")
    accumulator = torch.empty_like(pristine)
    k = int(elements * density)
    times = []
    for number in range(rounds + 2):
        accumulator.copy_(pristine)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        indices, values = step(accumulator, gradient, k)
        end.record()
        torch.cuda.synchronize()
        if number >= 2:
            times.append(begin.elapsed_time(end) * 1000)
    assert indices.numel() == k and values.abs().min() >= accumulator.abs().max()
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True)
    parser.add_argument("--elements", type=int, default=100_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch_topk: no GPU: skipped")
        return
    found = {}
    for density in (0.01, 0.001):
        case = f"top-k {100 * density:.2g}% of {arguments.elements // 1_000_000}M"
        found[case] = measure(arguments.elements, density, arguments.rounds)
        print(f"{case:22} torch: add, abs, topk, index {found[case]:12.1f} us")
        with open(arguments.json, "w", encoding="utf-8") as file:  # the next may not end
            json.dump(found, file)


if __name__ == "__main__":
    main()
