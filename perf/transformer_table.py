#!/usr/bin/env python3
"""Which compression scheme pays for a transformer: PyTorch's DDP with each, as a table.

4 ranks on hosts of their own (network namespaces, as root; 2 ranks share a core where there are
fewer) train the byte-level transformer of ddp_transformer.py with AdamW and Pith's hook, with every
scheme and seed one after the other in the same processes, in an order that rotates. At the first
link they train for all steps; at the others some steps are timed. The loss to reach is what dense
training with the same seed has after three quarters of the steps; the time to it is the number of
steps times the median step. Printed are medians over the seeds, or "-" where a seed never gets
there.

    ENVIRONMENT/bin/python perf/transformer_table.py     # with PyTorch and Pith
"""
import argparse
import json
import os
import pathlib
import secrets
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "regret"), str(HERE.parent / "tools" / "python" / "examples")]
import links  # noqa: E402
from lab import Lab, Signals  # noqa: E402
from scheme_table import SCHEMES, spec_of  # noqa: E402

PORT = 29613
WARM = 12  # steps, in which DDP lays its buckets and calls try what is faster
TIMED = 10  # steps of links that only time


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--links", default="1g,0.1g,10g", help="the first one trains")
    add("--schemes", nargs="*", default=SCHEMES)
    add("--seeds", default="0,1,2")
    add("--ranks", type=int, default=4)
    add("--size", default="small", help="tiny, small, full")
    add("--batch", type=int, default=4, help="of each rank")
    add("--steps", type=int, default=100)
    add("--every", type=int, default=5, help="steps between two losses")
    add("--json", type=pathlib.Path)
    add("--out", help=argparse.SUPPRESS)  # in a rank: where rank 0 writes what it has found
    return parser.parse_args()


# --- in a rank ----------------------------------------------------------------------------------


def train(options, scheme, seed, text, steps):
    """Losses by step, seconds of each step, and the bytes that this rank has sent in it."""
    import dataclasses

    import ddp_transformer as example
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(seed)
    shape = dataclasses.replace(example.SHAPES[options.size], batch=options.batch)
    training, validation = text[:-len(text) // 10], text[-len(text) // 10:]
    model = DistributedDataParallel(example.Transformer(shape))
    hook = example.add_hook(model, "none" if scheme == "dense" else spec_of(scheme))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1000 * seed + 1 + dist.get_rank())
    found = {"seconds": [], "losses": [], "bytes": []}
    for step in range(1, steps + 1):
        begin = time.monotonic()
        optimizer.zero_grad()
        example.loss_of(model, example.pick(training, shape, generator)).backward()
        optimizer.step()
        found["seconds"].append(time.monotonic() - begin)
        if hook:
            found["bytes"].append(sum(one["bytes_sent"] for one in hook.stats()))
        if step % options.every == 0:
            loss = example.validation_loss(model.module, validation, shape)
            found["losses"].append((step, loss))
            dist.barrier()
    return found


def run_rank(options):
    import ddp_transformer as example
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    text = example.read_text(1_000_000)
    dist.init_process_group("pith")
    everything = {scheme: [] for scheme in options.schemes}
    seeds = [int(seed) for seed in options.seeds.split(",")]
    for number, seed in enumerate(seeds):
        turn = number * len(options.schemes) // len(seeds)
        for scheme in [*options.schemes[turn:], *options.schemes[:turn]]:
            everything[scheme].append(train(options, scheme, seed, text, options.steps))
            if dist.get_rank() == 0:
                losses = everything[scheme][-1]["losses"]
                print(f"# {scheme}, seed {seed}: {losses[-1] if losses else ''}", file=sys.stderr,
                      flush=True)
    if dist.get_rank() == 0:
        pathlib.Path(options.out).write_text(json.dumps(everything), encoding="utf-8")
    dist.destroy_process_group()


# --- the table ----------------------------------------------------------------------------------


