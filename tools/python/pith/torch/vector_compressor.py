"""The compressor of one vector that is reduced again and again, and can be saved.

A compressor of libpith takes no residuals that were saved. What is loaded waits here, and is
added to the next vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pith.torch import _backend
from pith.torch.handed_on import HandedOn

AVERAGES_PARAMETERS = ("choco",)  # its results differ from rank to rank


def check_spec(spec: str) -> None:
    """ValueError if libpith refuses the spec, or if it is not one for gradients."""
    _backend.GradientCompressor(spec)
    if spec.partition(":")[0] in AVERAGES_PARAMETERS:
        raise ValueError(
            f'spec "{spec}" averages parameters with neighbours, expected a compressor whose '
            "results are the same on every rank"
        )


def shares_of(
    state: Mapping[str, Any] | Sequence[Mapping[str, Any]], rank: int, size: int
) -> tuple[Sequence[Mapping[str, Any]], float]:
    """The saved states whose residuals this rank takes over, and the factor for them.

    state: of this rank, or of all ranks of a run with another number of them. A mean over the ranks
    divides by that number.
    """
    if isinstance(state, Mapping):
        return [state], 1.0
    return state[rank::size], size / len(state)


class VectorCompressor:
    def __init__(self, spec: str, tensors: Sequence[torch.Tensor] = ()) -> None:
        """tensors: of whose elements the vector consists, if that is known."""
        self._compressor = _backend.GradientCompressor(spec)
        if tensors:
            self._compressor.set_shape([list(tensor.shape) for tensor in tensors])
        self._waiting: torch.Tensor | None = None
        self._handed_on = HandedOn(spec)

    def mean(self, vector: torch.Tensor, backend: Any) -> None:
        """Puts the mean over the ranks in place of the vector."""
        self._handed_on.take_back(vector, self._compressor)
        if self._waiting is not None:
            self._handed_on.add(vector, self._waiting)
            self._waiting = None
        backend.allreduce_compressed(vector, self._compressor, async_op=False).wait()

    def residual(self, count: int) -> torch.Tensor:
        """What has not been sent, of each of `count` elements."""
        held = self._compressor.residual()
        if held.numel() == 0:
            held = torch.zeros(count)
        return held if self._waiting is None else held + self._waiting

    def add_residual(self, residual: torch.Tensor) -> None:
        residual = residual.to("cpu", torch.float32)
        self._waiting = residual if self._waiting is None else self._waiting + residual

    def stats(self) -> dict[str, float]:
        """Of the last call."""
        stats: dict[str, float] = self._compressor.stats()
        return stats
