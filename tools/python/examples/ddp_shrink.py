"""One rank dies in the middle of a training, and the others go on without a restart.

    python ddp_shrink.py --ranks 3

The parent starts the ranks itself, because torchrun ends all of them when one dies.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pith.torch


def make_ddp(model: torch.nn.Module, hook: pith.torch.CompressHook) -> DistributedDataParallel:
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(None, hook)
    return ddp


def one_step(ddp: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
    optimizer.zero_grad()
    x = torch.randn(16, 8)
    loss = (ddp(x) - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def go_on(
    model: torch.nn.Module, spec: str, hook: pith.torch.CompressHook
) -> tuple[DistributedDataParallel, pith.torch.CompressHook]:
    """Leaves out the dead. The survivors keep their residuals and take rank 0's parameters."""
    residuals = hook.state_dict(model)
    pith.torch.shrink()
    hook = pith.torch.compress_hook(spec)
    hook.load_state_dict(residuals, model)
    return make_ddp(model, hook), hook


def run_rank(rank: int, size: int, steps: int, folder: str) -> None:
    where = f"file://{folder}/store"
    dist.init_process_group("pith", init_method=where, rank=rank, world_size=size)
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    spec = "topk:density=0.1"
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    hook = pith.torch.compress_hook(spec)
    ddp = make_ddp(model, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while step < steps:
        if rank == size - 1 and step == steps // 2:
            os._exit(1)
        failed = False
        try:
            loss = one_step(ddp, optimizer)
            step += 1
        except RuntimeError as error:  # torch.distributed.DistBackendError is one
            print(f"rank {rank}: {str(error).splitlines()[0]}", flush=True)
            failed = True
        if failed:  # outside of "except", whose traceback keeps the old DDP
            del ddp
            gc.collect()
            ddp, hook = go_on(model, spec, hook)
            steps_done = torch.tensor([step])
            dist.broadcast(steps_done, 0)  # one rank may have ended the last step, another not
            step = int(steps_done)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks end with loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=run_rank, args=(rank, args.ranks, args.steps, folder))
            for rank in range(args.ranks)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        assert [process.exitcode for process in ranks] == [0] * (args.ranks - 1) + [1]


if __name__ == "__main__":
    main()
