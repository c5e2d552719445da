"""Tensors in registered memory, which the other ranks of this host access directly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from pith.torch import _backend


def empty(*shape: int | Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    """As torch.empty: a tensor in registered memory with undefined contents."""
    lengths: Sequence[int]
    if len(shape) == 1 and not isinstance(shape[0], int):
        lengths = shape[0]
    else:
        lengths = [int(length) for length in shape]  # type: ignore[arg-type]
    return _backend.empty(list(lengths), dtype or torch.get_default_dtype())


@contextmanager
def registered_tensors() -> Iterator[None]:
    """Every host tensor made inside is in registered memory: models, and the buckets of DDP."""
    _backend.register_new_tensors(True)
    try:
        yield
    finally:
        _backend.register_new_tensors(False)
