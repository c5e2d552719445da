"""DDP with compressed gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import pith.torch
from pith.report import read
from pith.torch.handed_on import HandedOn
from ranks import run_ranks

SPEC = "topk:density=0.1,bypass=never"


class Net(torch.nn.Module):
    """Two branches; the second one is not used in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(20, 50)
        self.second = torch.nn.Linear(50, 10)
        self.other = torch.nn.Linear(50, 10)

    def forward(self, x: torch.Tensor, other: bool = False) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        return self.other(hidden) if other else self.second(hidden)


def make_model(seed: int = 1) -> Net:
    torch.manual_seed(seed)
    return Net()


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(8, 20, generator=torch.Generator().manual_seed(100 * rank + step))




def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def local_gradients(model: Net, x: torch.Tensor, other: bool = False) -> dict[str, torch.Tensor]:
    alone = copy.deepcopy(model)
    alone.zero_grad()
    alone(x, other).pow(2).sum().backward()
    found = gradients(alone)
    for name, parameter in alone.named_parameters():
        found.setdefault(name, torch.zeros_like(parameter))
    return found


def check_conservation(
    rank: int,
    size: int,
    hook: Any,
    model: Net,
    ddp: DDP,
    step: Callable[[int], bool],
    steps: int,
) -> None:
    """What all ranks had as gradients is what was delivered plus what the residuals hold."""
    names = [name for name, _ in model.named_parameters()]
    given = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    delivered = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for number in range(steps):
        other = step(number)
        ddp.zero_grad()
        mine = local_gradients(model, batch(rank, number), other)
        ddp(batch(rank, number), other).pow(2).sum().backward()
        for name in names:
            given[name] += mine[name]
        for name, gradient in gradients(model).items():
            delivered[name] += gradient
    residuals = hook.state_dict(model)["residuals"]
    for name in names:
        total = given[name] - residuals.get(name, torch.zeros_like(given[name]))
        dist.all_reduce(total)
        torch.testing.assert_close(delivered[name], total / size, rtol=1e-4, atol=1e-4)
    sparse = sum(int((gradient == 0).sum()) for gradient in gradients(model).values())
    assert sparse > 100, "gradients are dense: nothing was compressed"


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bucket_cap_mb": 0.002},
        {"find_unused_parameters": True},
        {"gradient_as_bucket_view": True},
        {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.002},
        {"static_graph": True},
    ],
    ids=str,
)
def test_no_gradient_is_lost(size: int, options: dict[str, Any]) -> None:
    def body(rank: int, size: int) -> None:
        model = make_model()
        if not options.get("find_unused_parameters"):
            del model.other
        ddp = DDP(model, **options)
        hook = pith.torch.compress_hook(SPEC)
        ddp.register_comm_hook(None, hook)
        unused = bool(options.get("find_unused_parameters"))
        # Every parameter is used by some rank in every step: DDP delivers no gradient of others.
        other = lambda step: unused and (step + rank) % 2 == 1  # noqa: E731
        check_conservation(rank, size, hook, model, ddp, other, 6)

    run_ranks(body, size)


def test_factors_have_the_shapes_of_parameters() -> None:
    def body(rank: int, size: int) -> None:
        torch.manual_seed(1)
        ddp = DDP(torch.nn.Linear(60, 90))
        hook = pith.torch.compress_hook("powersgd:rank=2")
        ddp.register_comm_hook(None, hook)
        for _ in range(3):
            ddp(torch.randn(4, 60)).pow(2).sum().backward()
        # Left and right factors, the bias, and a number for gradients that are not finite.
        expected = 4 * (2 * (60 + 90) + 90 + 1)
        assert hook.stats()[0]["bytes_sent"] == expected * 2 * (size - 1) / size

    run_ranks(body, 2)


def test_no_sync() -> None:
    def body(rank: int, size: int) -> None:
        model = make_model()
        del model.other
        ddp = DDP(model)
        hook = pith.torch.compress_hook("topk:density=1,bypass=never")
        ddp.register_comm_hook(None, hook)
        for _ in range(3):
            ddp.zero_grad()
            with ddp.no_sync():
                ddp(batch(rank, 0)).pow(2).sum().backward()
            ddp(batch(rank, 1)).pow(2).sum().backward()
            expected = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
            for r in range(size):
                for step in (0, 1):
                    for name, one in local_gradients(model, batch(r, step)).items():
                        expected[name] += one / size
            for name, gradient in gradients(model).items():
                torch.testing.assert_close(gradient, expected[name])

    run_ranks(body, 2)


