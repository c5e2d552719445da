"""A training that torchrun starts anew when a rank dies, and that goes on from its checkpoint.

    torchrun --standalone --nproc_per_node 3 --max-restarts 1 --monitor-interval 5 \
        ddp_restart.py --folder /tmp/checkpoints --die-at 12

The last rank kills itself in step 12 of the first start. The others get an exception that names it;
the monitor interval leaves them the time to say so before torchrun ends them. A checkpoint has the
model once, and of every rank what its compressor has not sent yet.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pith.torch


class Checkpoints:
    """Folders step-N, which get that name when all ranks have written their part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self) -> Path | None:
        steps = [path for path in self.folder.glob("step-*") if path.suffix != ".part"]
        return max(steps, key=lambda path: int(path.name.removeprefix("step-")), default=None)

    def save(self, step: int, shared: object, own: object) -> None:
        part = self.folder / f"step-{step}.part"
        if dist.get_rank() == 0:
            # A start that died here may have had more ranks.
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
        dist.barrier()
        torch.save(own, part / f"rank-{dist.get_rank()}.pt")
        if dist.get_rank() == 0:
            torch.save(shared, part / "shared.pt")
        dist.barrier()
        if dist.get_rank() == 0:
            part.rename(self.folder / f"step-{step}")
        dist.barrier()


class Training:
    def __init__(self, spec: str) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
        )
        self.hook = pith.torch.compress_hook(spec)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def save(self, checkpoints: Checkpoints, step: int) -> None:
        shared = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        checkpoints.save(step, shared, self.hook.state_dict(self.model))

    def load(self, checkpoint: Path) -> int:
        """The step to go on with. The number of ranks may be another one than before."""
        shared = torch.load(checkpoint / "shared.pt")
        self.model.load_state_dict(shared["model"])
        self.optimizer.load_state_dict(shared["optimizer"])
        ranks = range(len(list(checkpoint.glob("rank-*.pt"))))
        self.hook.load_state_dict(
            [torch.load(checkpoint / f"rank-{rank}.pt") for rank in ranks], self.model
        )
        return int(checkpoint.name.removeprefix("step-"))

    def run(self, steps: range) -> Iterator[tuple[int, float]]:
        """Yields the number of steps done, and the last loss."""
        ddp = DistributedDataParallel(self.model)
        ddp.register_comm_hook(None, self.hook)
        for step in steps:
            # By step, so that a step that is done again gets the same sample.
            generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
            x = torch.randn(64, 8, generator=generator)
            self.optimizer.zero_grad()
            loss = (ddp(x) - x.sum(1, keepdim=True)).pow(2).mean()
            loss.backward()
            self.optimizer.step()
            yield step + 1, loss.item()


def die(folder: Path) -> None:
    (folder / "died").write_text(str(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)


def since(died: Path) -> str:
    if not died.exists():
        return ""
    return f", {time.monotonic() - float(died.read_text()):.3f} s later"


def train(args: argparse.Namespace) -> None:
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    is_first_start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    checkpoints = Checkpoints(args.folder)
    training = Training(args.spec)
    checkpoint = checkpoints.newest()
    begin = 0 if checkpoint is None else training.load(checkpoint)
    if rank == 0 and begin > 0:
        residuals = training.hook.state_dict(training.model)["residuals"].values()
        held = sum(int(residual.count_nonzero()) for residual in residuals)
        print(f"goes on at step {begin}, rank 0 with {held} residuals", flush=True)
    loss = 0.0
    for step, loss in training.run(range(begin, args.steps)):
        if step % args.every == 0:
            training.save(checkpoints, step)
        if step == args.die_at and rank == last and is_first_start:
            die(args.folder)
    if rank == 0:
        print(f"{args.steps} steps end with loss {loss:.6f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=5, help="steps between two checkpoints")
    parser.add_argument("--die-at", type=int, default=-1, help="step in which the last rank dies")
    parser.add_argument("--spec", default="topk:density=0.1,bypass=never")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.folder.mkdir(parents=True, exist_ok=True)
    dist.init_process_group("pith")
    failed = False
    try:
        train(args)
    except RuntimeError as error:  # torch.distributed.DistBackendError is one
        late = since(args.folder / "died")
        print(f"rank {dist.get_rank()}{late}: {str(error).splitlines()[0]}\n", end="")
        failed = True
    dist.destroy_process_group()
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
