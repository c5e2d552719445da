#!/usr/bin/env python3
"""Which compression scheme pays on which link: pith-demo's training with each, as a table.

4 ranks on hosts of their own (network namespaces, as root) train a perceptron on digits with plain
SGD; see `pith-demo --help`. For every link and seed each scheme trains once, in an order that
rotates. Printed are medians over the seeds: seconds to an accuracy of 97 % ("-" where a seed never
gets there), seconds in all, accuracy and loss at the end, the latter on what was trained with,
megabytes sent by all ranks.
"""
import argparse
import collections
import pathlib
import re
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEMO = ROOT / "build" / "bin" / "pith-demo"
SCHEMES = ("dense bf16 fp16 int8 int8:feedback=1 int8:map=dynamic fp8 natural qsgd qsgd:bits=2 "
           "terngrad onebit 3lc efsign sign signum bounded:rel=0.01 lossless powersgd "
           "powersgd:rank=2 atomo topk topk:density=0.001 topk:values=int4 threshold sidco "
           "dgc:density=0.01 adaptive wangni spardl ok-topk gtopk ar-topk clt-k:beta=0.1 "
           "ar-topk:election=variance exdyna:density=0.01 micro:density=0.01 deft:density=0.01 "
           "randomk arc-topk choco:density=0.1,gamma=0.1 topk:density=auto,quantise=auto "
           "auto").split()
SPARSE = ("topk", "threshold", "sidco", "dgc", "adaptive", "wangni", "spardl",
          "ok-topk", "gtopk", "ar-topk", "clt-k", "exdyna", "micro", "deft", "randomk",
          "arc-topk")
ROW = re.compile(r"\s(not reached|[\d.]+)\s+([\d.]+)\s+([\d.]+) %\s+([\d.]+|inf|nan)\s+([\d.]+)\s+"
                 r"[\d.]+ %$")

Run = collections.namedtuple("Run", "to_97 all accuracy loss megabytes")


def spec_of(scheme):
    """The scheme itself, whatever is faster; what chooses has its choice."""
    if scheme.split(":")[0] not in SPARSE or "auto" in scheme:
        return scheme
    return scheme + ("," if ":" in scheme else ":") + "bypass=never"


def train(schemes, link, seed, steps):
    """Every scheme once, in this order, which is that of the rows."""
    command = [DEMO, "--epochs", "6", "--seed", str(seed), "--link", str(link), "--timeout", "3000",
               "--scheme-steps", str(steps), "--picture", "/dev/null", "--schemes",
               *map(spec_of, schemes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    runs = []
    for line in done.stdout.splitlines():
        found = ROW.search(line)
        if found:
            to_97 = None if found[1] == "not reached" else float(found[1])
            runs.append(Run(to_97, *map(float, found.groups()[1:])))
    if len(runs) != len(schemes):
        raise SystemExit(f"{' '.join(map(str, command))}: {len(runs)} results, expected "
                         f"{len(schemes)}:\n{done.stdout}{done.stderr}")
    return dict(zip(schemes, runs))


def median_text(values, form):
    return "-" if None in values else form.format(statistics.median(values))


def row_of(scheme, runs):
    fields = [[getattr(run, field) for run in runs] for field in Run._fields]
    forms = ("{:.1f}", "{:.1f}", "{:.1f}", "{:.3f}", "{:.0f}")
    return " | ".join([f"| `{scheme}`", *map(median_text, fields, forms)]) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--links", default="100,1000,10000", help="Mbit/s")
    parser.add_argument("--seeds", default="1998,1,2")
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--schemes", nargs="*", default=SCHEMES)
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    for link in map(int, options.links.split(",")):
        runs = collections.defaultdict(list)
        for number, seed in enumerate(seeds):
            turn = number * len(options.schemes) // len(seeds)
            order = [*options.schemes[turn:], *options.schemes[:turn]]
            for scheme, run in train(order, link, seed, options.steps).items():
                runs[scheme].append(run)
        print(f"\n{link} Mbit/s\n\n| scheme | s to 97 % | s in all | accuracy, % | loss | MB |\n"
              "|---|---|---|---|---|---|")
        for scheme in options.schemes:
            print(row_of(scheme, runs[scheme]), flush=True)


if __name__ == "__main__":
    main()
