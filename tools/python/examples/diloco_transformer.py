"""The transformer of ddp_transformer.py over slow links: DiLoCo with compressed outer steps.

    torchrun --nproc_per_node 2 diloco_transformer.py
    torchrun --nproc_per_node 2 diloco_transformer.py --spec topk:density=0.02 --momentum 0.5

Every rank trains alone, and exchanges what its parameters have changed every --every steps.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from ddp_transformer import SHAPES, Transformer, loss_of, pick, read_text, validation_loss

import pith.torch


def train(args: argparse.Namespace) -> None:
    rank = dist.get_rank()
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    shape = SHAPES[args.size]
    text = read_text(args.bytes)
    training, validation = text[: -len(text) // 10], text[-len(text) // 10 :]
    model = Transformer(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    outer = pith.torch.OuterStep(
        model, args.every, args.spec, lr=args.outer_lr, momentum=args.momentum
    )
    generator = torch.Generator().manual_seed(1 + rank)
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        loss_of(model, pick(training, shape, generator)).backward()
        optimizer.step()
        if outer.step():
            loss = validation_loss(model, validation, shape)
            sent = outer.stats()["bytes_sent"] / 1024
            if rank == 0:
                print(f"step {step}: validation loss {loss:.3f}, {sent:.0f} KiB sent", flush=True)
    if outer.steps:
        outer.exchange()  # the steps since the last one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SHAPES, default="small")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, help="steps for one outer step")
    parser.add_argument("--spec", default="none")
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--outer-lr", type=float, default=0.7)
    parser.add_argument("--momentum", type=float, default=0.9)
    args = parser.parse_args()
    dist.init_process_group("pith")
    train(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
