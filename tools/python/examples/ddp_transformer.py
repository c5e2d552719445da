"""A byte-level transformer, trained by DDP on the sources of Python's standard library.

    torchrun --nproc_per_node 4 ddp_transformer.py
    torchrun --nproc_per_node 4 ddp_transformer.py --compress topk:density=0.01
    torchrun --nproc_per_node 4 ddp_transformer.py --backend gloo
    torchrun --nproc_per_node 4 ddp_transformer.py --compress auto --record run.jsonl

The last one writes pictures of the training, too: run.html. --size full has 6 layers and some 10
million parameters.
"""

from __future__ import annotations

import argparse
import os
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import pith
import pith.torch


@dataclass
class Shape:
    layers: int
    width: int
    heads: int
    context: int
    batch: int


SHAPES = {
    "tiny": Shape(layers=1, width=32, heads=2, context=32, batch=4),
    "small": Shape(layers=2, width=128, heads=4, context=64, batch=16),
    "full": Shape(layers=6, width=384, heads=6, context=128, batch=16),
}


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.before_attention = nn.LayerNorm(shape.width)
        self.to_heads = nn.Linear(shape.width, 3 * shape.width)
        self.from_heads = nn.Linear(shape.width, shape.width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(shape.width),
            nn.Linear(shape.width, 4 * shape.width),
            nn.GELU(),
            nn.Linear(4 * shape.width, shape.width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.to_heads(self.before_attention(x))
        parts = parts.view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.from_heads(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward(x)


class Transformer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, shape.width)
        self.places = nn.Parameter(torch.zeros(shape.context, shape.width))
        self.blocks = nn.Sequential(*[Block(shape) for _ in range(shape.layers)])
        self.last = nn.LayerNorm(shape.width)
        self.to_bytes = nn.Linear(shape.width, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.bytes(text) + self.places[: text.shape[1]]
        return self.to_bytes(self.last(self.blocks(x)))


def read_text(limit: int) -> torch.Tensor:
    """The standard library's sources, one after the other."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= limit:
            break
    return torch.frombuffer(text[:limit], dtype=torch.uint8).long()


def pick(text: torch.Tensor, shape: Shape, generator: torch.Generator) -> torch.Tensor:
    begins = torch.randint(len(text) - shape.context, (shape.batch,), generator=generator)
    return torch.stack([text[begin : begin + shape.context + 1] for begin in begins.tolist()])


def loss_of(model: nn.Module, sample: torch.Tensor) -> torch.Tensor:
    guess = model(sample[:, :-1])
    return functional.cross_entropy(guess.flatten(0, 1), sample[:, 1:].flatten())


@torch.no_grad()
def validation_loss(model: nn.Module, text: torch.Tensor, shape: Shape) -> float:
    generator = torch.Generator().manual_seed(0)
    return sum(loss_of(model, pick(text, shape, generator)).item() for _ in range(4)) / 4


def add_hook(model: DistributedDataParallel, spec: str) -> pith.torch.CompressHook | None:
    """The hook, if it is Pith's."""
    if spec == "none":
        return None
    if spec == "bf16":
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        # PyTorch knows the hook by its name, and allows it over NCCL alone.
        def as_bf16(group, bucket):
            return default_hooks.bf16_compress_hook(group, bucket)

        model.register_comm_hook(None, as_bf16)
    elif spec.startswith("torch-powersgd"):
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

        numbers = [int(one) for one in spec.split(":")[1:]]
        rank, first_step = numbers + [2, 10][len(numbers):]
        state = powersgd.PowerSGDState(
            None, matrix_approximation_rank=rank, start_powerSGD_iter=first_step
        )
        model.register_comm_hook(state, powersgd.powerSGD_hook)
    else:
        hook = pith.torch.compress_hook(spec)
        model.register_comm_hook(None, hook)
        return hook
    return None


class Record:
    """Pictures of the training: --record run.jsonl writes run.html, too."""

    def __init__(self, args: argparse.Namespace, model: nn.Module,
                 hook: pith.torch.CompressHook | None) -> None:
        title = f"ddp_transformer.py --size {args.size} --compress {args.compress}"
        self.recorder = pith.Recorder(args.record, rank=dist.get_rank(),
                                      size=dist.get_world_size(), title=title)
        self.model, self.hook = model, hook

    def step(self, loss: float, number: int) -> None:
        if self.hook is None:
            self.recorder.step(loss)
            return
        is_tenth = number % 10 == 0  # reads all gradients
        self.recorder.step(loss, self.hook.layers(self.model), waited=self.hook.waited(),
                           tensors=pith.torch.tensor_densities(self.model) if is_tenth else None)

    def draw(self) -> None:
        self.recorder.close()
        if dist.get_rank() == 0:
            page = Path(self.recorder.path).with_suffix(".html")
            pith.report(self.recorder.path, page)
            print(f"pictures: {page}", flush=True)


def train(args: argparse.Namespace) -> float:
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shape = SHAPES[args.size]
    text = read_text(args.bytes)
    training, validation = text[: -len(text) // 10], text[-len(text) // 10 :]
    model = DistributedDataParallel(Transformer(shape))
    hook = add_hook(model, args.compress)
    record = Record(args, model.module, hook) if args.record else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    generator = torch.Generator().manual_seed(1 + rank)
    if rank == 0:
        print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    loss = validation_loss(model.module, validation, shape)
    begin = time.monotonic()
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        step_loss = loss_of(model, pick(training, shape, generator))
        step_loss.backward()
        optimizer.step()
        if record:
            record.step(step_loss.item(), step)
        if step % args.every == 0 or step == args.steps:
            took = time.monotonic() - begin
            loss = validation_loss(model.module, validation, shape)
            if record:
                record.recorder.validation(loss)
            if rank == 0:
                print(f"step {step}: validation loss {loss:.3f}, {took:.1f} s", flush=True)
    if record:
        record.draw()
    return loss


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="pith")
    parser.add_argument("--size", choices=SHAPES, default="small")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=20, help="steps between two reports")
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument(
        "--compress", default="none",
        help="none, auto, a spec of pith, bf16 or torch-powersgd:RANK:STEP"
    )
    parser.add_argument("--record", metavar="FILE", help="writes a record, and pictures of it")
    return parser.parse_args()


def main() -> None:
    args = parse()
    if "RANK" not in os.environ:
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group(args.backend)
    train(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
