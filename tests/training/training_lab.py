#!/usr/bin/env python3
"""Trains the demo's network on the digits over links that change, by fixed schemes of averaging and
with density=auto,quantise=auto: time to 97 % accuracy.

Each rank has a host of its own in a laboratory (tests/netlab), whose links follow the schedules of
AR-Topk's authors (Tyagi and Swany, IEEE BigData 2023) with a tenth of their rates and delays. The
network has a tenth of their least model's parameters, so transfers take as long as theirs.

    C1   0.1 or 5 ms and 2.5 or 0.1 Gbit/s: four blocks
    C2   0.1 ms and 2.5 Gbit/s, 0.2 and 2, 0.4 and 1.5, 0.8 and 1, 1.6 and 0.5, 3.2 and 0.1; back

A block is a number of steps, as theirs is of epochs: the same work meets the same links, however
slow a scheme is. TCP's congestion control is cubic. All schemes of a seed run one after another.

"best fixed" is the fixed scheme with the least sum of its times over the seeds. "known afterwards"
is what one would have taken who knew all times: in each block the density or form that gets most
progress out of the time, where a step's progress is one n-th if n steps of it lead to the accuracy,
and its time is that of the runs with it fixed.
"""
import argparse
import json
import math
import pathlib
import secrets
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "netlab"))
from lab import Lab, Signals, program  # noqa: E402
from namespaces import unavailable  # noqa: E402

# Seconds of delay one way, bits per second.
FAR, NEAR, WIDE, NARROW = 5e-3, 0.1e-3, 2.5e9, 0.1e9
UP = [(0.1e-3, 2.5e9), (0.2e-3, 2e9), (0.4e-3, 1.5e9), (0.8e-3, 1e9), (1.6e-3, 0.5e9),
      (3.2e-3, 0.1e9)]
SCHEDULES = {"C1": (25, [(NEAR, WIDE), (NEAR, NARROW), (FAR, WIDE), (FAR, NARROW)]),
             "C2": (20, UP + UP[-2:0:-1])}
DENSE, AUTO = "dense", "topk:density=auto,quantise=auto"
DENSITIES = (0.1, 0.033, 0.01, 0.003, 0.001)
QUANTISED = ("int8", "qsgd")
OTHERS = ("ar-topk:density=0.01,election=staleness,bypass=never",
          "exdyna:density=0.01,bypass=never")
TARGET = 0.97
ROOT_PORT = 20000


def fixed(density):
    return f"topk:density={density:g},bypass=never"


def schemes():
    return [AUTO, DENSE, *map(fixed, DENSITIES), *QUANTISED, *OTHERS]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--schedule", choices=SCHEDULES, default="C1")
    add("--seeds", type=lambda text: [int(one) for one in text.split(",")], default=[1998, 1, 2])
    add("--schemes", type=lambda text: text.split(";"), default=schemes(),
        help="separated by semicolons")
    add("--ranks", type=int, default=4)
    add("--steps", type=int, default=240, help="at most")
    add("--batch", type=int, default=16)
    add("--rate", type=float, default=0.08)
    add("--json", type=pathlib.Path)
    return parser.parse_args(arguments)


# --- runs -----------------------------------------------------------------------------------------


def lay(lab, link):
    delay, rate = link
    lab.set_delay(delay)
    lab.set_rate(rate)


def train(lab, options, seed, scheme, out):
    """One scheme's training. Rank 0 says when a block begins, and waits for its links."""
    steps, blocks = SCHEDULES[options.schedule]
    environment = {"PITH_IFNAME": "eth0", "PITH_SIZE": str(options.ranks), "PITH_TRANSPORT": "tcp",
                   "PITH_ROOT": f"{lab[0].address}:{ROOT_PORT}",
                   "PITH_SECRET": secrets.token_hex(16)}
    flags = ["--scheme", scheme, "--block", steps, "--steps", options.steps, "--seed", seed,
             "--batch", options.batch, "--rate", options.rate, "--enough", TARGET, "--out", out]
    lay(lab, blocks[0])
    ranks = [host.start([program("training_bench"), *flags],
                        {**environment, "PITH_RANK": str(host.number)}, text=True,
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE) for host in lab]
    for line in ranks[0].stdout:
        lay(lab, blocks[int(line.split()[1]) % len(blocks)])
        ranks[0].stdin.write("laid\n")
        ranks[0].stdin.flush()
    if any([rank.wait(60) for rank in ranks]):
        raise SystemExit(f"training_lab: {scheme} failed")
    return json.loads(pathlib.Path(out).read_text(encoding="utf-8"))


