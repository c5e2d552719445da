"""Steps put together, so that a long training has as many points as a picture can show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pith.report.recording import Step

MOST_BINS = 240


@dataclass(frozen=True)
class Bins:
    steps: Sequence[Sequence[Step]]
    numbers: list[float]
    """The last step of each."""
    ends: list[float]
    """Seconds of training at the end of each."""

    def mean(self, value: Callable[[Step], float | None]) -> list[float | None]:
        """Of the steps that have this value; None where none has."""
        means: list[float | None] = []
        for steps in self.steps:
            known = [found for step in steps if (found := value(step)) is not None]
            means.append(sum(known) / len(known) if known else None)
        return means


def make_bins(steps: Sequence[Step], most: int = MOST_BINS) -> Bins:
    length = -(-len(steps) // most)
    cut = [steps[begin : begin + length] for begin in range(0, len(steps), length)]
    ends, elapsed = [], 0.0
    for part in cut:
        elapsed += sum(step.seconds for step in part)
        ends.append(elapsed)
    return Bins(cut, [float(part[-1].number) for part in cut], ends)
