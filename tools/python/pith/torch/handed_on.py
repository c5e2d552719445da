"""What a new compressor takes over of another one's residuals: with its first vector.

Most schemes add the vector to the residual, which is then what it was. `dgc` adds the vector to a
velocity, and the velocity to the residual in each call: what was a residual would go in again in
every later call, in all 1 / (1 - momentum) times. So the second vector takes it out of the velocity
again. What the first call has sent has left the velocity by itself. The filter of `clt-k` damps
what is handed on, as it does gradients.
"""

from __future__ import annotations

from typing import Protocol

import torch

SENT = 1 / 128  # of a value that is sent in 16 bits less is left


class _HasResidual(Protocol):
    def residual(self) -> torch.Tensor: ...


def momentum_of(spec: str) -> float:
    """Of the velocity; 0 if the scheme has none."""
    name, _, keys = spec.partition(":")
    given = dict(one.split("=", 1) for one in keys.split(",") if one)
    return float(given.get("momentum", 0.9)) if name == "dgc" else 0.0


class HandedOn:
    """Of one vector, whose compressor is new."""

    def __init__(self, spec: str) -> None:
        self._momentum = momentum_of(spec)
        self._first: tuple[torch.Tensor, torch.Tensor] | None = None  # the residual; the vector

    def add(self, vector: torch.Tensor, residual: torch.Tensor) -> None:
        """Adds the residual to the compressor's first vector."""
        vector.add_(residual.to(vector.device))
        if self._momentum:
            self._first = residual, vector.to("cpu", torch.float32, copy=True)

    def take_back(self, vector: torch.Tensor, compressor: _HasResidual) -> None:
        """Before each later call with a vector."""
        if self._first is None:
            return
        residual, first = self._first
        self._first = None
        kept = torch.where(first == 0, 1.0, compressor.residual() / first)  # less with clip
        kept[~(kept.abs() >= SENT)] = 0  # also where the first vector was not finite
        vector.sub_((self._momentum * kept * residual).to(vector.device))

    def scale(self, factor: float) -> None:
        """All vectors from now on are multiplied by this."""
        if self._first is not None:
            residual, first = self._first
            self._first = residual * factor, first * factor
