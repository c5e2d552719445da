"""Every compression scheme that libpith has, under DDP."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import pith.torch
from ranks import run_ranks

# What a scheme gets of these, and what it has beside its own defaults.
OPTIONS = {"density": "0.1", "bypass": "never", "rank": "2"}
MORE = ["topk:values=int8", "topk:values=int4", "int8:map=dynamic", "bounded:feedback=1",
        "dgc:warmup=3", "sidco:law=pareto", "adaptive:values=bf16",
        "clt-k:beta=0.5", "auto:schemes=ar-topk+spardl+onebit"]


def refusal(spec: str) -> str:
    with pytest.raises(ValueError) as refused:
        pith.torch.compress_hook(spec)
    return str(refused.value)


def listed(spec: str) -> list[str]:
    """What libpith expects instead of this."""
    found = re.search("expected one of (.*)", refusal(spec))
    return found[1].split(", ") if found else []


def specs() -> Iterator[str]:
    names = listed("?")
    assert len(names) >= 30
    for spec in names + MORE:
        name, _, own = spec.partition(":")
        keys = listed(f"{name}:?=0")
        options = {**OPTIONS, "density": "auto"} if "schemes" in keys else OPTIONS
        given = [f"{key}={value}" for key, value in options.items() if key in keys]
        yield f"{name}:{','.join(given + [own] if own else given)}".rstrip(":")


def train(rank: int, size: int, spec: str) -> tuple[float, float]:
    """Losses of all ranks' examples before and after."""
    torch.manual_seed(1)
    hidden = torch.nn.Linear(16, 48)
    model = torch.nn.Sequential(hidden, torch.nn.Tanh(), torch.nn.Linear(48, 4))
    examples = torch.randn(64 * size, 16, generator=torch.Generator().manual_seed(2))
    targets = examples[:, :4] * examples[:, 4:8]
    ddp = DDP(model)
    hook = pith.torch.compress_hook(spec)
    ddp.register_comm_hook(None, hook)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.003)

    def loss_of(x: torch.Tensor, y: torch.Tensor, forward: torch.nn.Module) -> torch.Tensor:
        return torch.nn.functional.mse_loss(forward(x), y)

    before = loss_of(examples, targets, model).item()
    for _ in range(40):
        optimizer.zero_grad()
        loss_of(examples[rank::size], targets[rank::size], ddp).backward()
        optimizer.step()
    mine = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    first = mine.clone()
    dist.broadcast(first, 0)
    assert torch.equal(mine, first), "ranks have different parameters"
    [stats] = hook.stats()
    assert not stats["bypassed"] and stats["bytes_sent"] > 0, stats
    return before, loss_of(examples, targets, model).item()


GRADIENTS = [one for one in specs() if not one.startswith("choco")]


def train_all(rank: int, size: int) -> dict[str, Any]:
    """The losses by spec, or what went wrong. In the same processes, which take long to start."""
    found: dict[str, Any] = {}
    for spec in GRADIENTS:
        try:
            found[spec] = train(rank, size, spec)
        except Exception as error:
            found[spec] = f"rank {rank}: {error!r}"
    return found


@pytest.fixture(scope="module")
def trained() -> list[dict[str, Any]]:
    """By rank."""
    return run_ranks(train_all, 2, timeout=120)


@pytest.mark.parametrize("spec", GRADIENTS)
def test_training(spec: str, trained: list[dict[str, Any]]) -> None:
    for of_rank in trained:
        assert isinstance(of_rank[spec], tuple), of_rank[spec]
        before, after = of_rank[spec]
        assert math.isfinite(after) and after < 0.95 * before


def test_averages_of_parameters_are_refused() -> None:
    assert "choco" in listed("?")
    assert refusal("choco:density=0.1") == (
        'spec "choco:density=0.1" averages parameters with neighbours, expected a compressor whose '
        "results are the same on every rank"
    )
