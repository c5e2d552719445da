"""A grid's tables as text."""
from heatmap import in_order, size_name
from score import (DEFAULT, TARGETS, best_of, complete, reaches, regret_of, regrets_of_same,
                   tried_times_of, what_of)

RIVAL_NAMES = {"library": "the library", "fixed": "best single",
               "unlearned": "before it learns", "openmpi": "Open MPI's rules",
               "textbook": "textbook", "textbook-laid": "textbook, laid"}


def percents(found):
    if found is None:
        return f"{'-':>7} {'-':>6} {'-':>7}"
    return (f"{found['geomean'] * 100:>7.1f} {found['p95'] * 100:>6.0f} "
            f"{found['worst'] * 100:>7.0f}")


def summary_lines(summaries):
    lines = [f"{'regret in %':<34} {'cells':>5} | {'geomean':>7} {'p95':>6} {'worst':>7} | "
             f"{'to other plans':<22} | {'the same again':<22}".rstrip()]
    for (what, which), one in summaries.items():
        lines.append(f"{what + ' ' + which:<34} {one['cells']:>5} | {percents(one['regret'])} | "
                     f"{percents(one['to_others'])} | {percents(one['same'])}")
    return lines


def target_line(found):
    limits = f"geomean {TARGETS['geomean']:.0%}, p95 {TARGETS['p95']:.0%}, worst 2x"
    if found is None:
        return f"target {limits}: no cells"
    return f"target {limits}: {'reached' if reaches(found) else 'missed'}"


def rival_lines(rivals):
    lines = [f"{'regret in % of who chooses':<34} {'':<18} {'geomean':>7} {'p95':>6} {'worst':>7}"]
    for collective in in_order(collective for _, collective in rivals):
        for (rival, which), one in rivals.items():
            if which == collective:
                lines.append(f"{collective:<34} {RIVAL_NAMES.get(rival, rival):<18} "
                             f"{percents(one['spread'])}  {one.get('choice', '')}".rstrip())
    return lines


def win_lines(wins):
    lines = []
    for collective, counts in wins.items():
        order = sorted(counts.items(), key=lambda item: -item[1])
        lines.append(f"{collective}: " + ", ".join(f"{name} {count}" for name, count in order))
    return lines


def cell_lines(cells):
    lines = [f"{'link':<10} {'ranks':>5} {'collective':<24} {'size':>5} {'chosen':<20} {'us':>10} "
             f"{'best':<20} {'us':>10} {'regret %':>8} {'same %':>6} {'rounds':>6}"]
    for cell in complete(cells):
        best, times = best_of(cell), tried_times_of(cell)
        rounds = max(one["rounds"] for one in cell["candidates"])
        lines.append(
            f"{cell['link']:<10} {cell['ranks']:>5} {what_of(cell):<24} "
            f"{size_name(cell['bytes']):>5} {cell['chosen']:<20} {times[DEFAULT]:>10.1f} "
            f"{best:<20} {times[best]:>10.1f} {regret_of(cell) * 100:>8.1f} "
            f"{max(regrets_of_same(cell)) * 100:>6.1f} {rounds:>6}")
    return lines


def left_out_lines(cells):
    counts = {}
    for cell in cells:
        if "left_out" in cell:
            key = f"{cell['left_out']}: {cell['link']}, {cell['ranks']} ranks"
            counts[key] = counts.get(key, 0) + 1
    return [f"left out, {key}: {count} cells" for key, count in counts.items()]
