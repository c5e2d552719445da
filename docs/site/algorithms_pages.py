"""The pages of algorithms: the top comments of their files, and pictures of what they cost."""

from __future__ import annotations

import json
import re
import textwrap
from html import escape
from pathlib import Path

from links import Site
from programs import Programs

DENSE_HEAD = """# Algorithms

Each algorithm is one file, whose own top comment stands here. Costs are for P ranks and vectors of
n bytes: a message takes *alpha* and *beta* for each byte, reducing a byte takes *gamma*. The
pictures are drawn by `pith-explain --svg` from these cost functions: 8 ranks, each on a host of its
own with a link of 1 Gbit/s. Dots are what the library takes before it has measured anything; later
it goes by the times of its calls. `PITH_ALGO` forces one, `pith-explain` tells the costs of any
call on any link, and `pith-sim` runs the algorithms on a cluster that you describe.
"""
SPARSE_HEAD = """# Compressed algorithms

How the elements that a [scheme](compression.md) elects come to all ranks, and how they are chosen.
Each part is one file, whose own top comment stands here. The schemes, as `pith-info --schemes`
lists them:

"""
PICTURE_NOTE = """
What a sum of 1 MiB takes in virtual time by density, on 8 hosts with a rank each and links of
1 Gbit/s, drawn by `pith-sim`: three schemes by each of their exchanges, and the dense algorithms,
which are level lines. Dots are the shortest.

![Time by density](pictures/compressed.svg)
"""
# Those that are called by others rather than chosen come last.
SPARSE_ORDER = ("topk", "topk_whole", "ar_topk", "exdyna", "deft", "random_k", "low_rank", "coded",
                "dense", "by_host")
# What chooses the elements, of which the exchanges say nothing.
CHOOSING = ("topk_selector", "exdyna_partition", "exdyna_threshold", "deft/plan", "density_control")
CLUSTER = {"hosts": 8, "ranks_per_host": 1, "between": "1g"}


def top_comment(text: str) -> str:
    """Of a C++ file, without its slashes."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:].rstrip())
    return "\n".join(lines)


def as_markdown(comment: str) -> str:
    """Paragraphs, and what is indented further, as it stands: pictures and tables."""
    blocks: list[tuple[bool, list[str]]] = []
    for line in comment.splitlines():
        is_picture = line.startswith("  ") or (not line and bool(blocks) and blocks[-1][0])
        if line and blocks and blocks[-1][0] == is_picture and blocks[-1][1][-1:] != [""]:
            blocks[-1][1].append(line)
        elif line and is_picture and blocks and blocks[-1][0]:
            blocks[-1][1].append(line)  # a picture with an empty line
        elif line:
            blocks.append((is_picture, [line]))
        elif blocks:
            blocks[-1][1].append("")
    return "\n\n".join(_picture(lines) if is_picture else _paragraphs(lines)
                       for is_picture, lines in blocks)


def _picture(lines: list[str]) -> str:
    text = textwrap.dedent("\n".join(lines)).rstrip()
    return f"```text\n{text}\n```"


def _paragraphs(lines: list[str]) -> str:
    text = " ".join(line.strip() for line in lines).strip()
    pieces = re.split(r"(`[^`]*`)", text)  # code stands as it is
    for at in range(0, len(pieces), 2):
        pieces[at] = re.sub(r"([*_\[\]])", r"\\\1", escape(pieces[at], quote=False))
    escaped = "".join(pieces)
    return re.sub(r"(?:(?<=^)|(?<=\. ))(Costs?|Wins|Needs)\b", r"**\1**", escaped)


def dense_page(site: Site, programs: Programs, pictures: Path) -> str:
    by_collective: dict[str, list[str]] = {}
    for line in programs.run("pith-info", "--algorithms").splitlines():
        collective, _, name = line.partition(":")
        if name:
            by_collective.setdefault(collective, []).append(name)
    parts = [DENSE_HEAD]
    for collective, names in by_collective.items():
        parts.append(f"## {collective}\n")
        if len(names) > 1:
            picture = pictures / f"{collective}.svg"
            programs.run("pith-explain", "--collective", collective, "--ranks", "8", "--hosts", "8",
                         "--link", "1g", "--table", "64:64M", "--svg", str(picture))
            parts.append(f"![Cost of {collective} by size](pictures/{picture.name})\n")
        # A scan and an exclusive one are told in one file.
        source = "scan" if collective == "exscan" else collective
        parts += [_section(site, name, f"collectives/dense/{source}_{name}.cpp")
                  for name in names]
    return "\n".join(parts)


def sparse_page(site: Site, programs: Programs, pictures: Path) -> str:
    rows = ["| scheme | what is sent | keys |", "|---|---|---|"]
    for line in programs.run("pith-info", "--schemes").splitlines():
        name, told = line.split(None, 1)
        summary, _, keys = told.partition("; ")
        rows.append(f"| `{name}` | {summary} | {keys.removeprefix('keys ')} |")
    cluster = pictures.parent / "cluster.json"
    cluster.write_text(json.dumps(CLUSTER), encoding="utf-8")
    programs.run("pith-sim", str(cluster), "--bytes", "1M", "--compress", "topk", "--compress",
                 "ar-topk", "--compress", "exdyna", "--densities", "0.001,0.003,0.01,0.03,0.1",
                 "--svg", str(pictures / "compressed.svg"))
    cluster.unlink()
    folder = site.root / "collectives" / "sparse"
    found = {path.stem.removeprefix("allreduce_") for path in folder.glob("allreduce_*.cpp")}
    order = [name for name in SPARSE_ORDER if name in found] + sorted(found - set(SPARSE_ORDER))
    sending = [_section(site, name, f"collectives/sparse/allreduce_{name}.cpp") for name in order]
    choosing = [_section(site, name, f"src/compress/{name}.hpp") for name in CHOOSING]
    return "\n".join([SPARSE_HEAD + "\n".join(rows), PICTURE_NOTE,
                      "## How elements come to all ranks\n", *sending,
                      "## How they are chosen\n", *choosing])


def _section(site: Site, name: str, path: str) -> str:
    comment = top_comment((site.root / path).read_text(encoding="utf-8"))
    if not comment:
        raise RuntimeError(f"{path} has no comment on top")
    return (f"### {name}\n\n{as_markdown(comment)}\n\n"
            f"Source: [{path}]({site.source(path)})\n")
