"""A set of results: a folder with table.md, results.json, machine.json and pictures."""
import json
import pathlib
import re
import shlex
import sys

import collectives
import result_plots
import result_table

FORMAT = 1
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Unreadable(Exception):
    """A folder that holds no set of results."""


def slug(text):
    """A processor's name as part of a file's: "Intel(R) Xeon(R) CPU @ 2.2GHz": intel-xeon-2-2ghz"""
    text = re.sub(r"\((r|tm)\)|\b(cpu|processor)\b", " ", text.lower())
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-") or "unknown"


def new_folder(results, machine, date, collective):
    """Makes and returns RESULTS/DATE-PROCESSOR-CORESc; with -COLLECTIVE if that is not all-reduce,
    and with -2, -3 and so on if there is one."""
    base = f"{date}-{slug(machine['cpu'])}-{machine['cores']}c"
    if collective != "allreduce":
        base += f"-{slug(collective)}"
    number = 1
    while True:
        folder = results / (base if number == 1 else f"{base}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def libraries_of(document):
    """Which version each contender was, by contender."""
    return {name: about["library"] for run in document["runs"]
            for name, about in run["contenders"].items()}


def command_line():
    """As it was typed, with the script's path from the checkout's root, and without the places of
    what it wrote."""
    script = pathlib.Path(sys.argv[0]).resolve()
    name = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script.name
    places = ("--json", "--results")
    words = [word for before, word in zip(sys.argv, sys.argv[1:])
             if before not in places and word.partition("=")[0] not in places]
    return shlex.join([str(name), *words])


def write(results, document, machine):
    """Writes a new set and returns its folder."""
    folder = new_folder(results, machine, document["started"][:10],
                        collectives.name_of(document["collective"]))
    write_json(folder / "results.json", document)
    write_json(folder / "machine.json", machine)
    render_one(folder, document, machine)
    return folder


def read(folder):
    """(document, machine) of a set."""
    try:
        document, machine = (json.loads((folder / name).read_text(encoding="utf-8"))
                             for name in ("results.json", "machine.json"))
    except (OSError, ValueError) as error:
        raise Unreadable(f"{folder}: no set of results: {error}") from None
    if document.get("format") != FORMAT:
        raise Unreadable(f"{folder}: format {document.get('format')}, expected {FORMAT}")
    return document, machine


def no_plots(folders):
    names = " ".join(str(folder) for folder in folders)
    print(f"# no plots: {sys.executable} has no matplotlib (Debian: python3-matplotlib); with it: "
          f"perf/compare.py --render {names}", file=sys.stderr)


def pictures_in(folder, names):
    return {key: name for key, name in names.items() if (folder / name).is_file()}


def render_one(folder, document, machine):
    """Writes table.md and the pictures of a set."""
    if result_plots.Figure is None:
        no_plots([folder])
    else:
        label = f"{machine['cpu']}, {machine['cores']} cores"
        result_plots.write_tables(document, label, folder)
    names = {(ranks, case, state): result_plots.picture_name(ranks, case, state)
             for ranks, case, state, _ in result_table.tables_of(document)}
    text = result_table.report(document, machine, pictures_in(folder, names))
    (folder / "table.md").write_text(text, encoding="utf-8")


def render(folders, into):
    """Renders each set anew; several also side by side: into `into`, or else printed."""
    sets = {}
    for folder in folders:
        document, machine = read(folder)
        render_one(folder, document, machine)
        name = folder.resolve().name
        sets[str(folder) if name in sets else name] = document
    if into is None:
        if len(sets) > 1:
            print(result_table.side_by_side(sets, {}), end="")
        return
    into.mkdir(parents=True, exist_ok=True)
    if result_plots.Figure is not None:
        result_plots.write_machines(sets, into)
    names = {key: result_plots.picture_name(*key) for key in result_table.cases_of(sets)}
    text = result_table.side_by_side(sets, pictures_in(into, names))
    (into / "side-by-side.md").write_text(text, encoding="utf-8")
