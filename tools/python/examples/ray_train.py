"""Ray Train with the backend "pith": two workers train by DDP.

    pip install "ray[train]"
    python ray_train.py --workers 2
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import ray
import torch
import torch.distributed as dist
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from torch.nn.parallel import DistributedDataParallel

import pith.torch


def report(model: torch.nn.Module, hook: pith.torch.CompressHook, loss: float) -> None:
    """With a checkpoint: the model, and of every rank what its compressor has not sent yet."""
    rank = dist.get_rank()
    metrics = {"loss": loss, "ranks": dist.get_world_size(), "backend": dist.get_backend()}
    with tempfile.TemporaryDirectory() as folder:
        torch.save(hook.state_dict(model), f"{folder}/rank-{rank}.pt")
        if rank == 0:
            torch.save(model.state_dict(), f"{folder}/model.pt")
        ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def train(config: dict[str, int]) -> None:
    torch.manual_seed(dist.get_rank())
    model = torch.nn.Linear(8, 1)
    ddp = DistributedDataParallel(model)
    hook = pith.torch.compress_hook("topk:density=0.25")
    ddp.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(config["steps"]):
        x = torch.randn(64, 8)
        optimizer.zero_grad()
        loss = (ddp(x) - x.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        optimizer.step()
    report(model, hook, loss.item())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    # Ray makes the process group before it calls train, so its workers must know the backend.
    setup = {"worker_process_setup_hook": "pith.torch.backend.register"}
    ray.init(num_cpus=args.workers + 1, include_dashboard=False, runtime_env=setup)
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            train,
            train_loop_config={"steps": args.steps},
            torch_config=TorchConfig(backend="pith"),
            scaling_config=ScalingConfig(num_workers=args.workers),
            run_config=RunConfig(storage_path=folder),
        )
        result = trainer.fit()
        last = result.metrics
        print(f"{last['ranks']} workers with {last['backend']} end with loss {last['loss']:.6f}")
        with result.checkpoint.as_directory() as checkpoint:
            print("checkpoint:", *sorted(path.name for path in Path(checkpoint).glob("*.pt")))
    ray.shutdown()


if __name__ == "__main__":
    main()
