"""The page of all settings, from what `pith-info --settings` prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from programs import Programs

HEAD = """# Settings

Environment variables change them; a variable `PITH_...` that is no setting causes a warning. This
list is what `pith-info --settings` prints, which also tells the value that a setting has, and where
it comes from. *Agreed* settings must be the same on all ranks, and a start with different ones ends
with an error; *local* ones may differ.

| setting | default | scope | meaning |
|---|---|---|---|
"""


def settings_of(programs: Programs) -> Iterator[tuple[str, str, str, str]]:
    """Name, default, scope and meaning of each."""
    lines = programs.run("pith-info", "--settings").splitlines()
    if not lines or lines[0].split() != ["setting", "value", "origin", "scope", "meaning"]:
        raise RuntimeError("pith-info --settings begins with a line that settings_page.py does not "
                           "know")
    for line in lines[1:]:
        name, value, origin, scope, meaning = line.split(None, 4)
        if origin != "default":
            raise RuntimeError(f"{name} is not at its default: {origin}")
        yield name, value, scope, meaning


def settings_page(programs: Programs) -> str:
    rows = [f"| `{name}` | {'' if value == '-' else f'`{value}`'} | {scope} | {_cell(meaning)} |"
            for name, value, scope, meaning in settings_of(programs)]
    return HEAD + "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"([|*_\\])", r"\\\1", escape(text, quote=False))
