#!/usr/bin/env python3
"""What a call costs in Python, and in PyTorch if it is there, over the same call in C: all_reduce
in place of 8 bytes and 1 MiB, 2 ranks, shared memory. Runs of a C program and of Python take turns,
on the same libpith; prints the medians of the fastest batches. Needs the package pith, NumPy, and
cc. Usage: measure_overhead.py [ROUNDS]"""

import importlib.util
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

import pith

INCLUDE = pathlib.Path(__file__).parents[2] / "include"
# Of calls of 8 bytes, and of 1 MiB.
SIZES = ({"COUNT": 1, "CALLS": 2000, "BATCHES": 25},
         {"COUNT": 1 << 17, "CALLS": 50, "BATCHES": 25})

C = """
#include <pith/pith.h>
#include <stdio.h>
#include <time.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
int main(void) {
  pithComm_t comm;
  static double x[COUNT];
  double best = 1e9;
  if (pithCommInitEnv(&comm)) return 1;
  for (int batch = 0; batch < BATCHES; ++batch) {
    const double begin = now();
    for (int i = 0; i < CALLS; ++i)
      if (pithAllReduce(x, x, COUNT, pithFloat64, pithSum, comm, NULL)) return 1;
    const double took = (now() - begin) / CALLS;
    if (took < best) best = took;
  }
  printf("%f\\n", best);
  return pithCommDestroy(comm);
}
"""

PYTHON = """
import time, numpy as np, pith
comm = pith.init()
x = np.zeros(COUNT)
best = 1e9
for batch in range(BATCHES):
    begin = time.perf_counter()
    for i in range(CALLS):
        comm.all_reduce(x, "sum", WHERE)
    best = min(best, (time.perf_counter() - begin) / CALLS * 1e6)
print(best)
comm.finalize()
"""

TORCH = """
import time, torch, torch.distributed as dist, pith.torch
from torch.testing._internal.distributed.fake_pg import FakeStore
store = {"store": FakeStore(), "rank": 0, "world_size": 2} if "BACKEND" == "fake" else {}
dist.init_process_group("BACKEND", **store)
x = torch.zeros(COUNT, dtype=torch.float64)
best = 1e9
for batch in range(BATCHES):
    begin = time.perf_counter()
    for i in range(CALLS):
        dist.all_reduce(x)
    best = min(best, (time.perf_counter() - begin) / CALLS * 1e6)
print(best)
dist.destroy_process_group()
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def microseconds(command: list[str]) -> float:
    """Of the slower rank's fastest batch."""
    port = free_port()
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PITH_RANK": str(rank), "PITH_SIZE": "2",
                                   "PITH_ROOT": f"127.0.0.1:{port}", "PITH_TRANSPORT": "shm",
                                   "RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1",
                                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
             for rank in range(2)]
    return max(float(rank.communicate(timeout=100)[0]) for rank in ranks)


def c_program(folder: str, numbers: dict[str, int]) -> list[str]:
    library = pathlib.Path(pith.__file__).parent / "libpith.so.0"
    program = pathlib.Path(folder) / f"c_calls_{numbers['COUNT']}"
    subprocess.run(["cc", "-O2", "-xc", "-", f"-I{INCLUDE}", "-xnone", str(library),
                    f"-Wl,-rpath,{library.parent}", "-o", str(program),
                    *(f"-D{name}={value}" for name, value in numbers.items())],
                   input=C, text=True, check=True)
    return [str(program)]


def python_program(text: str, numbers: dict[str, int]) -> list[str]:
    for name, value in numbers.items():
        text = text.replace(name, str(value))
    return [sys.executable, "-c", text]


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    scripts = {"Python, out=x": PYTHON.replace("WHERE", "x"),
               "Python, out=None": PYTHON.replace("WHERE", "None")}
    if importlib.util.find_spec("torch"):
        scripts["PyTorch"] = TORCH.replace("BACKEND", "pith")
        scripts["PyTorch's backend that does nothing"] = TORCH.replace("BACKEND", "fake")
    with tempfile.TemporaryDirectory() as folder:
        for numbers in SIZES:
            commands = {"C": c_program(folder, numbers)}
            commands |= {name: python_program(text, numbers) for name, text in scripts.items()}
            took: dict[str, list[float]] = {name: [] for name in commands}
            for _ in range(rounds):
                for name, command in commands.items():
                    took[name].append(microseconds(command))
            base = statistics.median(took["C"])
            for name, times in took.items():
                median = statistics.median(times)
                print(f"{8 * numbers['COUNT']} bytes, {name}: {median:.2f} us a call, "
                      f"{median - base:+.2f} us", flush=True)


if __name__ == "__main__":
    main()
