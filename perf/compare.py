#!/usr/bin/env python3
"""Times Pith's all-reduce and its peers' on this machine, interleaved in rounds.

In each round and group of sizes every contender runs once, so that whatever else the machine does
falls on all of them. A table holds the medians over the rounds; its ratio is the best peer's time
over Pith's: above 1 Pith is faster.

Cores of a virtual machine are near each other at one time and far apart at another, for seconds or
minutes. How far is measured before and after every run: where there are two kinds of runs each kind
has a table of its own, and runs in which the cores moved are left out.
"""

import argparse
import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

DEFAULT_SIZES = "8,256,4KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB"
GROUP_LIMITS = (4 << 10, 1 << 20)  # bytes; sizes up to each limit run in one process
UNITS = {"": 1, "B": 1, "K": 1 << 10, "KIB": 1 << 10, "M": 1 << 20, "MIB": 1 << 20,
         "G": 1 << 30, "GIB": 1 << 30}

TUNED = "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm {} " \
        "--mca coll_tuned_allreduce_algorithm_segmentsize 131072"
UCX = "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any -x UCX_TLS={}"
TCP = "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo"

# name: (program, options of mpirun or of the program)
CONTENDERS = {
    "pith-registered": ("seam_bench", "--transport shm --memory registered"),
    "pith-private": ("seam_bench", "--transport shm --memory private"),
    "pith-tcp": ("seam_bench", "--transport tcp --memory private"),
    "pith-threads": ("seam_bench", "--transport local --memory private --threads"),
    "ompi": ("openmpi_allreduce", ""),
    "ompi-alg3": ("openmpi_allreduce", TUNED.format(3)),  # recursive doubling
    "ompi-alg5": ("openmpi_allreduce", TUNED.format(5)),  # segmented ring
    "ompi-alg6": ("openmpi_allreduce", TUNED.format(6)),  # Rabenseifner
    "ompi-ucx": ("openmpi_allreduce", UCX.format("posix,cma,self")),
    "ompi-ucx-alg5": ("openmpi_allreduce", UCX.format("posix,cma,self") + " " + TUNED.format(5)),
    "ompi-tcp": ("openmpi_allreduce", TCP),
    "ompi-tcp-alg5": ("openmpi_allreduce", TCP + " " + TUNED.format(5)),
    "ompi-ucx-tcp": ("openmpi_allreduce", UCX.format("tcp,self") + " -x UCX_NET_DEVICES=lo"),
    "mpich": ("mpich_allreduce", ""),
    "mpich-tcp": ("mpich_allreduce", "-genv UCX_TLS tcp,self -genv UCX_NET_DEVICES lo"),
    "gloo-ring": ("gloo_allreduce", "--algorithm ring"),
    "gloo-hd": ("gloo_allreduce", "--algorithm halving_doubling"),
    "gloo-threads": ("gloo_allreduce", "--algorithm ring --threads"),
}
MPI_PROGRAMS = ("openmpi_allreduce", "mpich_allreduce")
OMPI_SHM = ["ompi", "ompi-alg3", "ompi-alg5", "ompi-alg6", "ompi-ucx", "ompi-ucx-alg5",
            "mpich"]
GLOO = ["gloo-ring", "gloo-hd"]  # sockets, as it has nothing else
CASES = {  # Pith's contender and its peers
    "registered": ("pith-registered", OMPI_SHM + GLOO),
    "private": ("pith-private", OMPI_SHM + GLOO),
    "tcp": ("pith-tcp", ["ompi-tcp", "ompi-tcp-alg5", "ompi-ucx-tcp", "mpich-tcp", *GLOO]),
    "threads": ("pith-threads", OMPI_SHM + ["gloo-threads"]),
    # Threads of pithCommInitAll beside processes: a ratio below 0.8 is too slow.
    "initall": ("pith-threads", ["pith-private"]),
}
RANKS = {"initall": 4}  # where --ranks does not say; other cases take 2


