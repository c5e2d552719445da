"""The page: what a training's record shows, as one HTML file without outside parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape
from importlib.resources import files
from statistics import median

from pith.report.bins import Bins, make_bins
from pith.report.charts import Chart, Series, lines, stacked
from pith.report.layers import layer_table, tensor_table
from pith.report.recording import Recording, Step
from pith.report.scale import byte_count, percent, plain, seconds, time_unit

FLOAT32_BYTES = 4


def page_of(recording: Recording) -> str:
    if not recording.steps:
        raise ValueError("the record has no steps, expected one at least")
    bins = make_bins(recording.steps)
    title = recording.title or "A training with Pith"
    charts = "".join([_loss(bins), _time_split(bins), _density(bins), _gain(bins)])
    layers = layer_table(recording) + tensor_table(recording)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_part('page.css')}</style></head><body>"
        f"<h1>{escape(title)}</h1><p>{escape(_what(recording))}</p>"
        f'<div class="tiles">{_tiles(recording)}</div><div class="charts">{charts}</div>'
        f"{layers}<script>{_part('page.js')}</script></body></html>\n"
    )


def _part(name: str) -> str:
    return files("pith.report").joinpath(name).read_text(encoding="utf-8")


def _what(recording: Recording) -> str:
    first, last = recording.steps[0].number, recording.steps[-1].number
    length = seconds(sum(step.seconds for step in recording.steps))
    return (f"Steps {first} to {last}, {length} of training, as rank {recording.rank} of "
            f"{recording.size} has seen it.")


def _tiles(recording: Recording) -> str:
    steps = recording.steps
    called = [step for step in steps if step.layers]
    tiles = [("a step (median)", seconds(median(step.seconds for step in steps)))]
    whole = sum(step.seconds for step in steps)
    waiting = whole - sum(step.split()[0] for step in steps)
    if called:
        tiles.append(("of the time not compute", percent(waiting / whole) if whole else "0%"))
        tiles.append(("density", percent(_mean(called, "density"))))
        tiles.append(("gain", percent(_mean(called, "gain"))))
        tiles.append(("sent by this rank, a step", byte_count(_mean_total(called, "bytes_sent"))))
        dense = _dense_bytes(called[-1], recording.size)
        if dense:
            tiles.append(("a ring would send, as float32", byte_count(dense)))
    loss = next((step.loss for step in reversed(steps) if step.loss is not None), None)
    if loss is not None:
        tiles.append(("last loss", plain(loss)))
    return "".join(f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
                   for name, value in tiles)


def _mean(steps: Sequence[Step], name: str) -> float:
    known = [found for step in steps if (found := step.mean(name)) is not None]
    return sum(known) / len(known) if known else 0.0


def _mean_total(steps: Sequence[Step], name: str) -> float:
    return sum(step.total(name) for step in steps) / len(steps)


def _dense_bytes(step: Step, ranks: int) -> float:
    return 2 * (ranks - 1) / ranks * FLOAT32_BYTES * step.total("count")


# --- charts ---------------------------------------------------------------------------------------


def _loss(bins: Bins) -> str:
    series = [Series("training", bins.mean(lambda step: step.loss), "blue"),
              Series("validation", bins.mean(lambda step: step.validation_loss), "orange")]
    series = [one for one in series if any(value is not None for value in one.values)]
    if not series:
        return ""
    factor, unit = _clock(bins.ends[-1])
    chart = Chart("loss", "Loss over time", "Without the time of validations and pauses.",
                  [end * factor for end in bins.ends], f"time ({unit})", "loss",
                  x_name=f"time ({unit})", from_zero=False)
    return lines(chart, series)


def _clock(longest: float) -> tuple[float, str]:
    if longest >= 7200:
        return 1 / 3600, "hours"
    return (1 / 60, "minutes") if longest >= 300 else time_unit(longest)


def _time_split(bins: Bins) -> str:
    parts = [bins.mean(partial(_split_part, part)) for part in range(3)]
    whole = [sum(values) for values in zip(*[[value or 0.0 for value in one] for one in parts],
                                           strict=True)]
    factor, unit = time_unit(max(whole))
    names = ("compute", "select", "exchange")
    series = [Series(name, [(value or 0.0) * factor for value in values], colour)
              for name, values, colour in zip(names, parts, ("blue", "orange", "green"),
                                              strict=True)]
    note = ("Select: electing elements and taking their values. Exchange: the rest of the calls. "
            "Of calls behind the backward pass, the time that the step waited for them.")
    chart = Chart("time", "Where the time of a step went", note, bins.numbers, "step",
                  f"time a step ({unit})", show=lambda value: f"{value:.3g} {unit}", tick=plain)
    return stacked(chart, series)


def _split_part(part: int, step: Step) -> float | None:
    return step.split()[part]


def _density(bins: Bins) -> str:
    series = [Series("sent", bins.mean(lambda step: step.mean("density")), "blue"),
              Series("target", bins.mean(lambda step: step.mean("density_target")), "grey")]
    if all(value is None for value in series[0].values):
        return ""
    note = ("Elements that any rank sent, of all. The target is of what one rank elects; a call "
            "that was dense counts as 100%.")
    chart = Chart("density", "Density", note, bins.numbers, "step", "elements sent", show=percent,
                  may_be_log=True)
    return lines(chart, series)


def _gain(bins: Bins) -> str:
    series = [Series("gain", bins.mean(lambda step: step.mean("gain")), "green")]
    if all(value is None for value in series[0].values):
        return ""
    note = ("Squared norm of what this rank sent, of gradient and residual together: how much of "
            "what is waiting a step delivers.")
    chart = Chart("gain", "Gain", note, bins.numbers, "step", "squared norm sent", show=percent)
    return lines(chart, series)
