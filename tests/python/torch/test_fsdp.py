"""FSDP2 over the backend: sharded training equals training on one rank."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from ranks import run_ranks


def make_model() -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.Linear(64, 4)
    )


def step(model: torch.nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()


def train(rank: int, size: int, reduced_in_bf16: bool, hosts: int) -> None:
    names = ("between", "within") if hosts > 1 else ("within",)
    shape = (hosts, size // hosts) if hosts > 1 else (size,)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    alone = make_model()
    sharded = copy.deepcopy(alone)
    kind = torch.bfloat16 if reduced_in_bf16 else torch.float32
    policy = MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=kind)
    for layer in sharded:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(sharded, mesh=mesh, mp_policy=policy)
    first = torch.optim.SGD(alone.parameters(), lr=0.1)
    second = torch.optim.SGD(sharded.parameters(), lr=0.1)
    for number in range(3):
        x = torch.randn(size * 8, 16, generator=torch.Generator().manual_seed(number))
        step(alone, x, first)
        step(sharded, x[rank * 8 : (rank + 1) * 8], second)
    for expected, found in zip(alone.parameters(), sharded.parameters(), strict=True):
        whole = found.full_tensor()  # type: ignore[attr-defined]
        tolerance = 2e-2 if reduced_in_bf16 else 1e-4
        torch.testing.assert_close(whole, expected, rtol=tolerance, atol=tolerance)
    assert dist.get_backend() == "pith"


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("reduced_in_bf16", [False, True])
def test_fully_shard(size: int, reduced_in_bf16: bool) -> None:
    run_ranks(train, size, reduced_in_bf16, 1)


def test_hybrid() -> None:
    """Sharded within a host, replicated between hosts."""
    run_ranks(train, 4, False, 2)