def parse_ranks(text):
    numbers = text.split(",")
    if not all(one.isdecimal() and int(one) > 0 for one in numbers):
        raise argparse.ArgumentTypeError(f"ranks is '{text}', expected a form of 4 or 2,4,8")
    return [int(one) for one in numbers]


def parse_size(text):
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in UNITS:
        raise argparse.ArgumentTypeError(f"size is '{text}', expected a form of 64KiB or 65536")
    return int(match[1]) * UNITS[match[2].upper()]


def size_name(size):
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def cpu_model():
    info = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    match = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    return match[1] if match else "unknown"


def groups_of(sizes):
    groups = {}
    for size in sorted(set(sizes)):
        groups.setdefault(sum(size > limit for limit in GROUP_LIMITS), []).append(size)
    return [groups[key] for key in sorted(groups)]


def launcher(program):
    """Debian calls them apart; whose `mpirun` is the other name is the administrator's choice."""
    if program == "mpich_allreduce":
        return "mpirun.mpich"
    return "mpirun.openmpi" if shutil.which("mpirun.openmpi") else "mpirun"


def command_of(name, options, group, json_path):
    program, extra = CONTENDERS[name]
    common = ["--ranks", str(options.ranks), "--sizes", ",".join(map(str, group)),
              "--iters", options.iters, "--batches", str(options.batches),
              "--batch-ms", str(options.batch_ms), "--json", str(json_path)]
    path = str(options.bin / program)
    bind = "core" if options.ranks <= os.cpu_count() else "none"  # the program binds itself then
    if program == "mpich_allreduce":
        return [launcher(program), "-n", str(options.ranks), "-bind-to", bind, *extra.split(), path,
                *common]
    if program not in MPI_PROGRAMS:
        return [path, *common, *extra.split()]
    return [launcher(program), "--allow-run-as-root", "--oversubscribe", "--bind-to", bind,
            "-n", str(options.ranks), *extra.split(), path, *common]


