"""A rank of ddp_lab.py: trains the transformer of tools/python/examples and times each step."""
import argparse
import collections
import contextlib
import dataclasses
import json
import pathlib
import sys
import time

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "tools" / "python" / "examples"
sys.path.insert(0, str(EXAMPLES))
import ddp_transformer as example  # noqa: E402
import pith.torch  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--backend", required=True)
    add("--hook", required=True, help="as --compress of the example; local: ranks only wait")
    add("--exchange-only", action="store_true", help="gradients that cost nothing, no losses")
    add("--registered", action="store_true", help="model and buckets in pith's memory")
    add("--size", required=True)
    add("--batch", type=int, required=True)
    add("--steps", type=int, required=True)
    add("--every", type=int, required=True, help="steps between two losses")
    add("--out", type=pathlib.Path, required=True, help="rank 0 writes its times and losses here")
    return parser.parse_args()


def keep(_state, bucket):
    """A hook that only waits for the other ranks."""
    buffer = bucket.buffer()
    buffer.div_(dist.get_world_size())
    told = dist.all_reduce(torch.zeros(1), async_op=True).get_future()
    return told.then(lambda _: buffer)


class Gradients(torch.nn.Module):
    """The parameters of a model, with fixed gradients that take next to no time."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.given = [torch.randn_like(parameter) for parameter in model.parameters()]

    def forward(self, _tokens):
        pairs = zip(self.model.parameters(), self.given, strict=True)
        return sum(torch.dot(parameter.view(-1), given.view(-1)) for parameter, given in pairs)


def memory_of(options):
    return pith.torch.registered_tensors() if options.registered else contextlib.nullcontext()


def calls_of(hook, model):
    """Of the last calls: the share of all elements that each rank chose, and by which algorithm."""
    if not hasattr(hook, "layers"):
        return None
    layers = hook.layers(model).values()
    every = sum(one.count for one in layers)
    shares = collections.Counter()
    for one in layers:
        shares[one.algorithm] += one.count / every
    chosen = sum(one.count * (1 if one.bypassed else one.density_target) for one in layers)
    return {"density": chosen / every, "algorithms": shares}


def train(options):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shape = dataclasses.replace(example.SHAPES[options.size], batch=options.batch)
    text = example.read_text(1_000_000)
    training, validation = text[:-len(text) // 10], text[-len(text) // 10:]
    # PowerSGD's callbacks make calls for several buckets in another order on each rank, over which
    # Gloo fails: it gets one.
    bucket_mib = 1000 if options.hook.startswith("torch-powersgd") else None
    module = example.Transformer(shape)
    if options.exchange_only:
        module = Gradients(module)
    model = DistributedDataParallel(module, bucket_cap_mb=bucket_mib)
    hook = None
    if options.hook == "local":
        model.register_comm_hook(None, keep)
    else:
        hook = example.add_hook(model, options.hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    found = {"seconds": [], "cpu_seconds": [], "losses": [], "calls": []}
    for step in range(1, options.steps + 1):
        begin, begin_cpu = time.monotonic(), time.process_time()
        optimizer.zero_grad()
        if options.exchange_only:
            model(None).backward()
        else:
            example.loss_of(model, example.pick(training, shape, generator)).backward()
            optimizer.step()
        found["seconds"].append(time.monotonic() - begin)
        found["cpu_seconds"].append(time.process_time() - begin_cpu)
        if step % options.every == 0:
            loss = 0.0
            if not options.exchange_only:
                loss = example.validation_loss(model.module, validation, shape)
            found["losses"].append((step, loss))
            found["calls"].append(calls_of(hook, model.module))
            dist.barrier()
    return found


def main():
    options = parse()
    dist.init_process_group(options.backend)
    with memory_of(options):
        found = train(options)
    if dist.get_rank() == 0:
        options.out.write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
