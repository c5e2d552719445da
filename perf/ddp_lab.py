#!/usr/bin/env python3
"""How soon a transformer trained by PyTorch's DDP reaches a loss, with Pith and with Gloo.

Each rank has a host of its own in a laboratory (tests/netlab), or all are processes of this one
(shm, loopback). Every contender trains the same model on the same samples (ddp_rank.py) for the
same number of steps. Its time to the loss is that of the steps until it has it, without the
validations; the loss is what the first contender has after three quarters of its steps.

Contenders are a backend of torch.distributed and a hook, as ddp_transformer.py takes it: "gloo",
"gloo bf16", "gloo torch-powersgd:4" or "gloo torch-powersgd:4:2" (PyTorch's hook with rank 4, from
step 10 or 2 on), "pith", "pith auto", "pith topk:density=0.01". "registered" is pith with model and
buckets in its own memory. With the hook `local` ranks only wait for each other: what a contender's
step takes more is its exposed communication. With --exchange-only a step is little else than
compression and communication.

    ENVIRONMENT/bin/python perf/ddp_lab.py --links 0.1g,1g      # as root; with PyTorch and Pith
"""
import argparse
import json
import os
import pathlib
import secrets
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "regret"))
import links  # noqa: E402
from lab import Lab, Signals, end_with_parent  # noqa: E402

CONTENDERS = ("gloo,gloo bf16,gloo torch-powersgd:1,gloo torch-powersgd:2,gloo torch-powersgd:4,"
              "pith,pith auto,pith powersgd:rank=4,gloo local")
PORT = 29611
WARM = 12  # steps; PowerSGD's first ten are dense


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--links", type=lambda text: [links.parse_link(one) for one in text.split(",")],
        default="0.1g,1g")
    add("--contenders", type=lambda text: text.split(";" if ";" in text else ","),
        default=CONTENDERS, help="separated by commas, or by semicolons")
    add("--ranks", type=int, default=4)
    add("--size", default="full", help="tiny, small, full: some 10 million parameters")
    add("--batch", type=int, default=4, help="of each rank")
    add("--steps", type=int, default=80)
    add("--every", type=int, default=5, help="steps between two losses")
    add("--exchange-only", action="store_true", help="gradients that cost nothing, no losses")
    add("--rounds", type=int, default=1, help="runs of each contender, interleaved")
    add("--json", type=pathlib.Path)
    return parser.parse_args()


def command(options, contender, rank, out):
    backend, _, hook = contender.partition(" ")
    memory = ["--registered"] if backend == "registered" else []
    memory += ["--exchange-only"] if options.exchange_only else []
    backend = backend.replace("registered", "pith")
    return ["taskset", "-c", str(rank % os.cpu_count()), sys.executable, "-B",
            str(HERE / "ddp_rank.py"), "--backend", backend, "--hook", hook or "none", *memory,
            "--size", options.size, "--batch", str(options.batch), "--steps", str(options.steps),
            "--every", str(options.every), "--out", out]


def environment(options, link, rank, root, secret):
    own = {"RANK": str(rank), "WORLD_SIZE": str(options.ranks), "MASTER_ADDR": root,
           "MASTER_PORT": str(PORT), "OMP_NUM_THREADS": "1", "PITH_SECRET": secret,
           "PITH_TRANSPORT": link.transport, "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if link.rate:
        own |= {"PITH_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}
    return links.clean_environment() | own


def run(options, link, contender, out):
    """What rank 0 has found; None if it failed."""
    secret = secrets.token_hex(16)
    out.unlink(missing_ok=True)

    def run_ranks(start, root):
        ranks = [start(rank, command(options, contender, rank, str(out)),
                       environment(options, link, rank, root, secret))
                 for rank in range(options.ranks)]
        for rank in ranks:
            rank.wait()

    def start_here(_rank, arguments, variables):
        return subprocess.Popen(arguments, env=variables, preexec_fn=end_with_parent)

    if link.rate:
        with Lab(options.ranks, link=link.kind, rate=link.rate, delay=link.delay, ipv6=False,
                 congestion="cubic") as lab:
            run_ranks(lambda rank, *what: lab[rank].start(*what), lab[0].address)
    else:
        run_ranks(start_here, "127.0.0.1")
    return json.loads(out.read_text(encoding="utf-8")) if out.exists() else None


def seconds_to(found, loss):
    """Of the steps until the validation loss was that low, between two validations by a line."""
    before = None
    for step, has in found["losses"]:
        if has <= loss:
            if before is None:
                return sum(found["seconds"][:step])
            share = (before[1] - loss) / (before[1] - has)
            return sum(found["seconds"][:before[0]]) + share * sum(
                found["seconds"][before[0]:step])
        before = (step, has)
    return None


def all_steps(runs, what):
    return [one for run in runs for one in run[what][WARM:]]


def described(calls):
    ways = sorted(calls["algorithms"].items(), key=lambda way: -way[1])
    return f", density {100 * calls['density']:.2g} %: " + ", ".join(
        f"{name} {100 * share:.0f} %" for name, share in ways)


def report(options, link, found):
    """found: the runs of each contender."""
    first = next(iter(found.values()))
    if not first:
        raise SystemExit(f"ddp_lab: {link.name}: the first contender failed")
    target = [loss for step, loss in first[0]["losses"] if step <= options.steps * 3 / 4][-1]
    print(f"{link.name}, {options.ranks} ranks, {options.size}, batch {options.batch}: "
          f"to a loss of {target:.3f}, medians of {options.rounds} rounds")
    for name, runs in found.items():
        if len(runs) < options.rounds:
            print(f"  {name:24} failed")
            continue
        step_s = statistics.median(all_steps(runs, "seconds"))
        cpu_s = statistics.median(all_steps(runs, "cpu_seconds"))
        to_loss = [seconds_to(run, target) for run in runs]
        reaches = name.partition(" ")[2] != "local" and None not in to_loss
        last = statistics.median(run["losses"][-1][1] for run in runs)
        calls = runs[-1]["calls"][-1]
        print(f"  {name:24} step {step_s:7.3f} s, of rank 0's core {cpu_s:.3f}, to the loss "
              + (f"{statistics.median(to_loss):7.1f} s" if reaches else "   never ")
              + f", loss at the end {last:.3f}"
              + (described(calls) if calls else ""))
    sys.stdout.flush()


def progress(ran):
    if not ran:
        return "failed"
    step, loss = ran["losses"][-1]
    return f"loss {loss:.3f} after {step} steps, {sum(ran['seconds']):.0f} s"


def main():
    options = parse()
    for link in options.links:
        if link.lacks():
            sys.exit(f"ddp_lab: {link.name}: {link.lacks()}")
    Signals.take()
    everything = {}
    with tempfile.TemporaryDirectory(prefix="ddp-") as folder:
        for link in options.links:
            found = {one: [] for one in options.contenders}
            for one in options.contenders * options.rounds:
                ran = run(options, link, one, pathlib.Path(folder) / "out.json")
                if ran:
                    found[one].append(ran)
                print(f"# {link.name}, {one}: {progress(ran)}", file=sys.stderr, flush=True)
            report(options, link, found)
            everything[link.name] = found
    if options.json:
        options.json.write_text(json.dumps(everything) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
