"""Rows of a comparison as text: for a terminal, and as Markdown for one machine or several.

A row: {"bytes", "pith_us", "peers_us": {peer: us}, "best_peer", "ratio", "bound_us"}; a time that
is missing is None, and sets of before have no bound. A document is what compare.py writes to
results.json.
"""
import math

from contenders import CASES

ONE_STATE = "all runs"  # the state of the cores where runs found one only


def size_name(size):
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def number(value):
    return "-" if value is None else f"{value:.{2 if value < 1000 else 0}f}"


def geomean(values):
    """Of the values that are there; None where there is none."""
    known = [value for value in values if value is not None]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else None


def ratio_to(row, peer):
    """The peer's time over Pith's."""
    took = row["peers_us"].get(peer)
    return took / row["pith_us"] if took and row["pith_us"] else None


def bound_ratio(row):
    """The bound's time over Pith's: what part of it is reached."""
    bound = row.get("bound_us")
    return bound / row["pith_us"] if bound and row["pith_us"] else None


def peers_of(rows):
    return list(dict.fromkeys(peer for row in rows for peer in row["peers_us"]))


def aligned(cells_of_lines, left=()):
    """Lines of equally wide columns, to the right except those in `left`."""
    widths = [max(map(len, column)) for column in zip(*cells_of_lines)]
    return [" ".join(cell.ljust(width) if at in left else cell.rjust(width)
                     for at, (cell, width) in enumerate(zip(cells, widths))).rstrip()
            for cells in cells_of_lines]


def cells_of(case, rows):
    """The table's cells: a head, a line for each size, the geometric means of the ratios."""
    peers = peers_of(rows)
    has_bound = any(row.get("bound_us") for row in rows)
    lines = [["size", CASES[case].ours, *peers, *(["bound"] if has_bound else []), "ratio",
              "best peer"]]
    for row in rows:
        lines.append([size_name(row["bytes"]), number(row["pith_us"]),
                      *(number(row["peers_us"][peer]) for peer in peers),
                      *([number(row.get("bound_us"))] if has_bound else []),
                      number(row["ratio"]), row["best_peer"] or "-"])
    means = [geomean([ratio_to(row, peer) for row in rows]) for peer in peers]
    if has_bound:
        means.append(geomean([bound_ratio(row) for row in rows]))
    lines.append(["/ Pith", "", *map(number, means),
                  number(geomean([row["ratio"] for row in rows])), "geomean"])
    return lines


def plain_lines(case, rows, state):
    title = (f"## {case}, {state}: us per call, medians over rounds; "
             f"ratio = best peer / {CASES[case].ours}")
    cells = cells_of(case, rows)
    return [title, *aligned(cells, left=(len(cells[0]) - 1,))]


def markdown(cells):
    """A Markdown table whose first line is its head; all columns but words stand to the right."""
    words = ["---" if head in ("best peer", "machine", "case", "link", "runs", "") else "---:"
             for head in cells[0]]
    return ["| " + " | ".join(line) + " |" for line in (cells[0], words, *cells[1:])]


def tables_of(document):
    """Every table of a document: (ranks, case, state, rows)."""
    for run in document["runs"]:
        for case, states in run["cases"].items():
            for state, rows in states.items():
                yield run["ranks"], case, state, rows


def title_of(ranks, case, state):
    return f"{case}, {ranks} ranks{'' if state == ONE_STATE else f', {state}'}: {CASES[case].link}"


def label_of(machine, state):
    return machine if state == ONE_STATE else f"{machine}, {state}"


def summary_cells(document):
    lines = [["case", "link", "ranks", "runs", "sizes", "geomean", "least", "at"]]
    for ranks, case, state, rows in tables_of(document):
        known = [row for row in rows if row["ratio"] is not None]
        least = min(known, key=lambda row: row["ratio"], default=None)
        lines.append([case, CASES[case].link, str(ranks), state, f"{len(known)} of {len(rows)}",
                      number(geomean([row["ratio"] for row in known])),
                      number(least and least["ratio"]),
                      size_name(least["bytes"]) if least else "-"])
    return lines


