"""Charts as SVG. Colours are classes of page.css, which knows light and dark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pith.report.scale import Format, Scale, exact_scale, make_scale, plain

WIDTH, HEIGHT = 540, 270
LEFT, RIGHT, TOP, BOTTOM = 62, 24, 14, 44

Number = float | None


@dataclass(frozen=True)
class Series:
    name: str
    values: Sequence[Number]
    colour: str
    """A class of page.css."""


@dataclass(frozen=True)
class Chart:
    """What all kinds of charts have. `key` names it in the page."""

    key: str
    title: str
    note: str
    x: Sequence[float]
    x_title: str
    y_title: str
    x_name: str = "step"
    show: Format = plain
    tick: Format | None = None
    from_zero: bool = True
    may_be_log: bool = False


def lines(chart: Chart, series: Sequence[Series]) -> str:
    known = [value for one in series for value in one.values if value is not None]
    y = make_scale(known, HEIGHT - BOTTOM, TOP, from_zero=chart.from_zero,
                   may_be_log=chart.may_be_log)
    x = _x_scale(chart)
    drawn = [_line(chart.x, one, x, y) for one in series]
    tops = [[None if value is None else y(value) for value in one.values] for one in series]
    return _figure(chart, series, x, y, drawn, tops)


def stacked(chart: Chart, series: Sequence[Series]) -> str:
    """Areas on each other, the first one at the bottom."""
    count = len(chart.x)
    sums = [[0.0] * count]
    for one in series:
        sums.append([below + (value or 0.0) for below, value in zip(sums[-1], one.values,
                                                                    strict=True)])
    y = make_scale(sums[-1], HEIGHT - BOTTOM, TOP, from_zero=True)
    x = _x_scale(chart)
    drawn, tops = [], []
    for one, low, high in zip(series, sums, sums[1:], strict=False):
        forth = [_point(x(at), y(value)) for at, value in zip(chart.x, high, strict=True)]
        back = [_point(x(at), y(value)) for at, value in zip(chart.x, low, strict=True)]
        outline = " ".join(forth + back[::-1])
        drawn.append(f'<polygon class="area {one.colour}" points="{outline}"/>')
        tops.append([y(value) for value in high])
    return _figure(chart, series, x, y, drawn, tops)


def sparkline(values: Sequence[Number], colour: str) -> str:
    """A line without axes, for a cell of a table; from 0 to its largest value."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return ""
    y = make_scale(known, 22, 2, from_zero=True)
    x = exact_scale(0, len(values) - 1, 2, 118)
    path = _path([(x(at), y(value)) if value is not None else None
                  for at, value in enumerate(values)])
    return (f'<svg class="spark" viewBox="0 0 120 24" aria-hidden="true">'
            f'<path class="line {colour}" d="{path}"/></svg>')


def bars(parts: Sequence[tuple[float, str]], whole: float) -> str:
    """One bar of several parts, for a cell of a table; `whole` fills the cell."""
    at, drawn = 0.0, []
    for value, colour in parts:
        width = 120 * value / whole if whole else 0.0
        drawn.append(f'<rect class="area {colour}" x="{at:.1f}" y="4" width="{width:.1f}" '
                     'height="16"/>')
        at += width
    return f'<svg class="spark" viewBox="0 0 120 24" aria-hidden="true">{"".join(drawn)}</svg>'


def heat_strip(values: Sequence[Number], most: float) -> str:
    """A row of cells; the fuller, the more."""
    width = 360 / max(len(values), 1)
    cells = [
        f'<rect class="heat" x="{at * width:.2f}" y="0" width="{width + 0.3:.2f}" height="16" '
        f'fill-opacity="{0.06 + 0.94 * (value / most if most else 0):.2f}"/>'
        for at, value in enumerate(values) if value is not None
    ]
    return (f'<svg class="strip" viewBox="0 0 360 16" preserveAspectRatio="none" '
            f'aria-hidden="true">{"".join(cells)}</svg>')


# --- parts of a chart -----------------------------------------------------------------------------


def _x_scale(chart: Chart) -> Scale:
    return exact_scale(chart.x[0], chart.x[-1], LEFT, WIDTH - RIGHT)


def _point(x: float, y: float) -> str:
    return f"{x:.1f},{y:.1f}"


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    """With gaps where nothing is known."""
    words, is_down = [], False
    for point in points:
        if point is not None:
            words.append(("L" if is_down else "M") + _point(*point))
        is_down = point is not None
    return "".join(words)


def _line(x_values: Sequence[float], one: Series, x: Scale, y: Scale) -> str:
    points = [(x(at), y(value)) if value is not None else None
              for at, value in zip(x_values, one.values, strict=True)]
    known = [point for point in points if point is not None]
    if len(known) < len(points):  # seldom known, as validations: joined, with a dot at each
        dots = "".join(f'<circle class="dot {one.colour}" cx="{px:.1f}" cy="{py:.1f}" r="3"/>'
                       for px, py in known)
        return f'<path class="line {one.colour}" d="{_path(known)}"/>{dots}'
    return f'<path class="line {one.colour}" d="{_path(points)}"/>'


def _axes(chart: Chart, x: Scale, y: Scale) -> str:
    parts = []
    tick = chart.tick or chart.show
    for value in y.ticks():
        at = y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" '
                     f'y2="{at:.1f}"/><text class="tick" x="{LEFT - 6}" y="{at + 4:.1f}" '
                     f'text-anchor="end">{escape(tick(value))}</text>')
    for value in x.ticks():
        parts.append(f'<text class="tick" x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 16}" '
                     f'text-anchor="middle">{escape(plain(value))}</text>')
    middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" '
                 f'y2="{HEIGHT - BOTTOM}"/>'
                 f'<text class="title" x="{middle_x}" y="{HEIGHT - 8}" text-anchor="middle">'
                 f'{escape(chart.x_title)}</text>'
                 f'<text class="title" transform="translate(13 {middle_y}) rotate(-90)" '
                 f'text-anchor="middle">{escape(chart.y_title)}</text>')
    return "".join(parts)


def _figure(chart: Chart, series: Sequence[Series], x: Scale, y: Scale, drawn: Sequence[str],
            tops: Sequence[Sequence[Number]]) -> str:
    legend = "".join(f'<span class="key"><i class="{one.colour}"></i>{escape(one.name)}</span>'
                     for one in series)
    hover = {
        "name": chart.x_name,
        "x": [round(x(at), 1) for at in chart.x],
        "labels": [plain(at) for at in chart.x],
        "series": [{"name": one.name, "colour": one.colour,
                    "y": [None if top is None else round(top, 1) for top in top_line],
                    "labels": ["" if value is None else chart.show(value) for value in one.values]}
                   for one, top_line in zip(series, tops, strict=True)],
    }
    data = json.dumps(hover, separators=(",", ":")).replace("</", "<\\/")
    return (f'<figure class="chart" id="{chart.key}"><figcaption><b>{escape(chart.title)}</b>'
            f'<span class="note">{escape(chart.note)}</span><span class="legend">{legend}</span>'
            f'</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(chart.title)}">{_axes(chart, x, y)}{"".join(drawn)}'
            f'<line class="cross" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/></svg>'
            f'<div class="tip" hidden></div><script type="application/json">{data}</script>'
            '</figure>')
