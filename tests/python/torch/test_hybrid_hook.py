"""FSDP within a host, compressed sums between hosts: 4 ranks are 2 hosts of 2 ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import pith.torch
from ranks import run_ranks

SPEC = "topk:density=0.1,bypass=never"


def mesh_of(hosts: int, size: int) -> DeviceMesh:
    names = ("between", "within")
    return init_device_mesh("cpu", (hosts, size // hosts), mesh_dim_names=names)


def make_model(
    mesh: DeviceMesh, seed: int = 3, kind: torch.dtype | None = None, wide: int = 64
) -> Any:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, wide),
        torch.nn.Linear(wide, 4),
    )
    policy = MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=kind)
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)  # has the last layer itself


def backward(model: Any, rank: int, number: int) -> float:
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * rank + number))
    loss = (model(x) - x[:, :4]).pow(2).mean()
    loss.backward()
    return float(loss)


def shards(model: Any, of_gradients: bool = False) -> torch.Tensor:
    tensors = [p.grad if of_gradients else p for p in model.parameters()]
    return torch.cat([tensor.detach().to_local().reshape(-1) for tensor in tensors])


def residuals(hook: pith.torch.HybridHook) -> torch.Tensor:
    """In the order of the model's parameters, all of which the mesh divides evenly."""
    held = hook.state_dict()["residuals"]
    return torch.cat([held[name] for name in ("0", "2", "")])


def test_dense_is_plain_hybrid_sharding() -> None:
    def body(rank: int, size: int) -> None:
        mesh = mesh_of(2, size)
        plain = make_model(mesh)
        hooked = make_model(mesh["within"], seed=3 + mesh.get_coordinate()[0])
        pith.torch.hybrid_hook(hooked, mesh["between"].get_group(), "none")
        optimizers = [torch.optim.AdamW(model.parameters(), lr=0.01) for model in (plain, hooked)]
        for number in range(4):
            for model, optimizer in zip((plain, hooked), optimizers, strict=True):
                optimizer.zero_grad()
                backward(model, rank, number)
                optimizer.step()
            assert torch.equal(shards(plain), shards(hooked))

    run_ranks(body, 4)


def test_nothing_is_lost() -> None:
    """What was delivered plus the mean of the hosts' residuals are the gradients."""

    def body(rank: int, size: int) -> None:
        mesh = mesh_of(2, size)
        plain, hooked = make_model(mesh), make_model(mesh["within"])
        between = mesh["between"].get_group()
        hook = pith.torch.hybrid_hook(hooked, between, SPEC)
        for number in range(4):  # gradients add up
            backward(plain, rank, number)
            backward(hooked, rank, number)
        held = residuals(hook)
        assert held.count_nonzero() > 500, "nothing was compressed"
        dist.all_reduce(held, op=dist.ReduceOp.AVG, group=between)
        found = shards(hooked, of_gradients=True) + held
        torch.testing.assert_close(found, shards(plain, of_gradients=True), rtol=1e-4, atol=1e-5)
        assert {stats["calls"] for stats in hook.stats().values()} == {4}

    run_ranks(body, 4)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spec", [SPEC, "auto"])
def test_training(spec: str, kind: torch.dtype) -> None:
    def body(rank: int, size: int) -> tuple[float, float]:
        mesh = mesh_of(2, size)
        model = make_model(mesh["within"], kind=kind)
        between = mesh["between"].get_group()
        pith.torch.hybrid_hook(model, between, spec)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        losses = []
        for number in range(60):
            optimizer.zero_grad()
            losses.append(backward(model, rank, number))
            optimizer.step()
        mine = shards(model)
        other = [torch.empty_like(mine) for _ in range(2)]
        dist.all_gather(other, mine, group=between)
        assert torch.equal(other[0], other[1])
        return losses[0], losses[-1]

    for first, last in run_ranks(body, 4):
        assert last < first / 2, (first, last)


class Branches(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, which: int) -> torch.Tensor:
        return (self.second if which else self.first)(x)


def test_unused_parameters() -> None:
    """A parameter without a gradient keeps the places of the others."""

    def body(rank: int, size: int) -> None:
        mesh = mesh_of(2, size)
        torch.manual_seed(0)
        alone, model = Branches(), Branches()
        model.load_state_dict(alone.state_dict())
        fully_shard(model, mesh=mesh["within"])
        hook = pith.torch.hybrid_hook(model, mesh["between"].get_group(), "topk:density=1")
        for number in range(4):
            x = torch.ones(2, 4) * (number + 1)
            for one in (alone, model):
                one(x, number % 2).sum().backward()
        for expected, found in zip(alone.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(found.grad.full_tensor(), expected.grad)
        assert hook.stats()[""]["calls"] == 4

    run_ranks(body, 4)


def test_state_with_another_number_of_hosts() -> None:
    def save(rank: int, size: int) -> Any:
        mesh = mesh_of(2, size)
        model = make_model(mesh["within"])
        hook = pith.torch.hybrid_hook(model, mesh["between"].get_group(), SPEC)
        for number in range(3):
            backward(model, rank, number)
        state = hook.state_dict()
        hook.load_state_dict(state)
        for name, residual in hook.state_dict()["residuals"].items():
            assert torch.equal(residual, state["residuals"][name])
        return state

    saved = run_ranks(save, 4)

    def load(rank: int, size: int) -> None:
        hosts = size // 2
        mesh = mesh_of(hosts, size)
        plain, model = make_model(mesh["within"]), make_model(mesh["within"])
        between = mesh["between"].get_group()
        pith.torch.hybrid_hook(plain, between, "none")
        hook = pith.torch.hybrid_hook(model, between, "topk:density=1,bypass=never")
        of_this_shard = saved[rank % 2 :: 2]
        hook.load_state_dict(of_this_shard)
        backward(plain, rank, 0)
        backward(model, rank, 0)
        states = [state["residuals"] for state in of_this_shard]
        held = sum(torch.cat([state[name] for name in ("0", "2", "")]) for state in states)
        expected = shards(plain, of_gradients=True) + held / len(states)
        torch.testing.assert_close(shards(model, of_gradients=True), expected)

    for size in (2, 4, 6):
        run_ranks(load, size)


def test_refusals() -> None:
    def body(rank: int, size: int) -> None:
        mesh = mesh_of(2, size)
        between = mesh["between"].get_group()
        with pytest.raises(ValueError, match="fully_shard first"):
            pith.torch.hybrid_hook(torch.nn.Linear(3, 3), between)
        other = {0: 2, 1: 3, 2: 0, 3: 1}[rank]
        with pytest.raises(ValueError, match=rf"shares .*weight with the ranks \[{other}\]"):
            pith.torch.hybrid_hook(make_model(mesh), between)
        model = make_model(mesh["within"])
        on_hosts = make_model(mesh["within"], wide=64 if rank < 2 else 32)
        message = r"of rank 1 of the group has 2\.weight .*\(16, 64\) here, expected .*\(32, 64\)"
        with pytest.raises(ValueError, match=message):
            pith.torch.hybrid_hook(on_hosts, between)
        with pytest.raises(ValueError, match="tipk"):
            pith.torch.hybrid_hook(model, between, "tipk")
        hook = pith.torch.hybrid_hook(model, between)
        with pytest.raises(ValueError, match="'absent': no such FSDP module"):
            hook.load_state_dict({"residuals": {"absent": torch.ones(1)}})
        hook.load_state_dict({"residuals": {"0": torch.ones(1)}})
        with pytest.raises(ValueError, match="the state has 1 residuals of '0', expected 544"):
            backward(model, rank, 0)

    run_ranks(body, 4)
