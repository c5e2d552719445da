#!/usr/bin/env python3
"""Times a collective of Pith and its peers on this machine, interleaved in rounds.

In each round and group of sizes every contender runs once, so that whatever else the machine does
falls on all of them. A table holds the medians over the rounds; its ratio is the best peer's time
over Pith's: above 1 Pith is faster.

Cores of a virtual machine are near each other at one time and far apart at another, for seconds or
minutes. How far is measured before and after every run: where there are two kinds of runs each kind
has a table of its own, and runs in which the cores moved are left out.

--results FOLDER keeps a set of results in a folder of its own below: tables, JSON, the machine,
pictures. --render SET... writes the tables and pictures of sets anew, several also side by side.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "compare"))
import collectives  # noqa: E402
import machine_facts  # noqa: E402
import peer_programs  # noqa: E402
import result_set  # noqa: E402
from contenders import CASES, CONTENDERS, command_of, has, missing, peer_calls  # noqa: E402
from result_table import ONE_STATE, plain_lines  # noqa: E402

DEFAULT_SIZES = "8,256,4KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB"
GROUP_LIMITS = (4 << 10, 1 << 20)  # bytes; sizes up to each limit run in one process
UNITS = {"": 1, "B": 1, "K": 1 << 10, "KIB": 1 << 10, "M": 1 << 20, "MIB": 1 << 20,
         "G": 1 << 30, "GIB": 1 << 30}

FULL = {"rounds": 5, "sizes": DEFAULT_SIZES, "batches": 7, "quiet_wait": 10.0, "retries": 2}
QUICK = {"rounds": 2, "sizes": "8,4KiB,256KiB,4MiB", "batches": 3, "quiet_wait": 1.0, "retries": 0}
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


def parse_iters(text):
    if text != "auto" and not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"iters is '{text}', expected auto or a positive number")
    return text


def groups_of(sizes):
    groups = {}
    for size in sorted(set(sizes)):
        groups.setdefault(sum(size > limit for limit in GROUP_LIMITS), []).append(size)
    return [groups[key] for key in sorted(groups)]


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
        wait_for_quiet(options.quiet_wait)
        before = core_distance(options)
        self.times, self.about = {}, {}
        start, busy, own = time.monotonic(), busy_seconds(), own_seconds()
        peer = CONTENDERS[name][0] in peer_programs.PROGRAMS
        self.error = (self._time_peer(name, options, group) if peer
                      else self._time_own(name, options, group, pathlib.Path(folder) / "run.json"))
        foreign = (busy_seconds() - busy) - (own_seconds() - own)
        room = (time.monotonic() - start) * os.cpu_count()
        self.foreign = max(0.0, foreign / room)
        self.distances = (before, core_distance(options))

    def _time_own(self, name, options, group, json_path):
        """By a program with our timing loop; returns the error, or None."""
        json_path.unlink(missing_ok=True)
        error, _ = self._execute(command_of(name, options, group, json_path), options.limit)
        if error is None:
            self.about = json.loads(json_path.read_text(encoding="utf-8"))
            self.times = {row["bytes"]: row["us"] for row in self.about.pop("rows")}
        return error

    def _time_peer(self, name, options, group):
        """By the library's own program, size by size; returns the error, or None."""
        key = CONTENDERS[name][0]
        for call in peer_calls(name, options, group):
            error, output = self._execute(call.command, options.limit, call.environment)
            if error is not None:
                return error
            size = call.elements * peer_programs.FLOAT_BYTES
            if (took := peer_programs.PROGRAMS[key].times(output).get(size)) is None:
                return f"printed no line of {size} bytes"
            self.times[size] = took
        self.about = {"contender": name, "library": options.peer_programs[key].version}
        return None

    @staticmethod
    def _execute(command, limit, environment=None):
        """(error or None, what it printed)"""
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, errors="replace", start_new_session=True,
                                 env=environment)
        try:
            output, errors = child.communicate(timeout=limit)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            os.killpg(child.pid, signal.SIGTERM)  # mpirun ends its ranks, the others die at once
            try:
                child.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
            if isinstance(error, KeyboardInterrupt):
                raise
            return f"no end within {limit} s", ""
        if child.returncode == 0:
            return None, output
        lines = errors.strip().splitlines() or ["no message"]
        told = next((line for line in lines if "WARN" not in line), lines[0])
        return f"exit status {child.returncode}: {told[:200]}", output


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
            return [(ONE_STATE, 0, math.inf)]
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
    ours, peers, _, bounds = CASES[case]
    rows = []
    for size in sorted(set(sizes)):
        pith = results.median(ours, size, state) if ours in results.rounds else None
        times = {peer: results.median(peer, size, state)
                 for peer in peers if peer in results.rounds}
        known = {peer: took for peer, took in times.items() if took is not None}
        best = min(known, key=known.get) if known else None
        ratio = known[best] / pith if best and pith else None
        bound = [took for name in bounds if name in results.rounds
                 and (took := results.median(name, size, state)) is not None]
        rows.append({"bytes": size, "pith_us": pith, "peers_us": times, "best_peer": best,
                     "ratio": ratio, "bound_us": min(bound, default=None)})
    return rows


