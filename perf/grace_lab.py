#!/usr/bin/env python3
"""Pith's compression beside GRACE's for PyTorch (github.com/sands-lab/grace), on one core.

    ENVIRONMENT/bin/python perf/grace_lab.py --grace DIR --data GRADIENTS

ENVIRONMENT has PyTorch and Pith. DIR is a checkout of GRACE, whose compressors of grace_dl/dist are
called as they are; GRADIENTS is a folder of raw gradients with a manifest.json, as
train_gradients.py writes it. First both are checked, see grace/without_chance.py and
grace/with_chance.py. The table then has

- errors ||C(x) - x|| / ||x||, of one rank, and of the mean of two ranks with different gradients,
  where Pith codes the sums once more;
- bits per element of a rank's message to one other; of GRACE the bytes of its tensors;
- times and their ratios, medians of rounds in which all take turns: GRACE's compress and
  decompress, and with Pith a whole all_reduce of one rank. That also adds and keeps the residual
  (topk, efsign, powersgd), looks for elements that are not finite, and keeps statistics. They are
  times of the core, so that other processes do not count. "coding" is what GRACE's time is the
  counterpart of, by compress_perf (--kernels): encode and decode of as many elements.

GRACE's `natural` needs CuPy and so a GPU; here NumPy does what CuPy would. What GRACE has for
TensorFlow only is checked if that and TensorFlow Probability are there, Dettmers's map if
bitsandbytes is, SIDCo with --sidco and SciPy: see grace/other_programs.py. With --programs more
schemes are set beside the programs of their authors: see grace/authors_programs.py.
"""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import torch
import torch.distributed

import pith

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "grace"))
import authors_programs  # noqa: E402
import other_programs  # noqa: E402
import small_inputs  # noqa: E402
import with_chance  # noqa: E402
import without_chance  # noqa: E402
from both import DENSITY, SCHEMES, Gradients, import_grace, relative  # noqa: E402

TARGET = 10
STARTS = 8  # results of schemes that draw, whose errors are averaged
SEED = 1000003  # far apart
KERNELS = {"sign": ("encode sign", "decode sign"), "efsign": ("encode efsign", "decode efsign"),
           "qsgd 4": ("encode qsgd 4", "decode qsgd 4"),
           "ternary": ("encode qsgd 2", "decode qsgd 2"),
           "natural": ("encode natural", "decode natural"),
           "powersgd": ("project, rank 4", "back_project, rank 4", "put_product, rank 4")}


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--grace", type=pathlib.Path, required=True, metavar="DIR", help="a checkout of GRACE")
    add("--data", type=pathlib.Path, required=True, help="folder with manifest.json")
    add("--sidco", type=pathlib.Path, metavar="DIR", help="a checkout of SIDCo by its authors")
    add("--programs", type=pathlib.Path, metavar="DIR", help="a folder of checkouts by authors")
    add("--checks", action="store_true", help="no times, no table")
    add("--draws", type=int, default=64, help="results of each scheme that draws")
    add("--rounds", type=int, default=15, help="timed ones")
    add("--core", type=int, default=0)
    add("--kernels", type=pathlib.Path, metavar="PROGRAM", help="compress_perf")
    add("--json", type=pathlib.Path, metavar="FILE", help="for everything that was found")
    return parser.parse_args()


def described(one):
    clipped = f"; clipped by {one['clipped']:.2f}" if one["clipped"] else ""
    return (f"along {one['along']:+.1f}, mean {one['mean']:+.1f}, variance {one['variance']:+.1f} "
            f"standard errors; {one['over_squares']:.2g} of the squares, bound {one['bound']:.2g}"
            + clipped)


