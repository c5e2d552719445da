"""Writes down what a training does, one line of JSON a step, for pith.report."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from pith._core import Compressor
from pith.stats import CompressorStats

# Of each layer, in this order; the first line of the file names them.
FIELDS = (
    "count",
    "density_target",
    "density",
    "gain",
    "residual_norm",
    "bypassed",
    "bytes_sent",
    "select_seconds",
    "exchange_seconds",
    "total_seconds",
    "predicted_seconds",
    "algorithm",
)

Layers = Mapping[str, "Compressor | CompressorStats | Mapping[str, Any]"]


class Recorder:
    """A file of one line for each step of a training.

    path: is replaced, or with append=True continued, as after a restart. Of several ranks each
    whose file is wanted needs a path of its own: "{rank}" in it is replaced by the rank; without it
    only rank 0 writes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        rank: int = 0,
        size: int = 1,
        title: str = "",
        append: bool = False,
    ) -> None:
        name = os.fspath(path)
        self.path = name.replace("{rank}", str(rank))
        writes = rank == 0 or "{rank}" in name
        # Line by line: what a killed process has recorded is there.
        if writes and append:
            _drop_cut_line(self.path)
        mode = "a" if append else "w"
        self._file = open(self.path, mode, buffering=1, encoding="utf-8") if writes else None
        self._write({"pith": "record", "version": 1, "rank": rank, "size": size, "title": title,
                     "fields": FIELDS})
        self._step = 0
        self._seen: dict[str, tuple[int, float]] = {}
        self._begin()

    def step(
        self,
        loss: float | None = None,
        layers: Layers | None = None,
        *,
        waited: float | None = None,
        tensors: Mapping[str, float] | None = None,
        number: int | None = None,
    ) -> None:
        """Call it at the end of each step.

        layers: the compressors by name, or their statistics. waited: seconds for which the step
        waited for them, if they also ran in the background; else their own time counts. tensors:
        which part of each tensor was sent. number: of the step, if not one more than the last.
        """
        now = time.perf_counter()
        self._step = self._step + 1 if number is None else number
        if self._file is not None:
            called = self._called(layers or {})
            if layers and not called:
                waited = None  # was of an earlier step
            line: dict[str, Any] = {"step": self._step, "seconds": now - self._began - self._paused,
                                    "loss": loss, "waited": waited, "layers": called,
                                    "tensors": tensors}
            self._write({name: value for name, value in line.items() if value is not None})
        self._begin()

    def validation(self, loss: float) -> None:
        """The loss of a validation after the last step. The next step begins now."""
        self._write({"step": self._step, "validation_loss": loss})
        self._begin()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What runs inside, as the writing of a checkpoint, belongs to no step."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - began

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self) -> None:
        self._paused = 0.0
        self._began = time.perf_counter()

    def _called(self, layers: Layers) -> dict[str, list[Any]]:
        """Of the layers that made a call since the last step."""
        found = {}
        for name, given in layers.items():
            stats = _as_mapping(name, given)
            call = int(stats["calls"]), float(stats["total_seconds"])
            if call[0] and call != self._seen.get(name):
                found[name] = [stats.get(field) for field in FIELDS]
            self._seen[name] = call
        return found

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(_short(line), separators=(",", ":")) + "\n")


def _drop_cut_line(path: str) -> None:
    """A process that was killed may have left a part of its last line."""
    try:
        with open(path, "r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
    except FileNotFoundError:
        pass


def _as_mapping(name: str, given: object) -> Mapping[str, Any]:
    if isinstance(given, Compressor):
        given = given.stats
    if isinstance(given, CompressorStats):
        return asdict(given)
    if isinstance(given, Mapping):
        return given
    raise TypeError(
        f"layers[{name!r}] is a {type(given).__name__}, expected a pith.Compressor or its stats"
    )


def _short(value: Any) -> Any:
    """Six digits are enough for a picture; JSON knows no infinity and no NaN."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, Mapping):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_short(one) for one in value]
    number = float(value)
    return float(f"{number:.6g}") if math.isfinite(number) else None