# --- figures --------------------------------------------------------------------------------------


def reached(run):
    """Seconds and steps to the accuracy; those of the whole run where it was not reached."""
    for index, (seconds, accuracy) in enumerate(run["curve"]):
        if accuracy >= TARGET:
            return seconds, min(index * run["evaluate_every"], run["steps"])
    return math.inf, run["steps"]


def step_seconds(run, schedule):
    """By link: the mean time of a step."""
    steps, blocks = SCHEDULES[schedule]
    sums = {}
    for index in range(1, len(run["curve"])):
        link = blocks[(index - 1) * run["evaluate_every"] // steps % len(blocks)]
        spent = run["curve"][index][0] - run["curve"][index - 1][0]
        sums.setdefault(link, []).append(spent / run["evaluate_every"])
    return {link: sum(times) / len(times) for link, times in sums.items()}


def known_afterwards(runs, schedule, steps_most):
    """Seconds, and what is taken by block, as progress is worth more or less time."""
    steps, blocks = SCHEDULES[schedule]
    known = []
    for run in runs:
        seconds, needed = reached(run)
        if seconds < math.inf:
            known.append((run["scheme"], step_seconds(run, schedule), needed))
    best = (math.inf, [])
    for worth in (1.1 ** power for power in range(-100, 150)):
        seconds, progress, taken = 0.0, 0.0, []
        for step in range(steps_most):
            link = blocks[step // steps % len(blocks)]
            open_ways = [(times[link] - worth / needed, name, times[link], needed)
                         for name, times, needed in known if link in times]
            if not open_ways:
                return math.inf, []
            _, name, spent, needed = min(open_ways)
            share = min(1.0, (1 - progress) * needed)
            seconds, progress = seconds + share * spent, progress + share / needed
            if step % steps == 0:
                taken.append(name)
            if progress >= 1 - 1e-9:
                best = min(best, (seconds, taken))
                break
    return best


def choices_of(run):
    return "; ".join(f"step {step}: " + ("" if density >= 1 else f"{100 * density:.2g} % ") + name
                     for step, _, density, name in run.get("choices") or [])


def report(options, found):
    fixed_names = [name for name in options.schemes if name != AUTO]
    totals = {name: sum(reached(run)[0] for run in found if run["scheme"] == name)
              for name in options.schemes}
    print(f"# {options.schedule}, {options.ranks} ranks, seeds {options.seeds}, seconds to 97 %")
    for name in options.schemes:
        runs = [run for run in found if run["scheme"] == name]
        times = "  ".join(f"{reached(run)[0]:6.1f} ({reached(run)[1]:3})" for run in runs)
        print(f"{name:55} {totals[name]:7.1f}   {times}")
    afterwards = 0
    for seed in options.seeds:
        # What AUTO chooses from.
        runs = [run for run in found if run["seed"] == seed and run["scheme"] in
                [DENSE, *map(fixed, DENSITIES), *QUANTISED]]
        seconds, taken = known_afterwards(runs, options.schedule, options.steps)
        afterwards += seconds
        print(f"known afterwards, seed {seed}: {seconds:.1f} s: {', '.join(taken)}")
    for run in found:
        if run["scheme"] == AUTO:
            print(f"auto, seed {run['seed']}: {choices_of(run)}")
    if AUTO in totals and fixed_names:
        best = min(fixed_names, key=totals.get)
        print(f"auto {totals[AUTO]:.1f} s; best fixed {best} {totals[best]:.1f} s, "
              f"{totals[best] / totals[AUTO]:.2f} times auto's (target 1.3); known afterwards "
              f"{afterwards:.1f} s, auto is {100 * (totals[AUTO] / afterwards - 1):.0f} % over "
              "(target 10)")


def main():
    options = parse(sys.argv[1:])
    lacks = unavailable("switch")
    if lacks:
        sys.exit(f"training_lab: {lacks}")
    Signals.take()
    found = []
    with tempfile.TemporaryDirectory(prefix="training-") as folder:
        for seed in options.seeds:
            for scheme in options.schemes:
                with Lab(options.ranks, ipv6=False, congestion="cubic") as lab:
                    found.append(train(lab, options, seed, scheme, f"{folder}/out"))
                print(f"# {seed} {scheme}: {reached(found[-1])}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    report(options, found)


if __name__ == "__main__":
    main()