def test_mean_is_that_of_ddp() -> None:
    """With density 1 the hook gives what DDP gives without one."""

    def body(rank: int, size: int) -> None:
        plain, hooked = make_model(), make_model()
        del plain.other, hooked.other
        first, second = DDP(plain), DDP(hooked)
        second.register_comm_hook(dist.group.WORLD, pith.torch.compress_hook("none"))
        for step in range(3):
            for model in (first, second):
                model.zero_grad()
                model(batch(rank, step)).pow(2).sum().backward()
            for name, gradient in gradients(plain).items():
                torch.testing.assert_close(gradient, gradients(hooked)[name])

    run_ranks(body, 3)


class Scaler:
    def __init__(self) -> None:
        self.scale = 1024.0

    def get_scale(self) -> float:
        return self.scale


def scaled_training() -> tuple[Any, DDP, Any, Scaler]:
    model = make_model()
    del model.other
    ddp = DDP(model)
    scaler = Scaler()
    hook = pith.torch.compress_hook(SPEC, scaler)
    ddp.register_comm_hook(None, hook)
    return model, ddp, hook, scaler


def test_residuals_follow_the_scale() -> None:
    def body(rank: int, size: int) -> None:
        model, ddp, hook, scaler = scaled_training()
        for step in range(3):
            ddp.zero_grad()
            (ddp(batch(rank, step)).pow(2).sum() * scaler.scale).backward()
        before = hook.state_dict(model)["residuals"]
        scaler.scale = 256.0
        ddp.zero_grad()
        zero = ddp(batch(rank, 0)).sum() * 0
        zero.backward()
        total = {name: residual.clone() for name, residual in before.items()}
        after = hook.state_dict(model)["residuals"]
        for name, gradient in gradients(model).items():
            left = total[name] / 4 - after[name]
            dist.all_reduce(left)
            torch.testing.assert_close(left / size, gradient)

    run_ranks(body, 2)


def test_saved_residuals_have_the_scale_of_their_step() -> None:
    def body(rank: int, size: int) -> None:
        model, ddp, hook, scaler = scaled_training()
        (ddp(batch(rank, 0)).pow(2).sum() * scaler.scale).backward()
        scaler.scale = 256.0  # as scaler.update() does after the step
        saved = hook.state_dict(model)
        assert saved["scale"] == 1024.0
        other = pith.torch.compress_hook(SPEC, scaler)
        other.load_state_dict(saved, model)
        held = other.state_dict(model)
        assert held["scale"] == 256.0
        for name, residual in held["residuals"].items():
            torch.testing.assert_close(residual, saved["residuals"][name] / 4)

    run_ranks(body, 2)


def test_grad_scaler() -> None:
    """float16 with GradScaler: a step with an infinite gradient is left out on all ranks."""

    def body(rank: int, size: int) -> None:
        model = make_model()
        del model.other
        ddp = DDP(model)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        hook = pith.torch.compress_hook(SPEC, scaler)
        ddp.register_comm_hook(None, hook)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
        for step in range(4):
            optimizer.zero_grad()
            loss = ddp(batch(rank, step)).pow(2).mean()
            if step == 2 and rank == 1:
                loss = loss * float("inf")
            before = [parameter.clone() for parameter in model.parameters()]
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            same = all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
            assert same == (step == 2)
        assert scaler.get_scale() == 128.0
        assert all(torch.isfinite(r).all() for r in hook.state_dict(model)["residuals"].values())

    run_ranks(body, 2)


def train_some(rank: int, hook: Any, model: Net, steps: range) -> DDP:
    ddp = DDP(model)
    ddp.register_comm_hook(None, hook)
    for step in steps:
        ddp.zero_grad()
        ddp(batch(rank, step)).pow(2).sum().backward()
    return ddp


def test_state_with_another_number_of_ranks() -> None:
    def save(rank: int, size: int) -> Any:
        model = make_model()
        del model.other
        hook = pith.torch.compress_hook(SPEC)
        train_some(rank, hook, model, range(3))
        return hook.state_dict(model)

    states = run_ranks(save, 3)

    def load(rank: int, size: int) -> None:
        model = make_model()
        del model.other
        hook = pith.torch.compress_hook("topk:density=1,bypass=never")
        hook.load_state_dict(states, model)
        ddp = DDP(model)
        ddp.register_comm_hook(None, hook)
        (ddp(batch(rank, 0)).sum() * 0).backward()
        for name, gradient in gradients(model).items():
            expected = sum(state["residuals"][name] for state in states) / len(states)
            torch.testing.assert_close(gradient, expected)

    for size in (1, 2, 4):
        run_ranks(load, size)


