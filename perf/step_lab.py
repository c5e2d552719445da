#!/usr/bin/env python3
"""How soon the library's choices fit again after links have changed in a run of calls.

Each rank has a host of its own in a laboratory (tests/netlab) whose TCP uses cubic. A run makes
calls on the first links, then on the second; each contender has a run of its own. The price of a
call is its time; with density=auto (between + time) / gain, which is what that minimises, where
`between` is a pause that stands for computing and the gain is the share of the norm that was sent.
Regret is a call's price over the least median of the fixed contenders on the same links, less one;
a median of five neighbours, as single calls are noisy. Told is after how many calls, and round
trips of the second links, it is under 10 % and stays so for ten calls; and the same of the best
fixed contender, which waits for TCP and the machine.

    perf/step_lab.py --kinds dense,density,bypass --from 1g+1ms --to 0.1g+1ms      # as root
"""
import argparse
import json
import math
import os
import pathlib
import secrets
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "regret"))
import links  # noqa: E402
from lab import Lab, Signals, program  # noqa: E402

DENSITIES = (0.1, 0.033, 0.01, 0.0033, 0.001)
ALGORITHMS = ("recursive_doubling", "ring", "rabenseifner", "two_shot", "one_shot")
CONSTANT = {"PITH_LEARN": "0"}
UNDER, LASTS, NEIGHBOURS = 0.10, 10, 5


def contenders(kind):
    """The one that chooses, then the fixed ones: name, environment, spec."""
    if kind == "dense":
        return [("learn", {}, "")] + [
            (name, {"PITH_ALGO": f"allreduce:{name}"}, "") for name in ALGORITHMS]
    if kind == "density":
        return [("auto", {}, "topk:density=auto,feedback=0"), ("dense", CONSTANT, "")] + [
            (f"{one:g}", {}, f"topk:density={one:g},feedback=0,bypass=never") for one in DENSITIES]
    return [("auto", {}, "topk:density=0.1"), ("dense", CONSTANT, ""),
            ("compressed", {}, "topk:density=0.1,bypass=never")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--kinds", type=lambda text: text.split(","), default=["dense", "density", "bypass"])
    add("--from", dest="first", type=links.parse_link, default="1g+1ms")
    add("--to", dest="second", type=links.parse_link, default="0.1g+1ms")
    add("--ranks", type=int, default=4)
    add("--sizes", type=lambda text: [int(one) for one in text.split(",")],
        default=[65536, 1048576])
    add("--before", type=int, default=60)
    add("--after", type=int, default=80)
    add("--between-ms", type=float, default=5)
    add("--json", type=pathlib.Path)
    return parser.parse_args()


def run(options, size, environment, spec, out):
    with Lab(options.ranks, rate=options.first.rate, delay=options.first.delay, ipv6=False,
             congestion="cubic") as lab:
        common = links.clean_environment() | environment | {
            "PITH_IFNAME": "eth0", "PITH_SIZE": str(options.ranks), "PITH_TRANSPORT": "tcp",
            "PITH_ROOT": f"{lab[0].address}:{links.ROOT_PORT}",
            "PITH_SECRET": secrets.token_hex(16)}
        flags = ["--spec", spec, "--bytes", size, "--before", options.before, "--after",
                 options.after, "--between-ms", options.between_ms, "--out", out]
        ranks = [host.start([program("step_bench"), *flags],
                            {**common, "PITH_RANK": str(host.number)},
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                 for host in lab]
        for _ in ranks[0].stdout:
            lab.set_rate(options.second.rate)
            lab.set_delay(options.second.delay)
            ranks[0].stdin.write("laid\n")
            ranks[0].stdin.flush()
        if any([rank.wait(60) for rank in ranks]):
            raise SystemExit("step_lab: a run failed")
    return json.loads(pathlib.Path(out).read_text(encoding="utf-8"))


def prices(kind, found, options):
    """Of all calls, in order."""
    if kind != "density":
        return found["seconds"]
    between = options.between_ms / 1e3
    return [(between + seconds) / math.sqrt(max(squares, 1e-9))
            for seconds, squares in zip(found["seconds"], found["gain"])]


def smooth(values):
    return [statistics.median(values[max(0, i - NEIGHBOURS // 2):i + NEIGHBOURS // 2 + 1])
            for i in range(len(values))]


def recovered(own, best):
    """The first call from which on the regret is low, or None."""
    regrets = [price / best - 1 for price in smooth(own)]
    for i in range(len(regrets) - LASTS + 1):
        if max(regrets[i:i + LASTS]) < UNDER:
            return i
    return None


def told(name, at, seconds, rtt):
    if at is None:
        return f"{name}: not within the run"
    spent = sum(seconds[:at])
    return f"{name}: after {at} calls, {spent / rtt:.0f} round trips"


def report(kind, size, found, options):
    priced = {name: prices(kind, one, options) for name, one in found.items()}
    chooser, *fixed = priced
    rtt = 2 * options.second.delay + 4 * links.PACKET_S
    last = {name: statistics.median(priced[name][-30:]) for name in priced}
    before = {name: statistics.median(priced[name][options.before - 20:options.before])
              for name in priced}
    best, was = min(fixed, key=last.get), min(fixed, key=before.get)
    after = {name: values[options.before:] for name, values in priced.items()}
    print(f"{kind}, {size} bytes, {options.first.name} to {options.second.name}: best was {was}, "
          f"then {best}; regret before {100 * (before[chooser] / before[was] - 1):.0f} %, "
          f"at the end {100 * (last[chooser] / last[best] - 1):.0f} %, of the old best "
          f"{100 * (last[was] / last[best] - 1):.0f} %")
    for name in (chooser, best):
        at = recovered(after[name], last[best])
        print("   ", told(name, at, found[name]["seconds"][options.before:], rtt))
    if kind != "dense":
        made = found[chooser]["density"]
        changes = [f"{i - options.before:+}: {100 * made[i]:.2g} %" for i in range(1, len(made))
                   if made[i] != made[i - 1]]
        print("    its density:", f"{100 * made[0]:.2g} %", *changes)
    sys.stdout.flush()


def main():
    options = parse()
    for link in (options.first, options.second):
        lacks = link.lacks() or (None if link.rate else "it is no link between hosts")
        if lacks:
            sys.exit(f"step_lab: {link.name}: {lacks}")
    Signals.take()
    everything = []
    with tempfile.TemporaryDirectory(prefix="step-") as folder:
        for kind in options.kinds:
            for size in options.sizes:
                found = {name: run(options, size, environment, spec, os.path.join(folder, "out"))
                         for name, environment, spec in contenders(kind)}
                report(kind, size, found, options)
                everything.append({"kind": kind, "bytes": size, "found": found})
    if options.json:
        options.json.write_text(json.dumps(everything) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
