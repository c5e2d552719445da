"""Peers timed by programs of their own: UCC's ucc_perftest and oneCCL's benchmark.

Both are MPI programs that take counts of elements and print a table to standard output. Their
loops are not ours: ucc_perftest has a barrier before each call, oneCCL's benchmark has none, and
either prints means over the calls. The slowest rank's mean counts here. How they are called and
what they print: UCC, tools/perf/ucc_pt_config.cc and ucc_pt_benchmark.cc; oneCCL's Benchmark User
Guide and examples/benchmark.
"""
import os
import pathlib
import re
import shlex
import shutil
from typing import Callable, NamedTuple

import machine_facts

FLOAT_BYTES = 4
# A call's time as far as it matters for the number of calls: these programs do not find it out.
GUESS_US, GUESS_BYTES_PER_US = 10, 1000
CALLS_MIN, CALLS_MAX = 10, 20000


def iterations(elements, options):
    """About as many calls as our own programs make in all their batches."""
    if options.iters != "auto":
        return int(options.iters) * options.batches
    took_us = GUESS_US + elements * FLOAT_BYTES / GUESS_BYTES_PER_US
    return max(CALLS_MIN, min(CALLS_MAX, round(options.batches * options.batch_ms * 1e3 / took_us)))


def numbers(line):
    """The line's words as numbers; nothing where it is no line of numbers alone."""
    try:
        return [float(word) for word in line.split()]
    except ValueError:
        return []


def ucc_flags(elements, calls):
    return ["-c", "allreduce", "-d", "float32", "-o", "sum", "-m", "host", "-b", str(elements),
            "-e", str(elements), "-n", str(calls), "-w", str(calls // 10 + 2)]


def ucc_times(output):
    """Microseconds by bytes. Columns: count, bytes, mean of the ranks, fastest, slowest rank; with
    -F bandwidths follow."""
    rows = [numbers(line) for line in output.splitlines()]
    return {int(row[1]): row[4] for row in rows if len(row) in (5, 8)}


def oneccl_flags(elements, calls):
    return ["--backend", "host", "--coll", "allreduce", "--dtype", "float32", "--reduction", "sum",
            "--elem_counts", str(elements), "--iters", str(calls), "--iter_policy", "off",
            "--warmup_iters", str(calls // 10 + 2), "--check", "last"]


def oneccl_times(output):
    """Microseconds by bytes. The line above the numbers names the columns, which versions differ
    in."""
    times, names = {}, []
    for line in output.splitlines():
        row = numbers(line)
        if "t_max[usec]" in line:
            names = line.split()
        elif names and len(row) == len(names):
            named = dict(zip(names, row))
            times[int(named["#bytes"])] = named["t_max[usec]"]
    return times


def ucc_version(program):
    beside = pathlib.Path(program).with_name("ucc_info")
    told = machine_facts.output_of(str(beside) if beside.is_file() else "ucc_info", "-v")
    found = re.search(r"version=(\S+)", told)
    return f"UCC {found[1]}" if found else "UCC, version unknown"


def oneccl_version(_):
    """As its folder is called, since the benchmark does not tell: .../ccl/2021.14."""
    root = os.environ.get("CCL_ROOT")
    return f"oneCCL {pathlib.Path(root).resolve().name}" if root else "oneCCL, version unknown"


class PeerProgram(NamedTuple):
    program: str  # looked for in PATH
    openmpi: bool  # by default Open MPI's launcher starts it, else the first mpirun of PATH
    needs: str  # environment variable without which a program of that name may be another one
    flags: Callable  # of a count of elements and a number of calls
    times: Callable  # of what it printed
    version: Callable  # of its path


PROGRAMS = {
    "ucc": PeerProgram("ucc_perftest", True, "", ucc_flags, ucc_times, ucc_version),
    "oneccl": PeerProgram("benchmark", False, "CCL_ROOT", oneccl_flags, oneccl_times,
                          oneccl_version),
}


class Asked(NamedTuple):
    """Where a program is, as the command line or PATH tell; its launcher, if not the usual one."""
    program: str
    mpirun: list
    version: str


def find(key, program, launcher):
    """`program`, `launcher`: the command line's, or nothing."""
    peer = PROGRAMS[key]
    if not program and (not peer.needs or peer.needs in os.environ):
        program = shutil.which(peer.program)
    version = peer.version(program) if program else ""
    return Asked(program, shlex.split(launcher or ""), version)


def missing(key, asked):
    peer = PROGRAMS[key]
    if not asked.program:
        known = f" with {peer.needs} set" if peer.needs else ""
        return f"no {peer.program} in PATH{known}, and no --{key}"
    if not shutil.which(asked.program):
        return f"--{key}: {asked.program} is no program"
    launcher = asked.mpirun[0] if asked.mpirun else "mpirun"
    return None if shutil.which(launcher) else f"no {launcher}"
