"""Compressed gradients for DistributedDataParallel.

A compressor holds the residual of one vector, and DDP's buckets are vectors. DDP builds its buckets
anew after the first step, so residuals are handed on by parameter: what the compressors of the old
buckets held of a parameter is added to the first gradient of the bucket that has it now.
"""

# Without "from __future__ import annotations": DDP compares the annotations of a hook with types.
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from pith.stats import CompressorStats
from pith.torch import _backend
from pith.torch.backend import backend_of
from pith.torch.bucket_stats import stats_of
from pith.torch.handed_on import HandedOn
from pith.torch.vector_compressor import check_spec, shares_of


class _Bucket:
    """The compressor of one bucket, and where its parameters lie."""

    def __init__(self, spec: str, parameters: Sequence[torch.Tensor]) -> None:
        self.compressor = _backend.GradientCompressor(spec)
        self.compressor.set_shape([list(parameter.shape) for parameter in parameters])
        self.parameters = list(parameters)
        self.handed_on = HandedOn(spec)

    def scale(self, factor: float) -> None:
        self.compressor.scale(factor)
        self.handed_on.scale(factor)

    def residuals(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What is held of each parameter; nothing before the first call."""
        whole = self.compressor.residual()
        if whole.numel() == 0:
            return []
        parts = whole.split([parameter.numel() for parameter in self.parameters])
        return list(zip(self.parameters, parts, strict=True))


class CompressHook:
    """A communication hook: `model.register_comm_hook(None, hook)`.

    The state that DDP passes to the hook is a process group, or None for the default group.
    """

    def __init__(self, spec: str, scaler: Any = None) -> None:
        check_spec(spec)
        self.spec = spec
        self.scaler = scaler
        self.__name__ = "pith_compress_hook"  # DDP asks for it
        self.__qualname__ = self.__name__
        self._buckets: dict[tuple[int, ...], _Bucket] = {}
        self._owners: dict[int, tuple[int, ...]] = {}  # parameter -> key of its bucket
        self._waiting: dict[int, torch.Tensor] = {}  # residuals without a bucket, by parameter
        self._scale: float | None = None
        self._all_given = 0.0  # when the step's last bucket came
        self._last_done = 0.0

    def __call__(
        self, state: dist.ProcessGroup | None, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        backend = backend_of(state, buffer.device)
        self._follow_scale()
        held = self._bucket_of(bucket.parameters())
        held.handed_on.take_back(buffer, held.compressor)
        self._add_waiting(held, buffer)
        if bucket.is_last():
            self._all_given = time.perf_counter()
        work = backend.allreduce_compressed(buffer, held.compressor)
        return work.get_future().then(self._result)

    def _result(self, done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        self._last_done = time.perf_counter()
        return done.value()[0]

    def stats(self) -> list[dict[str, float]]:
        """The statistics of each bucket's last call."""
        return [bucket.compressor.stats() for bucket in self._buckets.values()]

    def layers(self, model: torch.nn.Module) -> dict[str, CompressorStats]:
        """The same by the names of the buckets' first and last parameters, for a pith.Recorder."""
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        found: dict[str, CompressorStats] = {}
        for key, bucket in self._buckets.items():
            known = [names[one] for one in (key[0], key[-1]) if one in names]
            name = " to ".join(dict.fromkeys(known)) or f"bucket {len(found)}"
            found[name] = stats_of(bucket.compressor)
        return found

    def waited(self) -> float:
        """Seconds that the last step waited for its buckets when it had handed all of them over.

        What the calls did before that ran behind the backward pass.
        """
        return max(0.0, self._last_done - self._all_given)

    def state_dict(self, model: torch.nn.Module) -> dict[str, Any]:
        """This rank's residuals by the names of the model's parameters."""
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        held = dict(self._waiting)
        shapes = {id(parameter): parameter.shape for parameter in model.parameters()}
        for bucket in self._buckets.values():
            for parameter, residual in bucket.residuals():
                key = id(parameter)
                held[key] = held[key] + residual if key in held else residual
        residuals = {
            names[key]: residual.reshape(shapes[key]).clone()
            for key, residual in held.items()
            if key in names
        }
        scale = self._current_scale() if self._scale is None else self._scale
        return {"spec": self.spec, "scale": scale, "residuals": residuals}

    def load_state_dict(
        self,
        state: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        model: torch.nn.Module,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Takes the residuals of a saved run in place of what it holds.

        state: of this rank, or a list with the states of all ranks of the saved run, which may have
        had another number of ranks.
        """
        self._buckets.clear()
        self._owners.clear()
        self._waiting.clear()
        self._scale = self._current_scale()
        if isinstance(state, Mapping):  # no group needed
            rank, size = 0, 1
        else:
            rank, size = dist.get_rank(group), dist.get_world_size(group)
        mine, weight = shares_of(state, rank, size)
        for saved in mine:
            self._take(saved, model, weight)

    def _take(self, state: Mapping[str, Any], model: torch.nn.Module, weight: float) -> None:
        weight *= (self._scale or 1.0) / (state["scale"] or 1.0)
        parameters = dict(model.named_parameters())
        for name, residual in state["residuals"].items():
            if name not in parameters:
                raise ValueError(f"the state has residuals of {name}, which the model has not")
            parameter = parameters[name]
            if parameter.shape != residual.shape:
                raise ValueError(
                    f"the residual of {name} has the shape {tuple(residual.shape)}, "
                    f"expected {tuple(parameter.shape)}"
                )
            self._keep(parameter, residual.reshape(-1).to(torch.float32) * weight)

    def _keep(self, parameter: torch.Tensor, residual: torch.Tensor) -> None:
        before = self._waiting.get(id(parameter))
        self._waiting[id(parameter)] = residual if before is None else before + residual

    def _bucket_of(self, parameters: Sequence[torch.Tensor]) -> _Bucket:
        key = tuple(id(parameter) for parameter in parameters)
        known = self._buckets.get(key)
        if known is not None:
            return known
        for old in {self._owners[one] for one in key if one in self._owners}:
            self._dissolve(old)
        bucket = self._buckets[key] = _Bucket(self.spec, parameters)
        self._owners.update((one, key) for one in key)
        return bucket

    def _dissolve(self, key: tuple[int, ...]) -> None:
        bucket = self._buckets.pop(key)
        for parameter, residual in bucket.residuals():
            self._keep(parameter, residual)
        for one in key:
            del self._owners[one]

    def _add_waiting(self, held: _Bucket, buffer: torch.Tensor) -> None:
        waiting = [self._waiting.pop(id(parameter), None) for parameter in held.parameters]
        if all(residual is None for residual in waiting):
            return
        parts = [
            torch.zeros(parameter.numel()) if residual is None else residual.reshape(-1).cpu()
            for parameter, residual in zip(held.parameters, waiting, strict=True)
        ]
        held.handed_on.add(buffer, torch.cat(parts))

    def _current_scale(self) -> float | None:
        return None if self.scaler is None else float(self.scaler.get_scale())

    def _follow_scale(self) -> None:
        """Gradients come multiplied by the scaler's scale, so residuals must be, too."""
        scale = self._current_scale()
        if scale is None or scale == self._scale:
            return
        if self._scale is not None:
            factor = scale / self._scale
            for bucket in self._buckets.values():
                bucket.scale(factor)
            for residual in self._waiting.values():
                residual.mul_(factor)
        self._scale = scale


def compress_hook(spec: str = "auto", scaler: Any = None) -> CompressHook:
    """A communication hook for DDP that compresses gradients.

    spec: a compressor as in compression.md, "topk:density=0.01"; "auto" chooses among
    schemes and densities by the time of the calls. scaler: the GradScaler, if the loss is scaled.
    """
    return CompressHook(spec, scaler)