def test_own_state() -> None:
    def body(rank: int, size: int) -> None:
        model = make_model()
        del model.other
        hook = pith.torch.compress_hook(SPEC)
        train_some(rank, hook, model, range(3))
        state = hook.state_dict(model)
        again = pith.torch.compress_hook(SPEC)
        again.load_state_dict(state, model)
        copied = again.state_dict(model)["residuals"]
        for name, residual in state["residuals"].items():
            assert torch.equal(residual, copied[name])

    run_ranks(body, 2)


@pytest.mark.parametrize("keys", ["", ",values=bf16", ",clip=1"])
def test_a_residual_stays_what_it_is_with_momentum(keys: str) -> None:
    """Among gradients of zero, in a compressor that adds velocities."""

    def body(rank: int, size: int) -> None:
        model = torch.nn.Linear(100, 10, bias=False)
        residual = torch.arange(1.0, 1001).reshape(10, 100) / 1024
        hook = pith.torch.compress_hook(f"dgc:density=0.01,momentum=0.5,bypass=never{keys}")
        saved = {"spec": hook.spec, "scale": None, "residuals": {"weight": residual}}
        hook.load_state_dict(saved, model)
        ddp = DDP(model)
        ddp.register_comm_hook(None, hook)
        sent = torch.zeros(10, 100)
        for _ in range(4):
            ddp.zero_grad()
            ddp(torch.zeros(1, 100)).sum().backward()
            sent += gradients(model)["weight"]
        left = hook.state_dict(model)["residuals"]["weight"]
        share = 1.0 if "clip" not in keys else ((sent + left) / residual).mean()
        torch.testing.assert_close(sent + left, share * residual, rtol=1e-5, atol=1e-5)
        assert (sent != 0).any()

    run_ranks(body, 2)


def test_a_vector_that_is_not_finite_leaves_nothing_behind() -> None:
    class Emptied:
        def residual(self) -> torch.Tensor:
            return torch.zeros(4)

    handed_on = HandedOn("dgc")
    handed_on.add(torch.tensor([torch.nan, torch.inf, 1.0, -1.0]), torch.ones(4))
    later = torch.zeros(4)
    handed_on.take_back(later, Emptied())
    assert later.isfinite().all()


def test_auto_and_statistics() -> None:
    def body(rank: int, size: int) -> None:
        model = make_model()
        del model.other
        hook = pith.torch.compress_hook("auto")
        train_some(rank, hook, model, range(4))
        assert all(stats["calls"] >= 3 for stats in hook.stats())

    run_ranks(body, 2)


def test_record(tmp_path: Path) -> None:
    """What a training records of its buckets and tensors, and a step without calls."""

    def body(rank: int, size: int) -> None:
        model = make_model()
        del model.other
        hook = pith.torch.compress_hook(SPEC)
        ddp = DDP(model)
        ddp.register_comm_hook(None, hook)
        with pith.Recorder(tmp_path / "run.jsonl", rank=rank, size=size) as recorder:
            for step in range(4):
                model.zero_grad()
                with ddp.no_sync() if step == 3 else nullcontext():
                    loss = ddp(batch(rank, step)).pow(2).sum()
                    loss.backward()
                densities = pith.torch.tensor_densities(model)
                recorder.step(loss.item(), hook.layers(model), waited=hook.waited(),
                              tensors=densities)

    run_ranks(body, 2)
    steps = read(tmp_path / "run.jsonl").steps
    names = {name for name, _ in make_model().named_parameters() if "other" not in name}
    assert [len(step.layers) > 0 for step in steps] == [True] * 3 + [False]
    for step in steps[:3]:
        assert all(set(name.split(" to ")) <= names for name in step.layers), step.layers
        assert step.total("count") == 1560 and step.waited is not None
        assert set(step.tensors) == names
        sent = sum(layer["density"] * layer["count"] for layer in step.layers.values())
        counts = dict(make_model().named_parameters())
        found = sum(part * counts[name].numel() for name, part in step.tensors.items())
        assert 0.9 * sent <= found <= sent + 1  # a sum may be zero
    assert steps[3].waited is None
    pith.report(tmp_path / "run.jsonl", tmp_path / "run.html")


def test_refusals() -> None:
    with pytest.raises(ValueError, match="topk"):
        pith.torch.compress_hook("tipk:density=0.1")

    def body(rank: int, size: int) -> None:
        group = dist.new_group(list(range(size)), backend="gloo")
        ddp = DDP(torch.nn.Linear(3, 3), process_group=group)
        ddp.register_comm_hook(group, pith.torch.compress_hook(SPEC))
        with pytest.raises(Exception, match="gloo, expected pith"):
            ddp(torch.ones(1, 3)).sum().backward()

    run_ranks(body, 2)
