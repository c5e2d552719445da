#!/usr/bin/env python3
"""What a call costs in Python over the same call in C: all_reduce of 8 bytes, 2 ranks, shared
memory. Runs of a C program and of Python take turns, on the same libpith; prints the medians of the
fastest batches. Needs the package pith, NumPy, and cc. Usage: measure_overhead.py [ROUNDS]"""

import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

import pith

INCLUDE = pathlib.Path(__file__).parents[2] / "include"
CALLS, BATCHES = 2000, 25

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
  double x = 1, y = 0, best = 1e9;
  if (pithCommInitEnv(&comm)) return 1;
  for (int batch = 0; batch < BATCHES; ++batch) {
    const double begin = now();
    for (int i = 0; i < CALLS; ++i)
      if (pithAllReduce(&x, &y, 1, pithFloat64, pithSum, comm, NULL)) return 1;
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
x, y = np.ones(1), np.empty(1)
best = 1e9
for batch in range(BATCHES):
    begin = time.perf_counter()
    for i in range(CALLS):
        comm.all_reduce(x, "sum", WHERE)
    best = min(best, (time.perf_counter() - begin) / CALLS * 1e6)
print(best)
comm.finalize()
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
                                   "PITH_ROOT": f"127.0.0.1:{port}", "PITH_TRANSPORT": "shm"})
             for rank in range(2)]
    return max(float(rank.communicate(timeout=100)[0]) for rank in ranks)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    library = pathlib.Path(pith.__file__).parent / "libpith.so.0"
    names = {"CALLS": str(CALLS), "BATCHES": str(BATCHES)}
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "c_calls"
        subprocess.run(["cc", "-O2", "-xc", "-", f"-I{INCLUDE}", "-xnone", str(library),
                        f"-Wl,-rpath,{library.parent}", "-o", str(program),
                        *(f"-D{name}={value}" for name, value in names.items())],
                       input=C, text=True, check=True)
        scripts = {}
        for where in ("y", "None"):
            text = PYTHON.replace("WHERE", where)
            for name, value in names.items():
                text = text.replace(name, value)
            scripts[where] = [sys.executable, "-c", text]
        took: dict[str, list[float]] = {"C": [], "out=y": [], "out=None": []}
        for _ in range(rounds):
            took["C"].append(microseconds([str(program)]))
            took["out=y"].append(microseconds(scripts["y"]))
            took["out=None"].append(microseconds(scripts["None"]))
    base = statistics.median(took["C"])
    print(f"C: {base:.2f} us a call")
    for name in ("out=y", "out=None"):
        median = statistics.median(took[name])
        print(f"Python, {name}: {median:.2f} us a call, {median - base:+.2f} us")


if __name__ == "__main__":
    main()
