"""The tables of a page: one row a compressor, one row a tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pith.report.bins import make_bins
from pith.report.charts import bars, heat_strip, sparkline
from pith.report.recording import Recording, Step
from pith.report.scale import percent, plain, seconds

MOST_ROWS = 60
POINTS = 60


@dataclass(frozen=True)
class _Layer:
    name: str
    count: int
    select: float
    exchange: float
    density: list[float | None]
    gain: list[float | None]
    residual_norm: float
    way: str
    dense: float

    @property
    def time(self) -> float:
        return self.select + self.exchange


def layer_table(recording: Recording) -> str:
    layers = [_layer(name, recording.steps) for name in recording.layer_names()]
    if not layers:
        return ""
    layers.sort(key=lambda layer: -layer.time)
    most = layers[0].time
    rows = "".join(_row(layer, most) for layer in layers[:MOST_ROWS])
    note = ("Each compressor, the one whose calls take longest first; time, density and gain are "
            "means of its calls, and the lines show them over the training, from 0.")
    if len(layers) > MOST_ROWS:
        note += f" {len(layers) - MOST_ROWS} quicker ones are not shown."
    legend = ('<span class="legend"><span class="key"><i class="orange"></i>select</span>'
              '<span class="key"><i class="green"></i>exchange</span></span>')
    head = ("<th>layer</th><th>elements</th><th>a call</th><th></th><th>density</th><th></th>"
            "<th>gain</th><th></th><th>residual norm</th><th>dense calls</th><th>algorithm</th>")
    return (f'<h2>By layer</h2><p>{note}</p>{legend}<div class="card"><table id="layers">'
            f"<tr>{head}</tr>{rows}</table></div>")


def tensor_table(recording: Recording) -> str:
    """Which part of each tensor was sent, where the training has recorded that."""
    names = recording.tensor_names()
    steps = [step for step in recording.steps if step.tensors]
    if not names:
        return ""
    most = max(max(step.tensors.values()) for step in steps)
    bins = make_bins(steps, POINTS)
    rows = []
    for name in names[:MOST_ROWS]:
        values = bins.mean(lambda step, name=name: step.tensors.get(name))  # type: ignore[misc]
        rows.append(f'<tr><td class="name">{escape(name)}</td>'
                    f'<td>{percent(_mean_of(values))}</td>'
                    f'<td class="wide">{heat_strip(values, most)}</td></tr>')
    note = (f"Elements of each tensor that any rank sent, of all: in the mean, and over steps "
            f"{steps[0].number} to {steps[-1].number}. The fullest colour is {percent(most)}.")
    if len(names) > MOST_ROWS:
        note += f" The first {MOST_ROWS} of {len(names)} tensors."
    return (f'<h2>By tensor</h2><p>{note}</p><div class="card"><table id="tensors">'
            f"<tr><th>tensor</th><th>sent</th><th></th></tr>{''.join(rows)}</table></div>")


def _layer(name: str, steps: Sequence[Step]) -> _Layer:
    called = [step for step in steps if name in step.layers]
    calls = [step.layers[name] for step in called]
    ways = Counter(str(call["algorithm"]) for call in calls)
    bins = make_bins(called, POINTS)
    return _Layer(
        name=name,
        count=int(calls[-1]["count"]),
        select=sum(call["select_seconds"] for call in calls) / len(calls),
        exchange=sum(call["exchange_seconds"] for call in calls) / len(calls),
        density=bins.mean(lambda step: step.layers[name]["density"]),
        gain=bins.mean(lambda step: step.layers[name]["gain"]),
        residual_norm=float(calls[-1]["residual_norm"] or 0),
        way=ways.most_common(1)[0][0],
        dense=sum(bool(call["bypassed"]) for call in calls) / len(calls),
    )


def _mean_of(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else 0.0


def _row(layer: _Layer, most: float) -> str:
    parts = ((layer.select, "orange"), (layer.exchange, "green"))
    cells = (
        f'<td class="name">{escape(layer.name)}</td>',
        f"<td>{layer.count:,}</td>",
        f'<td title="select {seconds(layer.select)}, exchange {seconds(layer.exchange)}">'
        f"{seconds(layer.time)}</td>",
        f'<td class="picture">{bars(parts, most)}</td>',
        f"<td>{percent(_mean_of(layer.density))}</td>",
        f'<td class="picture">{sparkline(layer.density, "blue")}</td>',
        f"<td>{percent(_mean_of(layer.gain))}</td>",
        f'<td class="picture">{sparkline(layer.gain, "green")}</td>',
        f"<td>{plain(layer.residual_norm)}</td>",
        f"<td>{percent(layer.dense)}</td>",
        f"<td>{escape(layer.way)}</td>",
    )
    return f"<tr>{''.join(cells)}</tr>"
