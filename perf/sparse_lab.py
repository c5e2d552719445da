#!/usr/bin/env python3
"""Times compressed all-reduces against dense ones between hosts on slow links.

Every rank, or --per-host of them, has a host of its own: a network namespace whose link, either
way, has the rate that is asked for (the laboratory of tests/netlab). In each round every contender
runs once, and the order rotates. Reported are medians over the rounds and ratios to dense float32
by the best of Open MPI's algorithms, to dense bf16, taken as half of that, and to "plain": top-k
with Pith's selection whose pairs of 8 bytes go by MPI_Allgather (openmpi_topk). "wire" is the time
of a rank's own bytes at link rate; plain-topk's are the (N - 1) k 8 that it cannot do without, and
dense calls' the least that a link must carry, 2 (H - 1) / H of the vector for H hosts. "over wire"
is the call over that time; "exchange" the same of the call without the rank's own selection, in
which it waits for other ranks' selections.

--exchange-alone runs compressed calls only, on links that are FACTOR times slower. All ranks share
the cores of one machine: on links of the true rate they wait for each other's turns there more than
for the wire, and no selection can be left out, as its lists are on the wire while it goes on.
Slower links leave messages, their order and what waits for what as they are, and make all that is
computed, the handling of packets included, FACTOR times smaller beside the wire, as if every rank
had FACTOR times its share of a core. The exchange alone then lies between "exchange" and "over
wire", which the rank's own selection parts: how much of it the wire hides is not known.
"""
import argparse
import json
import os
import pathlib
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "netlab"))
from lab import Lab, program  # noqa: E402
from namespaces import LabError, unavailable  # noqa: E402

OWN_CHOICE, RING, SEGMENTED_RING, RABENSEIFNER = 0, 4, 5, 6
DENSE = {"pith-dense": None, "pith-ring": "ring", "pith-hierarchical": "hierarchical"}
OPENMPI = {"ompi": OWN_CHOICE, "ompi-ring": RING, "ompi-segmented": SEGMENTED_RING,
           "ompi-rabenseifner": RABENSEIFNER}
SCHEMES = {"topk": "topk:", "star": "ar-topk:election=staleness,",
           "var": "ar-topk:election=variance,", "exdyna": "exdyna:"}
FURTHER = {"topk-direct": "topk:exchange=direct,", "topk-ring": "topk:exchange=ring,",
           "topk-split": "topk:exchange=split,", "spardl": "spardl:", "ok-topk": "ok-topk:",
           "gtopk": "gtopk:", "deft": "deft:", "micro": "micro:", "randomk": "randomk:",
           "sidco": "sidco:", "dgc": "dgc:", "clt-k": "clt-k:", "adaptive": "adaptive:",
           "wangni": "wangni:", "arc-topk": "arc-topk:"}  # where asked for
# Without an election, where asked for.
CODED = {"bf16": "bf16", "int8": "int8", "fp8": "fp8", "natural": "natural", "qsgd8": "qsgd:bits=8",
         "qsgd4": "qsgd:bits=4", "qsgd2": "qsgd:bits=2", "sign": "sign",
         "efsign": "efsign", "int8ef": "int8:feedback=1", "terngrad": "terngrad",
         "onebit": "onebit", "3lc": "3lc", "powersgd": "powersgd", "atomo": "atomo", "fp16": "fp16",
         "dynamic": "int8:map=dynamic", "signum": "signum", "bounded": "bounded",
         "lossless": "lossless"}
PLAIN = "plain-topk"
VALUES = ("f32", "bf16")
PORT_FIRST = 20000
# Against dense float32, bf16 and plain pairs; of an exchange alone over its wire.
TARGETS = {1e9: (10, 5, 2), 1e8: (40, 20, 5)}
EXCHANGE_TARGET = 1.25


def spec_of(name, density):
    if name in CODED:
        return CODED[name]
    scheme, values = name.rsplit("-", 1)
    return f"{(SCHEMES | FURTHER)[scheme]}density={density},values={values}"


def contenders(schemes):
    return [f"{scheme}-{values}" for scheme in schemes for values in VALUES] + \
        [PLAIN, *DENSE, *OPENMPI]


class Failed(Exception):
    """A run that gave no time; the text says why."""


def first_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:200] if lines else "no message"


