#!/usr/bin/env python3
"""Verbs beside its peers over soft-RoCE, in the virtual machine of tests/rdma: Pith's verbs, ucx
and tcp, Open MPI over UCX's rc, and perftest's bounds. It is emulated: only ratios count.

    perf/rdma_lab.py [--build build] [--rounds 3] [--sizes 8,1048576] [--directory DIR]

Needs perftest, Open MPI, what tests/rdma/vm.sh names, and of the build seam_bench and
openmpi_bench. Three rounds of all sizes take six minutes."""
import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = "10.77.0.1"
# The emulator translates code when it first runs: short series would time that.
CALLS = {8: 5000, 1024: 5000, 4096: 3000, 65536: 200, 1 << 20: 20, 8 << 20: 4, 64 << 20: 1}
PROGRAMS = ("seam_bench", "openmpi_bench")


def output(command, **environment):
    command = [str(word) for word in command]
    for _ in range(20):
        run = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=300)
        if "Couldn't connect" not in run.stdout:  # perftest's server is not there yet
            break
        time.sleep(0.5)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {run.returncode}: {run.stdout}")
    return run.stdout


def line_of(size, said):
    """The columns of the line for this size."""
    line = re.search(rf"^\s*{size}\s.*$", said, re.MULTILINE)
    if not line:
        sys.exit(f"no line for {size} bytes: {said}")
    return [float(word) for word in line.group().split()]


def perftest(program, size, calls, *options):
    command = [program, "-d", "rxe0", "-x", "1", "-m", "4096", "-s", str(size), "-n", str(calls),
               *options]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    said = output([*command, ADDRESS])
    server.wait(60)
    return line_of(size, said)


def write_seconds(size):
    """How long one write of this size takes at least: its latency, or by bandwidth."""
    if size < 65536:
        return perftest("ib_write_lat", size, 5000)[4] * 1e-6
    return size / (perftest("ib_write_bw", size, 10)[3] * (1 << 20))


def median_seconds(command, size, **environment):
    """Of three batches. Both programs have the same loop, and bind rank i to core i."""
    said = output([*command, "--sizes", size, "--iters", CALLS[size], "--batches", 3],
                  **environment)
    return line_of(size, said)[2] * 1e-6


def pith_seconds(binaries, transport, size, *options):
    return median_seconds([binaries / "seam_bench", "--ranks", 2, "--memory", "private", *options],
                          size, PITH_TRANSPORT=transport, PITH_HOST=ADDRESS)


def open_mpi_seconds(binaries, size):
    return median_seconds(["mpirun", "-n", 2, "--oversubscribe", "--bind-to", "core", "--mca",
                           "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca",
                           "pml_ucx_devices", "any", binaries / "openmpi_bench"], size,
                          OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                          UCX_TLS="rc,self", UCX_NET_DEVICES="rxe0:1")


def cores_used(binaries, transport):
    """Cores that both ranks use while 64 MiB move, of the machine's two; threads of the kernel are
    not counted."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    for _ in range(3):
        pith_seconds(binaries, transport, 64 << 20)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used / (time.monotonic() - start)


def inside(binaries, rounds, sizes):
    print(f"{'bytes':>9} {'verbs us':>10} {'ucx':>6} {'tcp':>6} {'Open MPI':>8} "
          f"{'send us':>10} {'write':>6}   (times of others by that of verbs; of a perftest write "
          "by that of a pithSend)")
    for size in sizes:
        times = {name: [] for name in ("verbs", "ucx", "tcp", "mpi", "send", "write")}
        for _ in range(rounds):
            for transport in ("verbs", "ucx", "tcp"):
                times[transport].append(pith_seconds(binaries, transport, size))
            times["mpi"].append(open_mpi_seconds(binaries, size))
            times["send"].append(pith_seconds(binaries, "verbs", size, "--ping-pong") / 2)
            times["write"].append(write_seconds(size))
        median = {name: statistics.median(values) for name, values in times.items()}
        ratios = [median[name] / median["verbs"] for name in ("ucx", "tcp", "mpi")]
        print(f"{size:9} {median['verbs'] * 1e6:10.1f} {ratios[0]:6.2f} {ratios[1]:6.2f} "
              f"{ratios[2]:8.2f} {median['send'] * 1e6:10.1f} "
              f"{median['write'] / median['send']:6.2f}", flush=True)
    used = {transport: cores_used(binaries, transport) for transport in ("verbs", "tcp")}
    print(f"cores used while 64 MiB move: verbs {used['verbs']:.2f}, tcp {used['tcp']:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default=",".join(map(str, CALLS)), help="bytes, of these")
    parser.add_argument("--directory", type=Path, help="of the machine; build/rdma_vm")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    binaries = options.build.resolve() / "bin"
    missing = [name for name in PROGRAMS if not (binaries / name).exists()]
    if missing:
        parser.error(f"{binaries} has no {', '.join(missing)}")
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}, expected at least 1")
    sizes = [int(size) for size in options.sizes.split(",") if size.isdigit()]
    if not sizes or not CALLS.keys() >= set(sizes):
        parser.error(f"--sizes is {options.sizes}, expected some of {', '.join(map(str, CALLS))}")
    if options.inside:
        return inside(binaries, options.rounds, sizes)
    directory = (options.directory or options.build / "rdma_vm").resolve()
    directory.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [ROOT / "tests/rdma/vm.sh", "--seconds", "1800", directory, sys.executable, "-B", __file__,
         "--inside", "--build", options.build.resolve(), "--rounds", str(options.rounds), "--sizes",
         options.sizes],
        check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