def check_all(comm, gradients, options):
    """Prints what is found, scheme by scheme; the same as records."""
    draws = options.draws
    records = []

    def tell(scheme, text, ok, **more):
        print(f"{scheme:<9} {'ok' if ok else 'DIFFERS':<8} {text}", flush=True)
        records.append({"scheme": scheme, "ok": bool(ok), "found": text} | more)
    for name, check in without_chance.CHECKS.items():
        try:
            tell(name, check(comm, gradients), True)
        except AssertionError as error:
            tell(name, str(error) or "see the check", False)
    others = [(*one, options.sidco) for one in other_programs.CHECKS.items()]
    others += [(*one, options.programs) for one in authors_programs.CHECKS.items()]
    for name, check, folder in others:
        try:
            tell(name, check(comm, gradients, folder), True)
        except other_programs.Missing as error:
            print(f"{name:<9} skipped  no {error}")
        except AssertionError as error:
            tell(name, str(error) or "see the check", False)
    for name in with_chance.RULES:
        for who, one in with_chance.check(comm, name, gradients, draws).items():
            tell(name, f"{who:<5} {described(one)}", one["ok"], who=who,
                 figures={key: float(one[key]) for key in one})
    for who, one in with_chance.wangni(comm, gradients, draws).items():
        tell("wangni", f"{who:<5} along {one['along']:+.1f}, mean {one['mean']:+.1f}, variance "
             f"{one['variance']:+.1f} standard errors; {one['drawn']:.3f} k elements on average",
             one["ok"], who=who)
    one = with_chance.seeds(comm, gradients)
    tell("seeds", one["text"], one["ok"])
    for who, one in with_chance.randomk(comm, gradients, draws).items():
        tell("randomk", f"{who:<5} along {one['along']:+.1f} standard errors; {one['distinct']:.3f}"
             " of the k elements are different ones", one["ok"], who=who)
    return records