def fact_cells(machine):
    def text(value):
        if isinstance(value, list):
            return ", ".join(map(str, value)) or "none"
        if isinstance(value, dict):
            return "; ".join(f"{key}: {one}" for key, one in value.items()) or "none"
        return "unknown" if value is None else str(value)
    return [["machine", ""], *([name.replace("_", " "), text(value).replace("|", "\\|")]
                               for name, value in machine.items())]


def load_line(run):
    return (f"{run['ranks']} ranks: {run['rounds']} rounds; others took "
            f"{run['foreign_percent_median']:.1f} % of the cores in the median run, "
            f"{run['runs_noisy']} runs were noisy.")


def report(document, machine, pictures):
    """table.md of one machine; `pictures`: file names by (ranks, case, state)."""
    out = [f"# Pith beside its peers: {machine['cpu']}, {machine['cores']} cores, "
           f"{document['started'][:10]}", "",
           f"{document['collective']}. Microseconds per call, medians over interleaved rounds;",
           "ratio = best peer's time / Pith's: above 1 Pith is faster. A table's last line has the",
           "geometric means over sizes: of each peer's time / Pith's, and of the ratio.", "",
           *markdown(summary_cells(document)), ""]
    for ranks, case, state, rows in tables_of(document):
        title = title_of(ranks, case, state)
        out += [f"## {title}", "", *markdown(cells_of(case, rows)), ""]
        if picture := pictures.get((ranks, case, state)):
            out += [f"![{title}]({picture})", ""]
    out += ["## How it was measured", "", *map(load_line, document["runs"]), ""]
    failed = {name: why for run in document["runs"] for name, why in run["errors"].items()}
    for name, why in {**document["left_out"], **failed}.items():
        out.append(f"- Left out: {name}: {why}.")
    return "\n".join([*out, "", *markdown(fact_cells(machine))]) + "\n"


def rows_by_machine(sets, ranks, case):
    """Of one case: {(machine, state): {bytes: row}}."""
    found = {}
    for name, document in sets.items():
        for at_ranks, at_case, state, rows in tables_of(document):
            if (at_ranks, at_case) == (ranks, case):
                found[name, state] = {row["bytes"]: row for row in rows}
    return found


def cases_of(sets):
    """Every (ranks, case) that some machine has, in order."""
    return list(dict.fromkeys((ranks, case) for document in sets.values()
                              for ranks, case, _, _ in tables_of(document)))


def side_by_side_cells(found):
    lines = [["size"]]
    for machine, state in found:
        lines[0] += [f"{label_of(machine, state)}: Pith us", "best peer us", "ratio"]
    for size in sorted({size for rows in found.values() for size in rows}):
        line = [size_name(size)]
        for rows in found.values():
            row = rows.get(size, {"pith_us": None, "peers_us": {}, "best_peer": None,
                                  "ratio": None})
            line += [number(row["pith_us"]), number(row["peers_us"].get(row["best_peer"])),
                     number(row["ratio"])]
        lines.append(line)
    means = [number(geomean([row["ratio"] for row in rows.values()])) for rows in found.values()]
    lines.append(["geomean", *(cell for mean in means for cell in ("", "", mean))])
    return lines


def side_by_side(sets, pictures):
    """Several machines in one text; `sets`: documents by name, `pictures`: names by
    (ranks, case)."""
    out = ["# Pith beside its peers, machine by machine", "",
           "Microseconds per call; ratio = best peer's time / Pith's.", ""]
    for ranks, case in cases_of(sets):
        found = rows_by_machine(sets, ranks, case)
        title = title_of(ranks, case, ONE_STATE)
        out += [f"## {title}", "", *markdown(side_by_side_cells(found)), ""]
        if picture := pictures.get((ranks, case)):
            out += [f"![{title}]({picture})", ""]
    return "\n".join(out)