def run(options, link, seeds, steps, out):
    """What rank 0 has found at a link: a list of runs for each scheme."""
    common = {"WORLD_SIZE": str(options.ranks), "MASTER_PORT": str(PORT), "OMP_NUM_THREADS": "1",
              "PITH_SECRET": secrets.token_hex(16), "PITH_TRANSPORT": link.transport,
              "PITH_IFNAME": "eth0", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    with Lab(options.ranks, link=link.kind, rate=link.rate, delay=link.delay, ipv6=False,
             congestion="cubic") as lab:
        ranks = []
        for rank in range(options.ranks):
            command = ["taskset", "-c", str(rank % os.cpu_count()), sys.executable, "-B", __file__,
                       "--out", str(out), "--seeds", seeds, "--ranks", str(options.ranks),
                       "--size", options.size, "--batch", str(options.batch), "--steps", str(steps),
                       "--every", str(options.every), "--schemes", *options.schemes]
            own = {"RANK": str(rank), "MASTER_ADDR": lab[0].address}
            ranks.append(lab[rank].start(command, links.clean_environment() | common | own))
        failed = [rank.wait() for rank in ranks]
    if any(failed) or not out.exists():
        raise SystemExit(f"transformer_table: {link.name}: ranks ended with {failed}")
    return json.loads(out.read_text(encoding="utf-8"))


def steps_to(losses, target):
    """Between two validations by a line; None if it never gets there."""
    before = (0, float("inf"))
    for step, loss in losses:
        if loss <= target:
            share = (before[1] - target) / (before[1] - loss) if before[0] else 1
            return before[0] + share * (step - before[0])
        before = (step, loss)
    return None


def median_step(runs):
    return statistics.median(one for run in runs for one in run["seconds"][WARM:])


def row(scheme, trained, timed, targets):
    runs = trained[scheme]
    steps = [steps_to(run["losses"], target) for run, target in zip(runs, targets, strict=True)]
    loss = statistics.median(run["losses"][-1][1] for run in runs)
    sent = [one for run in runs for one in run["bytes"]]
    fields = [f"`{scheme}`", f"{loss:.3f}", f"{statistics.mean(sent) / 1e3:.0f}" if sent else ""]
    fields.append("-" if None in steps else f"{statistics.median(steps):.0f}")
    for found in [trained, *timed]:
        step_s = median_step(found[scheme])
        to_loss = "-" if None in steps else f"{statistics.median(steps) * step_s:.1f}"
        fields += [f"{1e3 * step_s:.0f}", to_loss]
    return "| " + " | ".join(fields) + " |"


def main():
    options = parse()
    if options.out:
        return run_rank(options)
    options.schemes = list(dict.fromkeys(["dense", *options.schemes]))
    try:
        all_links = [links.parse_link(text) for text in options.links.split(",")]
    except ValueError as error:
        sys.exit(f"transformer_table: {error}")
    for link in all_links:
        if not link.rate:
            sys.exit(f"transformer_table: {link.name} is within a host, expected a form of 1g")
        if link.lacks():
            sys.exit(f"transformer_table: {link.name}: {link.lacks()}")
    Signals.take()
    with tempfile.TemporaryDirectory(prefix="transformer-") as folder:
        out = pathlib.Path(folder) / "out.json"
        first_seed = options.seeds.split(",")[0]
        trained = run(options, all_links[0], options.seeds, options.steps, out)
        timed = [run(options, link, first_seed, WARM + TIMED, out) for link in all_links[1:]]
    if options.json:
        options.json.write_text(json.dumps([trained, *timed]) + "\n", encoding="utf-8")
    targets = [[loss for step, loss in dense["losses"] if step <= options.steps * 3 / 4][-1]
               for dense in trained["dense"]]
    print(f"{options.ranks} ranks, {options.size}, batch {options.batch}; losses to reach "
          + ", ".join(f"{target:.3f}" for target in targets))
    heads = "".join(f" {link.name}: ms a step | s to the loss |" for link in all_links)
    print(f"\n| scheme | loss after {options.steps} steps | KB a step | steps to the loss |{heads}")
    print("|" + "---|" * (4 + 2 * len(all_links)))
    for scheme in options.schemes:
        print(row(scheme, trained, timed, targets), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