def available(names, options):
    """The contenders that can run here, and why others cannot, by name."""
    left_out = {name: why for name in names if (why := missing(name, options))}
    for name, why in left_out.items():
        print(f"# {name} left out: {why}", file=sys.stderr)
    return [name for name in names if name not in left_out], left_out


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--case", choices=[*CASES, "all"], default="all")
    add("--collective", choices=[*collectives.TITLES], default="allreduce",
        help="default allreduce; sizes are those of all blocks together")
    add("--bin", type=pathlib.Path, default=HERE.parent / "build" / "bin",
        help="the programs' folder")
    add("--ranks", type=parse_ranks,
        help="numbers of ranks, tables for each: 2,4,8; default 2, with --case initall 4")
    add("--quick", action="store_true", help=f"other defaults: {QUICK}")
    add("--rounds", type=int, help="default 5")
    add("--sizes", type=lambda text: [parse_size(one) for one in text.split(",")],
        help=f"default {DEFAULT_SIZES}")
    add("--iters", type=parse_iters, default="auto", help="calls in a batch")
    add("--batches", type=int, help="timed batches a size and run; default 7")
    add("--batch-ms", type=float, default=20, help="length of a batch where --iters is auto")
    add("--json", type=pathlib.Path,
        help="also write everything to this file: a list where there are several numbers of ranks")
    add("--results", type=pathlib.Path, help="also keep a set of results below this folder")
    add("--render", type=pathlib.Path, nargs="+", metavar="SET", help="sets of results; no runs")
    add("--into", type=pathlib.Path, help="with --render: the folder for sets side by side")
    add("--only", help="comma-separated names: leave the other contenders out")
    add("--limit", type=float, default=300, help="seconds for one run")
    add("--quiet-wait", type=float,
        help="seconds to wait for idle cores before a run; default 10")
    add("--foreign-max", type=float, default=8,
        help="percent of the cores taken by others above which a run is noisy")
    add("--retries", type=int, help="further runs where one was noisy; default 2")
    add("--ucc", help="UCC's ucc_perftest; by default that in PATH")
    add("--ucc-mpirun", help="its launcher, without -n; by default Open MPI's")
    add("--oneccl", help="oneCCL's benchmark; by default that in PATH where CCL_ROOT is set")
    add("--oneccl-mpirun", help="its launcher, without -n; by default mpirun")
    parser.set_defaults(**(QUICK if "--quick" in sys.argv[1:] else FULL))
    options = parser.parse_args()
    if options.into and not options.render:
        parser.error("--into goes with --render")
    options.peer_programs = {"ucc": peer_programs.find("ucc", options.ucc, options.ucc_mpirun),
                      "oneccl": peer_programs.find("oneccl", options.oneccl, options.oneccl_mpirun)}
    if options.ranks is None:
        options.ranks = [RANKS.get(options.case, 2)]
    return options


def compare(names, cases, options):
    """The contenders with one number of ranks: prints their tables, returns all that came out."""
    results = measure(names, options)
    foreign = statistics.median(results.foreign) * 100 if results.foreign else 0.0
    cpu = machine_facts.processor()["cpu"]
    summary = {"cpu": cpu, "cores": os.cpu_count(), "ranks": options.ranks,
               "rounds": options.rounds, "batches": options.batches, "runs_noisy": results.noisy,
               "foreign_percent_median": foreign, "errors": results.errors,
               "contenders": results.about, "rounds_us": results.rounds, "cases": {}}
    title = collectives.TITLES[options.collective]
    print(f"# {title}: {options.ranks} ranks on {os.cpu_count()} cores, {cpu}")
    print(f"# {options.rounds} rounds; foreign load: median {foreign:.1f} % of the cores, "
          f"{results.noisy} of {len(results.foreign)} runs above {options.foreign_max:g} %")
    for case in cases:
        tables = {state[0]: rows_of(case, results, options.sizes, state)
                  for state in results.states()}
        summary["cases"][case] = tables
        for state, rows in tables.items():
            print("\n" + "\n".join(plain_lines(case, rows, state)))
    return summary


def names_of(cases, only, collective):
    """The contenders of the cases, each once, that have the collective; of those only the ones in a
    list, if there is one."""
    names = list(dict.fromkeys(name for case in cases
                               for name in (CASES[case].ours, *CASES[case].peers,
                                            *CASES[case].bounds) if has(name, collective)))
    if not only:
        return names
    if unknown := set(only.split(",")) - set(CONTENDERS):
        sys.exit(f"--only names {sorted(unknown)}, known are {list(CONTENDERS)}")
    return [name for name in names if name in only.split(",")]


def write(options, started, summaries, left_out):
    if options.json:
        document = summaries[0] if len(summaries) == 1 else summaries
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if options.results:
        document = {"format": result_set.FORMAT, "started": started, "left_out": left_out,
                    "collective": collectives.TITLES[options.collective], "runs": summaries}
        machine = machine_facts.machine() | {
            "commit": machine_facts.commit_of(HERE), "command": result_set.command_line(),
            "libraries": result_set.libraries_of(document)}
        print(f"\n# results: {result_set.write(options.results, document, machine)}")


def render(options):
    try:
        result_set.render(options.render, options.into)
    except result_set.Unreadable as error:
        sys.exit(str(error))


def main():
    options = parse_arguments()
    if options.render:
        render(options)
        return
    # Whoever ends this ends its ranks too, as an interrupt does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    cases = list(CASES) if options.case == "all" else [options.case]
    names, left_out = available(names_of(cases, options.only, options.collective), options)
    if not names:
        sys.exit("nothing to run")
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)  # fails before the measurement
    summaries = []
    for ranks in options.ranks:
        if summaries:
            print()
        sizes = [collectives.whole_size(options.collective, size, ranks) for size in options.sizes]
        one = argparse.Namespace(**{**vars(options), "ranks": ranks, "sizes": sizes})
        summaries.append(compare(names, cases, one))
    write(options, started, summaries, left_out)
    failed = {name for one in summaries for name in one["errors"]}
    sys.exit(1 if any(name.startswith("pith") for name in failed) else 0)


if __name__ == "__main__":
    main()
