"""Regrets of a replayed grid: arithmetic only.

A cell is what regret_bench wrote of it, and the name of its link: collective, bytes, ranks,
density, what the library chose, and each candidate's microseconds a call. One that was left out has
no candidates but a reason.
"""
import math

from rivals import RIVALS, best_fixed

DEFAULT, AGAIN = "default", "default-again"
TARGETS = {"geomean": 0.03, "p95": 0.15, "worst": 1.0}


def times_of(cell):
    """Microseconds of everything that was timed in rounds, but for the default's second time."""
    return {one["name"]: one["us"] for one in cell["candidates"]
            if one["rounds"] > 0 and one["name"] != AGAIN}


def tried_times_of(cell):
    """Those too that were only tried, as they took several times the best's."""
    return {one["name"]: one["us"] for one in cell["candidates"] if one["name"] != AGAIN}


def best_of(cell):
    times = times_of(cell)
    return min(times, key=times.get)


def regret_of(cell, name=DEFAULT):
    """t(name) / t(best) - 1; None where there is no such candidate. The best is never worse than
    what is asked for."""
    times = tried_times_of(cell)
    if name not in times:
        return None
    return max(times[name] / times_of(cell)[best_of(cell)] - 1, 0)


def plan_of(name):
    """An algorithm by one name: a compressed call's is topk_recursive_doubling in statistics and
    recursive-doubling in a spec."""
    return name.removeprefix("topk_").replace("-", "_")


def regret_to_others(cell):
    """As regret_of, but 0 where the best is the chosen algorithm, forced: the same plan."""
    return 0 if plan_of(best_of(cell)) == plan_of(cell["chosen"]) else regret_of(cell)


def regrets_of_same(cell):
    """What the harness finds between the default and itself, either being the chosen one."""
    both = [one["us"] for one in cell["candidates"] if one["name"] in (DEFAULT, AGAIN)]
    return [took / min(both) - 1 for took in both]


def percentile(values, share):
    """The least value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def spread(regrets):
    """Geometric mean, 95th percentile and largest of regrets; None if there are none."""
    if not regrets:
        return None
    mean = sum(math.log1p(one) for one in regrets) / len(regrets)
    return {"geomean": math.expm1(mean), "p95": percentile(regrets, 0.95), "worst": max(regrets)}


def reaches(found):
    return all(found[name] <= limit for name, limit in TARGETS.items())


def complete(cells):
    return [cell for cell in cells if "left_out" not in cell]


def what_of(cell):
    """Its collective, as it is named in tables."""
    density = cell["density"]
    return cell["collective"] if not density else f"{cell['collective']} {density * 100:g} %"


def summary_of(cells):
    cells = complete(cells)
    return {"cells": len(cells), "regret": spread([regret_of(cell) for cell in cells]),
            "to_others": spread([regret_to_others(cell) for cell in cells]),
            "same": spread([one for cell in cells for one in regrets_of_same(cell)])}


def summaries(cells):
    """(what is summed up, which of it): summary; all, then by collective, link and ranks."""
    groups = {("all", ""): cells}
    for what, key in (("collective", what_of), ("link", lambda cell: cell["link"]),
                      ("ranks", lambda cell: str(cell["ranks"]))):
        for cell in cells:
            groups.setdefault((what, key(cell)), []).append(cell)
    return {name: summary_of(group) for name, group in groups.items()}


def wins(cells):
    """How often each candidate was the best, by collective."""
    counts = {}
    for cell in complete(cells):
        own = counts.setdefault(what_of(cell), {})
        name = best_of(cell)
        own[name] = own.get(name, 0) + 1
    return counts


def rival_regrets(cells):
    """Regrets of others' choices on the same times: (rival, collective): spread and choices.
    Where a rival says nothing, as of compressed calls, it is not listed."""
    found = {}
    by_collective = {}
    for cell in complete(cells):
        by_collective.setdefault(what_of(cell), []).append(cell)
    for collective, own in by_collective.items():
        fixed = best_fixed(own, regret_of)
        choices = {"fixed": lambda _, name=fixed: name, **RIVALS}
        found["library", collective] = {"spread": spread([regret_of(cell) for cell in own])}
        for rival, choose in choices.items():
            regrets = [regret_of(cell, name) for cell in own if (name := choose(cell))]
            regrets = [one for one in regrets if one is not None]
            if regrets:
                found[rival, collective] = {"spread": spread(regrets), "cells": len(regrets)}
        if ("fixed", collective) in found:
            found["fixed", collective]["choice"] = fixed
    return found
