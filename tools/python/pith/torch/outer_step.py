"""Training with rare exchanges: Local SGD and DiLoCo.

DiLoCo (Douillard et al., arXiv 2311.08105): each rank trains alone for H steps with an optimizer of
its own. Then the mean over the ranks of what the parameters have changed is the gradient of an
outer step of SGD with Nesterov's momentum, from the parameters of the last outer step:

    delta = mean(anchor - parameters)
    velocity = momentum * velocity + delta
    anchor = parameters = anchor - lr * (delta + momentum * velocity)

With lr 1 and without momentum this is Local SGD: the mean of the parameters. What is exchanged is
compressed, and what a rank has not sent waits for its next outer step. Costs one message of the
model's size times the density in H steps, and memory for four times the parameters in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from pith.torch.backend import backend_of
from pith.torch.model_tensors import broadcast_model, local, other_shards
from pith.torch.vector_compressor import VectorCompressor, check_spec, shares_of


class OuterStep:
    """Call step() after each step of the optimizer.

    All ranks of the group get the parameters of its first rank here, as with DDP. With a model that
    is sharded by FSDP within a host, `group` has the ranks of the other hosts with the same shard.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        every: int,
        spec: str = "auto",
        *,
        lr: float = 0.7,
        momentum: float = 0.9,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """every: steps of the optimizer for one outer step.

        spec: a compressor as in compression.md, "none" for plain means, or "auto".
        """
        if every < 1:
            raise ValueError(f"every is {every}, expected 1 or more")
        check_spec(spec)
        self.every, self.spec, self.lr, self.momentum = every, spec, lr, momentum
        self.group = group
        self.steps = 0  # since the last outer step
        self._named = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._check(group)
        self._backend = backend_of(group, self._tensors()[0].device)
        self._compressor = self._new_compressor()
        broadcast_model(model, group)
        self._anchor = self._flat()
        self._velocity = torch.zeros_like(self._anchor)

    def step(self) -> bool:
        """Counts a step of the optimizer. True: it was followed by an outer step."""
        self.steps += 1
        if self.steps < self.every:
            return False
        self.exchange()
        return True

    @torch.no_grad()
    def exchange(self) -> None:
        """The outer step, at once: afterwards all ranks have the same parameters.

        If a rank is dead it raises, and the parameters are those of the last outer step. What they
        had changed since waits with the residuals, if the compressor has any.
        """
        begin = zip(self._split(self._anchor), self._tensors(), strict=True)
        # As the parameters were then: in 16 bits they are not the anchor itself.
        change = torch.cat([part.to(now.dtype).float() for part, now in begin]) - self._flat()
        self.steps = 0
        try:
            self._compressor.mean(change, self._backend)
        except RuntimeError:
            self._write(self._anchor)
            raise
        self._velocity.mul_(self.momentum).add_(change)
        change.add_(self._velocity, alpha=self.momentum)
        self._anchor.sub_(change, alpha=self.lr)
        self._write(self._anchor)

    def stats(self) -> dict[str, float]:
        """The statistics of the last exchange."""
        return self._compressor.stats()

    def state_dict(self) -> dict[str, Any]:
        """Of this rank. The anchor and the velocity are equal on all ranks, residuals are not."""
        residual = self._compressor.residual(self._anchor.numel())
        return {
            "spec": self.spec,
            "steps": self.steps,
            "anchor": self._by_name(self._anchor),
            "velocity": self._by_name(self._velocity),
            "residuals": self._by_name(residual),
        }

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Takes the place of a saved run's OuterStep; the model's parameters are loaded apart.

        All ranks of the group call it, and begin from the anchor and the velocity of its first one:
        where a rank has died, some may have made a step more than others.

        state: of this rank, or a list with the states of all ranks of the saved run, which may have
        had another number of ranks.
        """
        first = state if isinstance(state, Mapping) else state[0]
        mine, weight = shares_of(state, self._backend.rank(), self._backend.size())
        self.steps = int(first["steps"])
        self._anchor.copy_(self._from_names(first["anchor"]))
        self._velocity.copy_(self._from_names(first["velocity"]))
        for shared in (self._anchor, self._velocity):
            dist.broadcast(shared, group=self.group, group_src=0)
        self._compressor = self._new_compressor()
        for saved in mine:
            self._compressor.add_residual(self._from_names(saved["residuals"]) * weight)

    def _new_compressor(self) -> VectorCompressor:
        return VectorCompressor(self.spec, self._tensors())

    def _tensors(self) -> list[torch.Tensor]:
        return [local(parameter) for parameter in self._named.values()]

    def _check(self, group: dist.ProcessGroup | None) -> None:
        if not self._named:
            raise ValueError("the model has no parameter that requires a gradient")
        devices = {parameter.device for parameter in self._named.values()}
        if len(devices) > 1:
            raise ValueError(f"the parameters are on the devices {devices}, expected one device")
        for name, parameter in self._named.items():
            if parameter.dtype not in (torch.float32, torch.float16, torch.bfloat16):
                raise ValueError(
                    f"{name} has the type {parameter.dtype}, expected float32, float16 or bfloat16"
                )
            if isinstance(parameter, DTensor) and (group is None or other_shards(parameter, group)):
                raise ValueError(f"{name} is sharded: `group` must have the ranks with its shard")

    def _flat(self) -> torch.Tensor:
        return torch.cat([tensor.reshape(-1).float() for tensor in self._tensors()])

    def _write(self, flat: torch.Tensor) -> None:
        for tensor, part in zip(self._tensors(), self._split(flat), strict=True):
            tensor.copy_(part.view_as(tensor))

    def _split(self, flat: torch.Tensor) -> Sequence[torch.Tensor]:
        return flat.split([tensor.numel() for tensor in self._tensors()])

    def _by_name(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = zip(self._named, self._tensors(), self._split(flat), strict=True)
        return {name: part.view(tensor.shape).clone() for name, tensor, part in parts}

    def _from_names(self, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
        if set(parts) != set(self._named):
            different = sorted(set(parts) ^ set(self._named))
            raise ValueError(f"the state and the model differ in the parameters {different}")
        for name, tensor in zip(self._named, self._tensors(), strict=True):
            if parts[name].shape != tensor.shape:
                raise ValueError(
                    f"{name} has the shape {tuple(parts[name].shape)} in the state, "
                    f"expected {tuple(tensor.shape)}"
                )
        return torch.cat([parts[name].reshape(-1).float() for name in self._named])
