"""Local SGD and DiLoCo: rare exchanges of what the parameters have changed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import pith.torch
from ranks import run_ranks

SPEC = "topk:density=0.1,bypass=never"


def make_model(seed: int = 1) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Tanh(), torch.nn.Linear(50, 10))


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def flat_state(named: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in named.values()])


def change(model: torch.nn.Module, rank: int, number: int, scale: float = 1.0) -> None:
    """As steps of an optimizer would, with values of few bits: sums of them are exact."""
    generator = torch.Generator().manual_seed(100 * rank + number)
    with torch.no_grad():
        for parameter in model.parameters():
            by = torch.randint(-256, 256, parameter.shape, generator=generator)
            parameter.copy_((parameter * 256).round() / 256 - by * (scale / 1024))


def assert_equal_on_all_ranks(vector: torch.Tensor) -> None:
    everyones = [torch.empty_like(vector) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, vector)
    assert all(torch.equal(everyones[0], other) for other in everyones)


def mean_of_ranks(vector: torch.Tensor) -> torch.Tensor:
    vector = vector.clone()
    dist.all_reduce(vector, op=dist.ReduceOp.AVG)
    return vector


@pytest.mark.parametrize("size", [2, 4])
def test_local_sgd_is_the_mean_of_the_parameters(size: int) -> None:
    def body(rank: int, size: int) -> None:
        model = make_model()
        change(model, 0, 0)
        outer = pith.torch.OuterStep(model, every=2, spec="none", lr=1, momentum=0)
        for number in range(6):
            change(model, rank, number)
            expected = mean_of_ranks(flat(model))
            was_outer = outer.step()
            assert was_outer == (number % 2 == 1)
            if was_outer:
                assert torch.equal(flat(model), expected)

    run_ranks(body, size)


def test_diloco_is_nesterov_on_the_mean_change() -> None:
    def body(rank: int, size: int) -> None:
        model, reference = make_model(rank), make_model(0)  # ranks begin with those of rank 0
        outer = pith.torch.OuterStep(model, every=1, spec="none", lr=0.5, momentum=0.75)
        assert torch.equal(flat(model), flat(reference))
        sgd = torch.optim.SGD(reference.parameters(), lr=0.5, momentum=0.75, nesterov=True)
        for number in range(4):
            change(model, rank, number)
            pairs = zip(reference.parameters(), model.parameters(), strict=True)
            for parameter, changed in pairs:
                parameter.grad = mean_of_ranks((parameter - changed).detach())
            sgd.step()
            assert outer.step()
            torch.testing.assert_close(flat(model), flat(reference), rtol=1e-5, atol=1e-6)
            assert_equal_on_all_ranks(flat(model))

    run_ranks(body, 3)


# Not "auto", which may round what it sends to few bits.
@pytest.mark.parametrize("spec", [SPEC, "ar-topk:density=0.05,bypass=never", "topk:density=auto"])
def test_nothing_is_lost(spec: str) -> None:
    """What all ranks have changed is what was delivered plus what the residuals hold."""

    def body(rank: int, size: int) -> None:
        model = make_model()
        outer = pith.torch.OuterStep(model, every=1, spec=spec, lr=1, momentum=0)
        begin, changed = flat(model), torch.zeros_like(flat(model))
        for number in range(5):
            before = flat(model)
            change(model, rank, number)
            changed += flat(model) - before
            outer.step()
            assert_equal_on_all_ranks(flat(model))
        delivered = flat(model) - begin
        held = flat_state(outer.state_dict()["residuals"])
        # Residuals are of anchor - parameters, as gradients are.
        expected = mean_of_ranks(changed + held)
        torch.testing.assert_close(delivered, expected, rtol=1e-4, atol=1e-5)
        if spec == SPEC:
            assert held.count_nonzero() > 100, "nothing was compressed"
            assert outer.stats()["calls"] == 5

    run_ranks(body, 3)


def make_steps(
    outer: pith.torch.OuterStep, model: torch.nn.Module, rank: int, numbers: range
) -> None:
    for number in numbers:
        change(model, rank, number)
        outer.step()


def continued(outer: pith.torch.OuterStep, model: torch.nn.Module, rank: int) -> torch.Tensor:
    make_steps(outer, model, rank, range(10, 13))
    return flat(model)


def test_state() -> None:
    """A copy from the middle of a round goes on with the same bits."""

    def body(rank: int, size: int) -> None:
        model = make_model()
        outer = pith.torch.OuterStep(model, every=2, spec=SPEC)
        make_steps(outer, model, rank, range(5))
        state = copy.deepcopy(outer.state_dict())
        parameters = copy.deepcopy(model.state_dict())
        expected = continued(outer, model, rank)
        again = make_model(7)
        restored = pith.torch.OuterStep(again, every=2, spec=SPEC)
        again.load_state_dict(parameters)
        restored.load_state_dict(state)
        assert restored.steps == 1
        assert torch.equal(continued(restored, again, rank), expected)

    run_ranks(body, 2)


def test_state_with_another_number_of_ranks() -> None:
    def save(rank: int, size: int) -> Any:
        model = make_model()
        outer = pith.torch.OuterStep(model, every=1, spec=SPEC)
        make_steps(outer, model, rank, range(3))
        return model.state_dict(), outer.state_dict()

    saved = run_ranks(save, 3)
    states = [state for _, state in saved]

    def load(rank: int, size: int) -> None:
        model = make_model()
        model.load_state_dict(saved[0][0])
        outer = pith.torch.OuterStep(model, every=1, spec="topk:density=1,bypass=never")
        outer.load_state_dict(states)
        before = flat(model)
        outer.lr, outer.momentum = 1, 0  # so that the step delivers the residuals alone
        outer.step()
        held = sum(flat_state(state["residuals"]) for state in states) / len(states)
        torch.testing.assert_close(before - flat(model), held, rtol=1e-4, atol=1e-5)

    for size in (1, 2, 4):
        run_ranks(load, size)


def test_compressed_training_learns() -> None:
    """Of a linear map, 4 ranks with samples of their own; all reach a small loss."""

    def body(rank: int, size: int) -> float:
        torch.manual_seed(100 + rank)
        target = torch.linspace(-1, 1, 200).view(10, 20)
        model = torch.nn.Linear(20, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        outer = pith.torch.OuterStep(model, every=5, spec=SPEC, momentum=0.5)
        for _ in range(300):
            x = torch.randn(32, 20)
            optimizer.zero_grad()
            (model(x) - x @ target.T).pow(2).mean().backward()
            optimizer.step()
            outer.step()
        assert_equal_on_all_ranks(flat(model))
        return float((model.weight - target).abs().max())

    errors = run_ranks(body, 4)
    assert max(errors) < 0.01, errors


def test_bfloat16_keeps_what_its_rounding_takes() -> None:
    """Changes smaller than a bit of the parameters add up in the anchor."""

    def body(rank: int, size: int) -> None:
        model = torch.nn.Linear(8, 1, bias=False, dtype=torch.bfloat16)
        with torch.no_grad():
            model.weight.fill_(1)
        outer = pith.torch.OuterStep(model, every=1, spec="none", lr=0.25, momentum=0)
        bit = 2.0**-7  # of bfloat16 from 1 to 2
        for _ in range(4):
            with torch.no_grad():
                model.weight += bit
            outer.step()
        assert torch.equal(outer.state_dict()["anchor"]["weight"], torch.full((1, 8), 1 + bit))
        assert torch.equal(model.weight, torch.full((1, 8), 1 + bit, dtype=torch.bfloat16))

    run_ranks(body, 2)


def test_sharded_within_a_host() -> None:
    """4 ranks are 2 hosts; each shard is averaged with the other host's."""

    def body(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("between", "within"))
        model = fully_shard(make_model(mesh.get_coordinate()[0]), mesh=mesh["within"])
        for group in (None, dist.group.WORLD, mesh["within"].get_group()):
            with pytest.raises(ValueError, match="0.weight is sharded"):
                pith.torch.OuterStep(model, every=1, group=group)
        between = mesh["between"].get_group()
        outer = pith.torch.OuterStep(model, every=2, spec="none", lr=1, momentum=0, group=between)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4):
            x = torch.randn(8, 20, generator=torch.Generator().manual_seed(10 * rank + number))
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
            mine = torch.cat([p.detach().to_local().reshape(-1) for p in model.parameters()])
            if outer.step():
                dist.all_reduce(mine, op=dist.ReduceOp.AVG, group=between)
            found = torch.cat([p.detach().to_local().reshape(-1) for p in model.parameters()])
            torch.testing.assert_close(found, mine, rtol=1e-5, atol=1e-6)

    run_ranks(body, 4)


