"""Axes: from numbers to places in a picture, and round numbers to write beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# A range of more than so many times its least number is drawn by logarithms.
LOG_FROM = 20
# At most so many, and one more at the end.
TICKS = 8


@dataclass(frozen=True)
class Scale:
    low: float
    high: float
    begin: float
    """The place of `low`."""
    end: float
    step: float = 0.0
    """Between two ticks; 0: the scale is logarithmic."""

    @property
    def is_log(self) -> bool:
        return not self.step

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, low))
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        if self.is_log:
            return _log_ticks(self.low, self.high)
        first = math.ceil(self.low / self.step - 1e-9)
        last = math.floor(self.high / self.step + 1e-9)
        return [number * self.step for number in range(first, last + 1)]


def make_scale(
    values: Sequence[float], begin: float, end: float, *, from_zero: bool, may_be_log: bool = False
) -> Scale:
    """A scale that holds all values, and ends at round numbers."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if may_be_log and low > 0 and high / low > LOG_FROM:
        return Scale(_power_below(low), _power_above(high), begin, end)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high <= low:
        high = low + (abs(low) or 1.0)
    step = _round_step((high - low) / TICKS)
    return Scale(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step,
                 begin, end, step)


def exact_scale(low: float, high: float, begin: float, end: float) -> Scale:
    high = high if high > low else low + 1
    return Scale(low, high, begin, end, _round_step((high - low) / TICKS))


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def _power_below(value: float) -> float:
    return 10.0 ** math.floor(math.log10(value) + 1e-9)


def _power_above(value: float) -> float:
    return 10.0 ** math.ceil(math.log10(value) - 1e-9)


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = round(math.log10(low)), round(math.log10(high))
    stride = max(1, (last - first) // 4)
    return [10.0**power for power in range(first, last + 1, stride)]


# --- numbers as text ------------------------------------------------------------------------------

Format = Callable[[float], str]


def plain(value: float) -> str:
    if value and abs(value) < 1e-3:
        return f"{value:.2e}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def percent(value: float) -> str:
    return f"{100 * value:.3g}%"


def seconds(value: float) -> str:
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1, 1e3, "ms")):
        if abs(value) < limit:
            return f"{value * factor:.3g} {unit}"
    return f"{value:,.3g} s" if value < 1000 else f"{value:,.0f} s"


def byte_count(value: float) -> str:
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.0f} B"


def time_unit(longest: float) -> tuple[float, str]:
    """What to multiply seconds with, and the unit that gives readable numbers."""
    if longest < 1e-3:
        return 1e6, "µs"
    return (1e3, "ms") if longest < 1 else (1.0, "s")
