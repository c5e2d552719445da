"""A recorded training, as read from the file of a pith.Recorder."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Step:
    number: int
    seconds: float
    loss: float | None = None
    validation_loss: float | None = None
    waited: float | None = None
    """None: calls did not run in the background."""
    layers: dict[str, dict[str, Any]] = field(default_factory=dict)
    tensors: dict[str, float] = field(default_factory=dict)

    def total(self, name: str) -> float:
        """The sum of a field over the layers."""
        return sum(_number(layer.get(name)) for layer in self.layers.values())

    def mean(self, name: str) -> float | None:
        """The mean of a field over all elements of the gradient."""
        known = [one for one in self.layers.values() if one.get(name) is not None]
        elements = sum(_number(one["count"]) for one in known)
        if not elements:
            return None
        return sum(_number(one[name]) * _number(one["count"]) for one in known) / elements

    def split(self) -> tuple[float, float, float]:
        """Seconds of compute, of selecting, and of exchanging, that add up to the step.

        Of calls behind the backward pass only that time counts for which the step waited, divided
        as the calls' own time.
        """
        select, exchange = self.total("select_seconds"), self.total("exchange_seconds")
        called = select + exchange
        waited = min(called if self.waited is None else self.waited, self.seconds)
        if not called:
            return self.seconds - waited, 0.0, waited
        part = select / called
        return self.seconds - waited, waited * part, waited * (1 - part)


@dataclass
class Recording:
    title: str
    rank: int
    size: int
    steps: list[Step]

    def layer_names(self) -> list[str]:
        """All names, in the order in which they appear."""
        return list(dict.fromkeys(name for step in self.steps for name in step.layers))

    def tensor_names(self) -> list[str]:
        return list(dict.fromkeys(name for step in self.steps for name in step.tensors))


def read(path: str | os.PathLike[str]) -> Recording:
    """A last line that was cut off, as by the end of its process, is left out."""
    name = os.fspath(path)
    with open(name, encoding="utf-8") as file:
        lines = file.read().splitlines()
    recording: Recording | None = None
    fields: list[str] = []
    steps: dict[int, Step] = {}
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except ValueError:
            if number == len(lines):
                break
            raise ValueError(
                f"{name}:{number} is no JSON, expected a line of pith.Recorder"
            ) from None
        if isinstance(value, dict) and value.get("pith") == "record":
            fields = value["fields"]
            recording = Recording(value["title"], value["rank"], value["size"], [])
        elif recording is None:
            raise ValueError(f"{name} has no first line of a record, expected one of pith.Recorder")
        elif "seconds" in value:
            # A step that was made again after a restart counts once.
            steps[value["step"]] = _step(value, fields)
        elif value["step"] in steps:
            steps[value["step"]].validation_loss = value["validation_loss"]
    if recording is None:
        raise ValueError(f"{name} is empty, expected a record of pith.Recorder")
    recording.steps = [steps[number] for number in sorted(steps)]
    return recording


def _step(value: dict[str, Any], fields: list[str]) -> Step:
    return Step(
        number=value["step"],
        seconds=value["seconds"],
        loss=value.get("loss"),
        waited=value.get("waited"),
        layers={
            name: dict(zip(fields, one, strict=True)) for name, one in value["layers"].items()
        },
        tensors=value.get("tensors", {}),
    )


def _number(value: Any) -> float:
    return 0.0 if value is None else float(value)
