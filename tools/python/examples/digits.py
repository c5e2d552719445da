"""Trains on handwritten digits with NumPy alone; the gradients are compressed.

    mpirun -n 4 python digits.py [digits.csv]
    torchrun --nproc_per_node 4 digits.py
"""

import pathlib
import sys

import numpy as np

import pith

DATA = pathlib.Path(__file__).parents[2] / "demo" / "data" / "digits.csv"
HIDDEN, STEPS, BATCH, RATE = 64, 400, 64, 0.2


def read(path: str) -> tuple[np.ndarray, np.ndarray]:
    table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    np.random.default_rng(0).shuffle(table)
    return table[:, :64] / 16, table[:, 64].astype(int)


def main() -> None:
    pixels, digits = read(sys.argv[1] if len(sys.argv) > 1 else str(DATA))
    with pith.init() as comm:
        # One vector holds all weights, and one all gradients: a call sends many tensors.
        random = np.random.default_rng(1)
        weights = random.normal(0, 0.1, 64 * HIDDEN + HIDDEN * 10).astype(np.float32)
        first = weights[:64 * HIDDEN].reshape(64, HIDDEN)
        second = weights[64 * HIDDEN:].reshape(HIDDEN, 10)
        gradient, mean = pith.empty(weights.size), pith.empty(weights.size)
        compressor = pith.Compressor("ar-topk:density=0.05,bypass=never")
        mine = np.random.default_rng(100 + comm.rank)
        for step in range(STEPS):
            rows = mine.integers(0, 1437, BATCH)
            x, hidden = pixels[rows], np.maximum(pixels[rows] @ first, 0)
            error = np.exp(hidden @ second)
            error /= error.sum(axis=1, keepdims=True)
            error[np.arange(BATCH), digits[rows]] -= 1
            back = (error @ second.T) * (hidden > 0)
            gradient[:first.size] = (x.T @ back).ravel() / BATCH
            gradient[first.size:] = (hidden.T @ error).ravel() / BATCH
            comm.all_reduce(gradient, "avg", out=mean, compressor=compressor)
            weights -= RATE * mean
            if comm.rank == 0 and step % 100 == 99:
                print(f"step {step + 1}: {compressor.stats.density:.1%} of the gradient was sent")
        guess = (np.maximum(pixels[1437:] @ first, 0) @ second).argmax(axis=1)
        if comm.rank == 0:
            print(f"{(guess == digits[1437:]).mean():.1%} of 360 digits are recognized")


if __name__ == "__main__":
    main()
