#!/usr/bin/env python3
"""What the library's choices cost: regret = t(chosen) / t(best) - 1, on the same link state.

For each link and number of ranks one group of processes times, cell by cell, the library's choice
beside everything that it could have chosen: every algorithm, and other settings. Each has a
communicator of its own; all are called in every round, in another order; medians over the rounds
count. "the same again" is the regret that the harness finds between the default and the default:
what is below it is noise. "to other plans" counts 0 where the best is the chosen algorithm, forced.

Cells whose best takes over a second are left out, as are those for which there was no time; both
are counted. --minutes bounds everything. Links between hosts need root: see perf/regret/README.md.
"""
import argparse
import datetime
import json
import pathlib
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "regret"))
import links  # noqa: E402
import score  # noqa: E402
import tables  # noqa: E402
from heatmap import heat_map  # noqa: E402
from lab import Signals  # noqa: E402
from machine_facts import processor  # noqa: E402
from namespaces import LabError  # noqa: E402

LINKS = "shm,private,loopback,10g,1g,0.1g,1g+1ms,1g+5ms,1g+20ms"
EVERY_LINK = "shm,private,loopback," + ",".join(
    f"{rate}g{delay}" for rate in ("10", "1", "0.1") for delay in ("", "+1ms", "+5ms", "+20ms"))
DENSE = ("allreduce", "reduce_scatter", "allgather", "broadcast")
COLLECTIVES = ",".join(DENSE) + ",sparse_allreduce"
FULL = {"links": LINKS, "ranks": "2,4,8", "sizes": "8,256,4K,32K,256K,2M,16M,64M",
        "densities": "0.001,0.01,0.1", "collectives": COLLECTIVES, "minutes": 40.0}
QUICK = FULL | {"links": "shm,private,loopback,1g", "ranks": "2,4", "sizes": "8,4K,64K,1M",
                "densities": "0.01", "minutes": 4.0}
# To start and end ranks, beside the cells' time.
START_S = 5
LEAST_S = 2


def parse_size(text):
    for unit, factor in (("K", 1 << 10), ("M", 1 << 20)):
        if text.upper().endswith(unit):
            return int(text[:-1]) * factor
    return int(text)


def listed(one):
    def parse(text):
        return [one(part) for part in text.split(",")]
    return parse


def parse_links(text):
    try:
        return [links.parse_link(one) for one in (EVERY_LINK if text == "all" else text).split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_collectives(text):
    names = text.split(",")
    unknown = set(names) - set(COLLECTIVES.split(","))
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}, expected {COLLECTIVES}")
    return names


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="a small grid")
    add("--links", type=parse_links, help=f"default {LINKS}; all: each rate with each delay")
    add("--ranks", type=listed(int), help="default 2,4,8")
    add("--sizes", type=listed(parse_size), help=f"default {FULL['sizes']}")
    add("--densities", type=listed(float), help="of compressed calls, default 0.001,0.01,0.1")
    add("--collectives", type=parse_collectives, help=f"default {COLLECTIVES}")
    add("--minutes", type=float, help="for everything, default 40, with --quick 4")
    add("--call-limit", type=float, default=1, help="seconds: slower cells are left out")
    add("--rounds-max", type=int, default=15)
    add("--json", type=pathlib.Path, help="write everything to this file")
    add("--svg", type=pathlib.Path, help="write the heat map to this file")
    add("--cells", action="store_true", help="print a line for each cell too")
    grid = QUICK if "--quick" in arguments else FULL
    parser.set_defaults(**grid)  # texts are parsed as if they were given
    return parser.parse_args(arguments)


def flags_of(options):
    return ["--collectives", ",".join(options.collectives),
            "--sizes", ",".join(map(str, options.sizes)),
            "--densities", ",".join(f"{one:g}" for one in options.densities),
            "--call-limit", f"{options.call_limit:g}", "--rounds-max", str(options.rounds_max)]


class Grid:
    """What has been measured so far; complete at any time, as a signal may end it."""

    def __init__(self, options):
        self.options = options
        self.started = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        self.cells = []
        self.errors = {}

    def run(self):
        end = time.monotonic() + self.options.minutes * 60
        groups = [(link, ranks) for link in self.options.links for ranks in self.options.ranks]
        for number, (link, ranks) in enumerate(groups):
            share = (end - time.monotonic()) / (len(groups) - number)
            name = f"{link.name}, {ranks} ranks"
            lacks = link.lacks()
            if lacks or share <= START_S:
                self.errors[name] = lacks or "no time"
                continue
            self.run_group(link, ranks, max(share - START_S, LEAST_S), name)

    def run_group(self, link, ranks, seconds, name):
        with tempfile.TemporaryDirectory(prefix="regret-") as folder:
            path = pathlib.Path(folder) / "cells"
            try:
                links.run(link, ranks, flags_of(self.options), seconds, path)
            except (links.Failed, LabError, OSError) as error:
                self.errors[name] = f"{type(error).__name__}: {error}"
                print(f"# {name}: {self.errors[name]}", file=sys.stderr)
            finally:
                self.cells += links.cells_in(path, link)
        print(f"# {name}: {len(score.complete(self.cells))} of {len(self.cells)} cells so far",
              file=sys.stderr)

    def document(self):
        def keyed(found):
            return [{"of": list(key), **value} for key, value in found.items()]
        return {"machine": processor(), "started": self.started, "minutes": self.options.minutes,
                "targets": score.TARGETS, "errors": self.errors,
                "summaries": keyed(score.summaries(self.cells)),
                "rivals": keyed(score.rival_regrets(self.cells)),
                "wins": score.wins(self.cells), "cells": self.cells}

    def head(self):
        about = processor()
        return (f"{about['cpu']}, {about['cores']} cores, "
                f"{','.join(map(str, self.options.ranks))} ranks, {self.started}")

    def report(self):
        sections = [tables.summary_lines(score.summaries(self.cells)),
                    [tables.target_line(score.summary_of(self.cells)["regret"])],
                    tables.rival_lines(score.rival_regrets(self.cells)),
                    ["best in how many cells:", *tables.win_lines(score.wins(self.cells))],
                    tables.left_out_lines(self.cells) +
                    [f"failed or left out: {name}: {why}" for name, why in self.errors.items()]]
        if self.options.cells:
            sections.append(tables.cell_lines(self.cells))
        print(f"# Regret of the library's choices: {self.head()}")
        for lines in filter(None, sections):
            print("\n" + "\n".join(lines))
        if self.options.json:
            self.options.json.write_text(json.dumps(self.document(), indent=1) + "\n",
                                         encoding="utf-8")
        if self.options.svg:
            self.options.svg.write_text(heat_map(self.cells, "Regret: " + self.head()),
                                        encoding="utf-8")


def main():
    grid = Grid(parse(sys.argv[1:]))
    # Both unwind the stack, so ranks and namespaces are removed and what was measured is told.
    Signals.take()
    signal.signal(signal.SIGHUP, Signals.end)
    try:
        grid.run()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    finally:
        grid.report()
        Signals.give_back()
    sys.exit(0 if score.complete(grid.cells) else 1)


if __name__ == "__main__":
    main()
