"""The pictures of a comparison, by matplotlib, which may be missing."""
import re

import collectives
from contenders import CASES
from result_table import (ONE_STATE, cases_of, label_of, peers_of, rows_by_machine, size_name,
                          tables_of, title_of)

try:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator, StrMethodFormatter
except ImportError:
    Figure = None

MARKERS = "os^vD<>ph*X"
# Without a version: the same results make the same file.
AS_PNG = {"dpi": 80, "metadata": {"Software": None}}
TENS, TENS_AND_BETWEEN = (1,), (1, 1.5, 2, 3, 5, 7)  # ticks of a logarithmic axis


def picture_name(ranks, case, state=ONE_STATE):
    parts = [case, f"{ranks}-ranks"] + ([] if state == ONE_STATE else [state])
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()) + ".png"


def bus_gbytes_per_s(size, took_us, ranks, collective):
    """What each rank sends and receives in a ring, a second; as nccl-tests count it."""
    return collectives.bus_factor(collective, ranks) * size / (took_us * 1e3)


def known(pairs):
    return [(size, value) for size, value in pairs if value is not None]


def draw(axes, pairs, label, at, ours=False):
    pairs = known(pairs)
    if not pairs:
        return
    style = {"color": "black", "linewidth": 2.5, "zorder": 3} if ours else {
        "color": f"C{at % 10}", "linewidth": 1.2}
    axes.plot(*zip(*pairs), label=label, marker=MARKERS[at % len(MARKERS)], markersize=4, **style)


def by_size(axes, sizes, title, ylabel, ticks):
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([size_name(size) for size in sizes], rotation=45, ha="right", fontsize=8)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=ticks))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(True, which="major", alpha=0.4)
    axes.set_title(title, fontsize=10)
    axes.set_ylabel(ylabel)


def table_figure(ranks, case, state, rows, machine, collective):
    """Two plots by size: bus bandwidth, and time relative to the best peer's."""
    ours, peers = CASES[case].ours, peers_of(rows)
    figure = Figure(figsize=(13, 5), layout="constrained")
    speed, relative = figure.subplots(1, 2)
    sizes = [row["bytes"] for row in rows]

    def bus(took_of):
        times = [(row["bytes"], took_of(row)) for row in rows]
        return [(size, bus_gbytes_per_s(size, took, ranks, collective))
                for size, took in known(times)]

    def to_best(took_of):
        bests = [row["peers_us"].get(row["best_peer"]) for row in rows]
        return [(row["bytes"], took_of(row) / best) for row, best in zip(rows, bests)
                if best and took_of(row)]

    for axes, values in ((speed, bus), (relative, to_best)):
        draw(axes, values(lambda row: row["pith_us"]), ours, 0, ours=True)
        for at, peer in enumerate(peers):
            draw(axes, values(lambda row, peer=peer: row["peers_us"][peer]), peer, at)
    by_size(speed, sizes, "bus bandwidth, GB/s: more is better", "GB/s", TENS)
    by_size(relative, sizes, "time / best peer's time: less is better", "time / best peer's",
            TENS_AND_BETWEEN)
    relative.axhline(1, color="grey", linestyle="--", linewidth=1)
    relative.legend(*speed.get_legend_handles_labels(), loc="center left",
                    bbox_to_anchor=(1.02, 0.5), fontsize=8)
    figure.suptitle(f"{title_of(ranks, case, state)} - {machine}", fontsize=11)
    return figure


def machines_figure(ranks, case, found):
    """The ratio by size, a line for each machine."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    sizes = sorted({size for rows in found.values() for size in rows})
    for at, (key, rows) in enumerate(found.items()):
        draw(axes, [(size, row["ratio"]) for size, row in rows.items()], label_of(*key), at)
    by_size(axes, sizes, f"{case}, {ranks} ranks: {CASES[case].link}", "best peer's time / Pith's",
            TENS_AND_BETWEEN)
    axes.axhline(1, color="grey", linestyle="--", linewidth=1)
    axes.legend(fontsize=8)
    return figure


def write_tables(document, machine, folder):
    """A picture for each table that has times."""
    collective = collectives.name_of(document["collective"])
    for ranks, case, state, rows in tables_of(document):
        if any(row["pith_us"] or row["best_peer"] for row in rows):
            figure = table_figure(ranks, case, state, rows, machine, collective)
            figure.savefig(folder / picture_name(ranks, case, state), **AS_PNG)


def write_machines(sets, folder):
    for ranks, case in cases_of(sets):
        figure = machines_figure(ranks, case, rows_by_machine(sets, ranks, case))
        figure.savefig(folder / picture_name(ranks, case), **AS_PNG)