def of_two_ranks(scheme, gradients, **keys):
    """Pith's mean of both workers' gradients, and the bytes that a rank has sent."""
    comms = pith.init_all(2)
    results, compressors = [None, None], [scheme.pith(gradients, **keys) for _ in comms]

    def run(rank):
        results[rank] = comms[rank].all_reduce(gradients.workers[rank], "avg",
                                               compressor=compressors[rank])
    threads = [threading.Thread(target=run, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent = compressors[0].stats.bytes_sent
    for comm in comms:
        comm.finalize()
    return results[0], sent


def compare(comm, scheme, gradients):
    """Errors, of schemes that draw the root mean square of several, and bits of both."""
    x, other = gradients.workers
    exact = (x.astype("f8") + other) / 2
    grace, of_other = scheme.grace(gradients), scheme.grace(gradients)
    errors = []
    for number in range(STARTS if scheme.draws else 1):
        keys = {"seed": SEED * number} if scheme.draws else {}
        torch.manual_seed(number)
        grace.forget()
        of_other.forget()
        theirs = grace(x)
        if scheme.name == "powersgd":  # sums factors, so that it compresses the mean
            theirs_of_mean = of_other(exact.astype("f4"))
        else:
            theirs_of_mean = (theirs.astype("f8") + of_other(other)) / 2
        mean, sent = of_two_ranks(scheme, gradients, **keys)
        mine = comm.all_reduce(x, compressor=scheme.pith(gradients, **keys))
        errors.append((relative(mine, x), relative(theirs, x), relative(mean, exact),
                       relative(theirs_of_mean, exact)))
    names = ("pith_error", "grace_error", "pith_error_of_mean", "grace_error_of_mean")
    return {"scheme": scheme.name, "spec": scheme.spec, "pith_bits": 8 * sent / x.size,
            "grace_bits": grace.bits(x)} | dict(zip(names, np.sqrt(np.mean(np.square(errors), 0))))


def seconds_of(call):
    start = time.process_time()
    call()
    return time.process_time() - start


def times(comm, gradients, rounds):
    """Of each round, by scheme and library, which take turns."""
    x, out = gradients.workers[0], np.empty_like(gradients.workers[0])
    calls = {}
    for name, scheme in SCHEMES.items():
        mine, theirs = scheme.pith(gradients), scheme.grace(gradients)
        calls[name, "pith"] = lambda c=mine: comm.all_reduce(x, out=out, compressor=c)
        calls[name, "grace"] = lambda c=theirs: c.decompress(c.compress(x))
    taken = {key: [] for key in calls}
    keys = list(calls)
    for number in range(rounds + 2):  # two to warm up
        for key in keys[number % len(keys):] + keys[:number % len(keys)]:
            seconds = seconds_of(calls[key])
            if number >= 2:
                taken[key].append(seconds)
    return taken


def kernel_times(options, gradients):
    """Milliseconds of Pith's coding alone, by scheme."""
    with tempfile.TemporaryDirectory(prefix="grace-lab-") as folder:
        data, out = pathlib.Path(folder) / "gradients.f32", pathlib.Path(folder) / "out.json"
        gradients.workers[0].astype("<f4").tofile(data)
        subprocess.run([options.kernels, "--count", str(gradients.workers[0].size), "--part",
                        "kernels", "steps", "--density", str(DENSITY), "--distribution", "data",
                        "--data", data, "--rounds", str(options.rounds), "--core",
                        str(options.core), "--json", out], check=True, stdout=subprocess.DEVNULL)
        told = json.loads(out.read_text(encoding="utf-8"))
    of = {one["kernel"]: one["ms"] for one in told["kernels"]}
    step = told["steps"][0]
    return {name: sum(of[one] for one in kernels) for name, kernels in KERNELS.items()} | {
        "topk": step["pith_ms"] + step["write_ms"]}


def print_row(row):
    coding = row.get("coding_ms")
    has_size = row["scheme"] not in ("sign", "signum")
    errors = [f"{row[one]:>9.3g}" if has_size else f"{'-':>9}"
              for one in ("pith_error", "grace_error", "pith_error_of_mean",
                          "grace_error_of_mean")]
    print(f"{row['scheme']:<9} {' '.join(errors)} "
          f"{row['pith_bits']:>7.2f} {row['grace_bits']:>7.2f} "
          f"{row['pith_ms']:>8.2f} {row['grace_ms']:>8.2f} {row['ratio']:>7.1f} "
          + (f"{coding:>8.2f} {row['grace_ms'] / coding:>7.1f}" if coding else ""), flush=True)


def table(comm, gradients, options):
    took = times(comm, gradients, options.rounds)
    coding = kernel_times(options, gradients) if options.kernels else {}
    print(f"\n{'':<9} {'error':>9} {'':>9} {'of a mean':>9} {'':>9} {'bits':>7} {'':>7} "
          f"{'ms':>8} {'':>8} {'':>7} {'coding':>8}\n"
          f"{'':<9} {'Pith':>9} {'GRACE':>9} {'Pith':>9} {'GRACE':>9} {'Pith':>7} {'GRACE':>7} "
          f"{'Pith':>8} {'GRACE':>8} {'ratio':>7} {'ms':>8} {'ratio':>7}")
    rows = []
    for name, scheme in SCHEMES.items():
        row = compare(comm, scheme, gradients)
        mine, theirs = took[name, "pith"], took[name, "grace"]
        row |= {"pith_ms": 1e3 * statistics.median(mine),
                "grace_ms": 1e3 * statistics.median(theirs),
                "ratio": statistics.median(b / a for a, b in zip(mine, theirs))}
        row |= {"coding_ms": coding[name]} if name in coding else {}
        print_row(row)
        rows.append(row)
    missed = [row["scheme"] for row in rows if row["ratio"] < TARGET]
    print(f"target, whole calls {TARGET} times as fast: "
          + (f"missed by {', '.join(missed)}" if missed else "met by all"))
    return rows


def keep_freed_memory():
    """Else GRACE's larger schemes take twice as long in some runs, in which malloc asks the system
    for the pages of every tensor."""
    mmap_threshold, trim_threshold = -3, -1
    libc = ctypes.CDLL(None)
    libc.mallopt(mmap_threshold, 32 << 20)
    libc.mallopt(trim_threshold, 1 << 30)


def main():
    options = parse()
    for folder, has in ((options.grace, "grace_dl/dist"), (options.data, "manifest.json"),
                        (options.sidco, "compression.py")):
        if folder is not None and not (folder / has).exists():
            sys.exit(f"grace_lab: {folder} has no {has}")
    os.sched_setaffinity(0, {options.core})
    keep_freed_memory()
    torch.set_num_threads(1)
    import_grace(options.grace)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0,
                                         world_size=1)  # PowerSGD calls it
    manifest = json.loads((options.data / "manifest.json").read_text(encoding="utf-8"))
    found = []
    with pith.init() as comm:
        for task in manifest["tasks"]:
            gradients = Gradients(task, options.data)
            print(f"\n## {gradients.name}: {gradients.workers[0].size} elements, "
                  f"torch {torch.__version__}\n")
            checks = check_all(comm, gradients, options)
            rows = [] if options.checks else table(comm, gradients, options)
            found.append({"gradients": gradients.name, "checks": checks, "table": rows})
        print("\n## Small inputs with which GRACE does otherwise than the papers\n")
        for scheme, text in small_inputs.findings(comm):
            print(f"{scheme:<10} {text}")
    torch.distributed.destroy_process_group()
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if all(check["ok"] for one in found for check in one["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