def busy_seconds():
    """CPU seconds spent by the whole machine since boot."""
    fields = pathlib.Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    ticks = [int(field) for field in fields[:8]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    usage = [resource.getrusage(who)
             for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def wait_for_quiet(seconds):
    """Waits until a quarter of a second passes with the cores idle, at most `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = busy_seconds()
        time.sleep(0.25)
        if busy_seconds() - before <= 0.02 * os.cpu_count():
            return


def core_distance(options):
    """Nanoseconds between two cores and back, now; 0 where that cannot be told."""
    program = options.bin / "core_distance"
    if not program.is_file():
        return 0.0
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    return float(done.stdout)


class Run:
    """One run of one contender: microseconds by size, or an error."""

    def __init__(self, name, options, group, folder):
        json_path = pathlib.Path(folder) / "run.json"
        json_path.unlink(missing_ok=True)
        wait_for_quiet(options.quiet_wait)
        before = core_distance(options)
        start, busy, own = time.monotonic(), busy_seconds(), own_seconds()
        self.error = self._execute(command_of(name, options, group, json_path), options.limit)
        foreign = (busy_seconds() - busy) - (own_seconds() - own)
        room = (time.monotonic() - start) * os.cpu_count()
        self.foreign = max(0.0, foreign / room)
        self.distances = (before, core_distance(options))
        self.times, self.about = {}, {}
        if self.error is None:
            self.about = json.loads(json_path.read_text(encoding="utf-8"))
            self.times = {row["bytes"]: row["us"] for row in self.about.pop("rows")}

    @staticmethod
    def _execute(command, limit):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                 text=True, start_new_session=True)
        try:
            _, errors = child.communicate(timeout=limit)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            os.killpg(child.pid, signal.SIGTERM)  # mpirun ends its ranks, the others die at once
            try:
                child.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
            if isinstance(error, KeyboardInterrupt):
                raise
            return f"no end within {limit} s"
        if child.returncode == 0:
            return None
        lines = errors.strip().splitlines() or ["no message"]
        return f"exit status {child.returncode}: {lines[0][:200]}"


def run_when_quiet(name, options, group, folder):
    """The run with the least foreign load of a few; the first is taken where it was quiet."""
    best = None
    for _ in range(1 + options.retries):
        run = Run(name, options, group, folder)
        if run.error is not None:
            return run
        if best is None or run.foreign < best.foreign:
            best = run
        if best.foreign * 100 <= options.foreign_max:
            break
    return best


class Results:
    def __init__(self, names):
        self.rounds = {name: {} for name in names}  # name: {bytes: [(us, distances) a round]}
        self.errors = {}
        self.about = {}
        self.foreign = []
        self.noisy = 0

    def add(self, name, run, foreign_max):
        if run.error is not None:
            self.errors[name] = run.error
            return
        self.about[name] = run.about
        self.foreign.append(run.foreign)
        self.noisy += run.foreign * 100 > foreign_max
        for size, took in run.times.items():
            self.rounds[name].setdefault(size, []).append((took, run.distances))

    def states(self):
        """The states of the cores that runs found: (name, least, most) of nanoseconds between."""
        found = [one for sizes in self.rounds.values() for runs in sizes.values()
                 for _, distances in runs for one in distances]
        least, most = min(found, default=0), max(found, default=0)
        if least <= 0 or most < 2 * least:
            return [("all runs", 0, math.inf)]
        middle = math.sqrt(least * most)
        return [("cores near each other", 0, middle), ("cores far apart", middle, math.inf)]

    def median(self, name, size, state):
        _, least, most = state
        values = [took for took, distances in self.rounds[name].get(size, [])
                  if all(least <= one < most for one in distances)]
        return statistics.median(values) if values else None


def measure(names, options):
    results = Results(names)
    groups = groups_of(options.sizes)
    with tempfile.TemporaryDirectory(prefix="compare-") as folder:
        for number in range(options.rounds):
            turn = number % len(names)  # another contender comes first in each round
            for group in groups:
                for name in names[turn:] + names[:turn]:
                    if name in results.errors:
                        continue
                    run = run_when_quiet(name, options, group, folder)
                    results.add(name, run, options.foreign_max)
                    if run.error is not None:
                        print(f"# {name}: {run.error}", file=sys.stderr)
            print(f"# round {number + 1} of {options.rounds} done", file=sys.stderr)
    return results


def rows_of(case, results, sizes, state):
    ours, peers = CASES[case]
    rows = []
    for size in sorted(set(sizes)):
        pith = results.median(ours, size, state) if ours in results.rounds else None
        times = {peer: results.median(peer, size, state)
                 for peer in peers if peer in results.rounds}
        known = {peer: took for peer, took in times.items() if took is not None}
        best = min(known, key=known.get) if known else None
        ratio = known[best] / pith if best and pith else None
        rows.append({"bytes": size, "pith_us": pith, "peers_us": times, "best_peer": best,
                     "ratio": ratio})
    return rows


def number(value, width):
    if value is None:
        return f"{'-':>{width}}"
    return f"{value:>{width}.{2 if value < 1000 else 0}f}"


def print_case(case, rows, results, state):
    ours, peers = CASES[case]
    peers = [peer for peer in peers if peer in results.rounds]
    print(f"\n## {case}, {state}: us per call, medians over rounds; "
          f"ratio = best peer / {ours}")
    widths = [max(len(peer), 9) for peer in peers]
    head = " ".join(f"{peer:>{width}}" for peer, width in zip(peers, widths))
    print(f"{'size':>8} {ours:>15} {head} {'ratio':>6}  best peer")
    for row in rows:
        cells = " ".join(number(row["peers_us"][peer], width)
                         for peer, width in zip(peers, widths))
        print(f"{size_name(row['bytes']):>8} {number(row['pith_us'], 15)} {cells} "
              f"{number(row['ratio'], 6)}  {row['best_peer'] or '-'}")


def available(names, options):
    kept = []
    for name in names:
        program = CONTENDERS[name][0]
        if not (options.bin / program).is_file():
            print(f"# {name} left out: no program {options.bin / program}", file=sys.stderr)
        elif program in MPI_PROGRAMS and shutil.which(launcher(program)) is None:
            print(f"# {name} left out: no {launcher(program)}", file=sys.stderr)
        else:
            kept.append(name)
    return kept


def parse_arguments():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--case", choices=[*CASES, "all"], default="all")
    add("--bin", type=pathlib.Path, default=root / "build" / "bin", help="the programs' folder")
    add("--ranks", type=parse_ranks,
        help="numbers of ranks, tables for each: 2,4,8; default 2, with --case initall 4")
    add("--rounds", type=int, default=5)
    add("--sizes", type=lambda text: [parse_size(one) for one in text.split(",")],
        default=DEFAULT_SIZES, help=f"default {DEFAULT_SIZES}")
    add("--iters", default="auto", help="calls in a batch")
    add("--batches", type=int, default=7, help="timed batches a size and run")
    add("--batch-ms", type=float, default=20, help="length of a batch where --iters is auto")
    add("--json", type=pathlib.Path,
        help="also write everything to this file: a list where there are several numbers of ranks")
    add("--only", help="comma-separated names: leave the other contenders out")
    add("--limit", type=float, default=300, help="seconds for one run")
    add("--quiet-wait", type=float, default=10, help="seconds to wait for idle cores before a run")
    add("--foreign-max", type=float, default=8,
        help="percent of the cores taken by others above which a run is noisy")
    add("--retries", type=int, default=2, help="further runs where one was noisy")
    options = parser.parse_args()
    if options.ranks is None:
        options.ranks = [RANKS.get(options.case, 2)]
    return options


def compare(names, cases, options):
    """The contenders with one number of ranks: prints their tables, returns all that came out."""
    results = measure(names, options)
    foreign = statistics.median(results.foreign) * 100 if results.foreign else 0.0
    summary = {"cpu": cpu_model(), "cores": os.cpu_count(), "ranks": options.ranks,
               "rounds": options.rounds, "batches": options.batches, "runs_noisy": results.noisy,
               "foreign_percent_median": foreign, "errors": results.errors,
               "contenders": results.about, "rounds_us": results.rounds, "cases": {}}
    print(f"# all-reduce, float32 sum: {options.ranks} ranks on {os.cpu_count()} cores, "
          f"{summary['cpu']}")
    print(f"# {options.rounds} rounds; foreign load: median {foreign:.1f} % of the cores, "
          f"{results.noisy} of {len(results.foreign)} runs above {options.foreign_max:g} %")
    for case in cases:
        tables = {state[0]: rows_of(case, results, options.sizes, state)
                  for state in results.states()}
        summary["cases"][case] = tables
        for state, rows in tables.items():
            print_case(case, rows, results, state)
    return summary


def main():
    options = parse_arguments()
    # Whoever ends this ends its ranks too, as an interrupt does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cases = list(CASES) if options.case == "all" else [options.case]
    wanted = (name for case in cases for name in (CASES[case][0], *CASES[case][1]))
    names = list(dict.fromkeys(wanted))
    if options.only:
        only = options.only.split(",")
        if unknown := set(only) - set(CONTENDERS):
            sys.exit(f"--only names {sorted(unknown)}, known are {list(CONTENDERS)}")
        names = [name for name in names if name in only]
    names = available(names, options)
    if not names:
        sys.exit("nothing to run")
    summaries = []
    for ranks in options.ranks:
        if summaries:
            print()
        one = argparse.Namespace(**{**vars(options), "ranks": ranks})
        summaries.append(compare(names, cases, one))
    if options.json:
        document = summaries[0] if len(summaries) == 1 else summaries
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    failed = {name for one in summaries for name in one["errors"]}
    sys.exit(1 if any(name.startswith("pith") for name in failed) else 0)


if __name__ == "__main__":
    main()