def test_loaded_anchors_are_the_first_ranks() -> None:
    """Where a rank has died, the others may have made different steps."""

    def body(rank: int, size: int) -> None:
        outer = pith.torch.OuterStep(make_model(1), every=1, spec="none")
        state = outer.state_dict()
        first = state["anchor"]
        state["anchor"] = {name: part + rank for name, part in first.items()}
        outer.load_state_dict(state)
        torch.testing.assert_close(outer.state_dict()["anchor"], first, rtol=0, atol=0)

    run_ranks(body, 2)


def test_a_dead_rank_leaves_the_last_outer_step_to_go_on_from() -> None:
    def body(rank: int, size: int) -> None:
        import os

        model = make_model()
        outer = pith.torch.OuterStep(model, every=1, spec=SPEC, lr=1, momentum=0)
        change(model, rank, 0)
        outer.step()
        before, held = flat(model), flat_state(outer.state_dict()["residuals"])
        dist.barrier()
        if rank == 1:
            os._exit(9)
        change(model, rank, 1)
        changed = flat(model) - before
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            outer.step()
        assert torch.equal(flat(model), before)
        waits = flat_state(outer.state_dict()["residuals"])
        torch.testing.assert_close(waits, held - changed, rtol=1e-4, atol=1e-5)
        state = outer.state_dict()
        pith.torch.shrink()
        outer = pith.torch.OuterStep(model, every=1, spec=SPEC, lr=1, momentum=0)
        outer.load_state_dict(state)
        outer.exchange()
        left = waits - flat_state(outer.state_dict()["residuals"])
        dist.all_reduce(left)
        torch.testing.assert_close(left / 2, before - flat(model), rtol=1e-4, atol=1e-5)

    run_ranks(body, 3, dying=(1,))


def test_refusals() -> None:
    def body(rank: int, size: int) -> None:
        model = make_model()
        with pytest.raises(ValueError, match="every is 0, expected 1 or more"):
            pith.torch.OuterStep(model, every=0)
        with pytest.raises(ValueError, match="tipk"):
            pith.torch.OuterStep(model, every=1, spec="tipk")
        with pytest.raises(ValueError, match="0.weight has the type torch.float64"):
            pith.torch.OuterStep(make_model().double(), every=1)
        with pytest.raises(ValueError, match="no parameter"):
            pith.torch.OuterStep(torch.nn.Tanh(), every=1)
        state = pith.torch.OuterStep(model, every=1).state_dict()
        other = pith.torch.OuterStep(torch.nn.Linear(3, 2), every=1)
        with pytest.raises(ValueError, match="differ in the parameters"):
            other.load_state_dict(state)
        with pytest.raises(ValueError, match=r"weight has the shape \(2, 3\)"):
            pith.torch.OuterStep(torch.nn.Linear(4, 2), every=1).load_state_dict(other.state_dict())

    run_ranks(body, 1)