def finish(processes, limit):
    """Waits for all; the first that fails, or the time, ends the others."""
    texts = []
    try:
        for process in processes:
            _, errors = process.communicate(timeout=limit)
            texts.append(errors)
    except subprocess.TimeoutExpired:
        raise Failed(f"no end within {limit:g} s") from None
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.communicate()
    for process, text in zip(processes, texts):
        if process.returncode != 0:
            raise Failed(f"exit status {process.returncode}: {first_line(text)}")


class Runner:
    """Runs contenders in one laboratory."""

    def __init__(self, lab, options, rate, folder):
        self.lab, self.options, self.rate = lab, options, rate
        self.ranks = len(lab) * options.per_host
        self.folder = pathlib.Path(folder)
        self.runs = 0
        # How Open MPI starts its daemon on another host.
        self.agent = self.folder / "agent"
        self.agent.write_text(
            "#!/bin/sh\nhost=$1\nshift\n"
            f"exec ip netns exec {lab.prefix}-$host unshare --uts sh -c \"hostname $host; $*\"\n",
            encoding="ascii")
        self.agent.chmod(0o700)

    def run(self, name):
        """Its row: seconds of a call, and what compression tells."""
        self.runs += 1
        path = self.folder / f"run{self.runs}.json"
        if name in OPENMPI:
            return self.run_openmpi(OPENMPI[name], path) | self.least_bytes()
        if name == PLAIN:
            return self.run_plain(path)
        if name in DENSE:
            return self.run_pith(name, path) | self.least_bytes()
        return self.run_pith(name, path)

    def least_bytes(self):
        """What each host must send in any dense all-reduce."""
        return {"bytes": 2 * self.options.bytes * (len(self.lab) - 1) / len(self.lab)}

    def run_pith(self, name, path):
        dense = name in DENSE
        size = str(self.options.bytes)
        calls = self.options.dense_calls if dense else self.options.calls
        flags = ["-b", size, "-e", size, "-n", calls, "-w", 0 if dense else 2, "-c", 0, "-a", 3,
                 "-I", 1]
        if dense:
            flags += ["--algo", DENSE[name]] if DENSE[name] else []
        else:
            flags += ["--compress", spec_of(name, self.options.density)]
            if self.options.data:
                flags += ["--data", self.options.data]
        common = {key: value for key, value in os.environ.items() if not key.startswith("PITH_")}
        transport = "tcp" if self.options.per_host == 1 else "shm,tcp"
        common |= {"PITH_TRANSPORT": transport, "PITH_IFNAME": "eth0", "PITH_SIZE": str(self.ranks),
                   "PITH_ROOT": f"{self.lab[0].address}:{PORT_FIRST + self.runs % 1000}",
                   "PITH_SECRET": secrets.token_hex(16)}
        if self.options.trace:
            common["PITH_TRACE"] = f"{self.options.trace}.{self.ranks}.{name}"
        processes = [self.lab[rank // self.options.per_host].start(
            [program("all_reduce_perf"), *flags, *(["-J", path] if rank == 0 else [])],
            {**common, "PITH_RANK": str(rank)},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for rank in range(self.ranks)]
        finish(processes, self.options.limit)
        result = json.loads(path.read_text(encoding="utf-8"))["results"][0]
        row = {"seconds": result["out_of_place_per_iter"]["p50_us"] / 1e6}
        if not dense:
            half = result["out_of_place"]
            row |= {"bytes": half["wire_bytes"], "density": half["density"],
                    "select": half["select_us"] / 1e6, "exchange": half["exchange_us"] / 1e6}
        return row

    def run_openmpi(self, algorithm, path):
        tuned = [] if algorithm == OWN_CHOICE else [
            "--mca", "coll_tuned_use_dynamic_rules", 1,
            "--mca", "coll_tuned_allreduce_algorithm", algorithm,
            "--mca", "coll_tuned_allreduce_algorithm_segmentsize", 131072]
        return self.run_mpi(tuned, "openmpi_bench", path, "--iters", 1,
                            "--batches", self.options.dense_calls)

    def run_plain(self, path):
        options = self.options
        data = ["--data", options.data] if options.data else []
        row = self.run_mpi([], "openmpi_topk", path, "--density", options.density,
                           "--calls", options.calls, "--warmup", 2, *data)
        pairs = max(1, int(options.density * (options.bytes // 4)))
        return row | {"bytes": (self.ranks - 1) * pairs * 8}

    def run_mpi(self, tuned, name, path, *arguments):
        hosts = ",".join(f"{host.name}:{self.options.per_host}" for host in self.lab)
        near = "self,tcp" if self.options.per_host == 1 else "self,vader,tcp"
        mpirun = shutil.which("mpirun.openmpi") or "mpirun"
        command = [mpirun, "--allow-run-as-root", "--host", hosts, "-np", self.ranks,
                   "--mca", "plm_rsh_agent", self.agent, "--mca", "routed", "direct",
                   "--mca", "oob_tcp_if_include", "eth0", "--mca", "btl_tcp_if_include", "eth0",
                   "--mca", "btl", near, "--mca", "pml", "ob1", "--map-by", "slot",
                   "--mca", "mpi_yield_when_idle", 1, "--bind-to", "none", *tuned,
                   program(name), "--ranks", self.ranks, "--no-pin",
                   "--sizes", self.options.bytes, *arguments, "--json", path]
        process = self.lab[0].start(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                    text=True)
        finish([process], self.options.limit)
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return {"seconds": rows[0]["us"] / 1e6}


def measure(ranks, rate, names, options):
    """Rows by contender, and the errors of those that failed."""
    rows = {name: [] for name in names}
    errors = {}
    with Lab(ranks // options.per_host, link="veth", rate=rate, ipv6=False) as lab, \
            tempfile.TemporaryDirectory(prefix="sparse-lab-") as folder:
        runner = Runner(lab, options, rate, folder)
        for number in range(options.rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                if name in errors:
                    continue
                try:
                    rows[name].append(runner.run(name))
                except (Failed, LabError, OSError, KeyError) as error:
                    errors[name] = f"{type(error).__name__}: {error}"
                    print(f"# {name}: {errors[name]}", file=sys.stderr)
            print(f"# {ranks} ranks, {rate / 1e9:g} Gbit/s: round {number + 1} of "
                  f"{options.rounds} done", file=sys.stderr)
    return rows, errors


def medians(rows):
    return {name: {key: statistics.median(row[key] for row in own) for key in own[0]}
            for name, own in rows.items() if own}


def gradients_of(options):
    return f"gradients of {options.data}" if options.data else "made-up gradients"


def report(ranks, rate, rows, options):
    """Prints one laboratory's table; the same as a record."""
    middle = medians(rows)
    dense = {name: middle[name]["seconds"] for name in OPENMPI if name in middle}
    best = min(dense, key=dense.get) if dense else None
    bar = dense[best] if best else None
    plain = middle[PLAIN]["seconds"] if PLAIN in middle else None
    slowed = options.exchange_alone
    print(f"\n## {ranks} ranks of {ranks // options.per_host} hosts on {os.cpu_count()} cores, "
          f"links of {rate / 1e9:g} Gbit/s"
          f"{f' in place of {rate * slowed / 1e9:g}' if slowed else ''}, "
          f"{options.bytes / 2**20:g} MiB float32, density {options.density:g}, "
          f"{options.rounds} rounds, {gradients_of(options)}")
    print(f"best Open MPI: {best or 'none'}")
    print(f"{'':<18} {'ms':>9} {'x float32':>9} {'x bf16':>7} {'x plain':>7} {'MB/rank':>8} "
          f"{'density':>8} {'wire ms':>8} {'over wire':>9} {'exchange':>8}")
    for name in [name for name in rows if name in middle]:
        print(line_of(name, middle[name], bar, plain, rate))
    record = {"ranks": ranks, "rate": rate, "gradients": gradients_of(options), "best": best,
              "plain_seconds": plain, "exchange_alone": slowed,
              "medians": middle}
    if slowed:
        print_exchanges(middle, rate)
    elif rate in TARGETS:
        print_targets(middle, bar, plain, TARGETS[rate])
    return record


def line_of(name, row, bar, plain, rate):
    def cell(value, width, digits):
        return f"{'-':>{width}}" if value is None else f"{value:>{width}.{digits}f}"
    seconds = row["seconds"]
    over = bar / seconds if bar else None
    wire = row["bytes"] * 8 / rate if row.get("bytes") else None
    exchange = row["exchange"] / wire if row.get("exchange") and wire else None
    return " ".join((f"{name:<18}", cell(seconds * 1e3, 9, 1), cell(over, 9, 2),
                     cell(over and over / 2, 7, 2), cell(plain and plain / seconds, 7, 2),
                     cell(row["bytes"] / 1e6 if wire else None, 8, 2),
                     cell(row.get("density"), 8, 5), cell(wire and wire * 1e3, 8, 1),
                     cell(wire and seconds / wire, 9, 2), cell(exchange, 8, 2)))


def compressed(middle):
    return {name: row for name, row in middle.items() if "exchange" in row}


def print_targets(middle, bar, plain, targets):
    times = {name: row["seconds"] for name, row in compressed(middle).items()}

    def tell(text, reaches):
        reached = [name for name, seconds in times.items() if reaches(seconds)]
        print(f"target {text}: reached by {', '.join(reached) or 'none'}")
    if times and bar:
        tell(f"{targets[0]} x float32, {targets[1]} x bf16",
             lambda seconds: bar / seconds >= targets[0] and bar / 2 / seconds >= targets[1])
    if times and plain:
        tell(f"{targets[2]} x plain", lambda seconds: plain / seconds >= targets[2])


def print_exchanges(middle, rate):
    for name, row in compressed(middle).items():
        wire = row["bytes"] * 8 / rate
        least, most = row["exchange"] / wire, row["seconds"] / wire
        verdict = "reached" if most <= EXCHANGE_TARGET else \
            "missed" if least > EXCHANGE_TARGET else "open"
        print(f"exchange of {name} alone: {least:.2f} to {most:.2f} of its wire, "
              f"target {EXCHANGE_TARGET}: {verdict}")


def parse(arguments):
    known = contenders(SCHEMES | FURTHER) + list(CODED)
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="4,8", help="numbers of ranks")
    parser.add_argument("--per-host", type=int, default=1, metavar="M", help="ranks of a host")
    parser.add_argument("--rates", default="1,0.1", help="links' rates in Gbit/s")
    parser.add_argument("--mib", type=float, default=64, help="size of the vector in MiB")
    parser.add_argument("--density", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=5, help="timed calls a compressed run")
    parser.add_argument("--dense-calls", type=int, default=1, help="timed calls a dense run")
    parser.add_argument("--limit", type=float, default=300, help="seconds a run may take")
    parser.add_argument("--only", help="these contenders: " + ", ".join(known))
    parser.add_argument("--data", type=pathlib.Path, metavar="DIR",
                        help="gradients of compressed calls: a folder of raw *.f32 and *.f16 files,"
                             " as all_reduce_perf takes it; made up without")
    parser.add_argument("--exchange-alone", type=float, nargs="?", const=40, metavar="FACTOR",
                        help="the exchange apart from selection: links FACTOR (40) times slower")
    parser.add_argument("--trace", help="begin of the paths of traces, for pith-trace; slows calls")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results to this file")
    options = parser.parse_args(arguments)
    if options.data and not options.data.is_dir():
        parser.error(f"--data: {options.data} is no folder")
    options.bytes = int(options.mib * 2**20) // 4 * 4
    if options.exchange_alone is not None and options.exchange_alone < 1:
        parser.error(f"--exchange-alone: {options.exchange_alone:g} is below 1")
    standard = [name for name in contenders(SCHEMES)
                if options.per_host > 1 or not DENSE.get(name)]
    if options.exchange_alone:
        standard = [name for name in standard if name.rsplit("-", 1)[0] in SCHEMES]
    options.names = options.only.split(",") if options.only else standard
    options.numbers = [int(text) for text in options.ranks.split(",")]
    uneven = [number for number in options.numbers if number % options.per_host]
    if uneven:
        parser.error(f"--ranks: {uneven[0]} is no multiple of --per-host {options.per_host}")
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"--only: {', '.join(sorted(unknown))}, expected of {', '.join(known)}")
    return options


def main():
    options = parse(sys.argv[1:])
    reason = unavailable("veth")
    if reason:
        sys.exit(f"sparse_lab: {reason}")
    records = []
    slower = options.exchange_alone or 1
    for rate in [float(text) * 1e9 / slower for text in options.rates.split(",")]:
        for ranks in options.numbers:
            rows, errors = measure(ranks, rate, options.names, options)
            records.append({**report(ranks, rate, rows, options), "runs": rows, "errors": errors})
            if options.json:
                options.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
