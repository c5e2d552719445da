"""Draws what a pith.Recorder has written: pith.report("run.jsonl", "run.html"), or the command

python -m pith.report run.jsonl
"""

from __future__ import annotations

import os

from pith.report.page import page_of
from pith.report.recording import Recording, Step, read

__all__ = ["Recording", "Step", "read", "report"]


def report(stats: str | os.PathLike[str] | Recording, path: str | os.PathLike[str]) -> None:
    """Writes a page of pictures to `path`.

    stats: the file of a pith.Recorder, or what `read` has made of it.
    """
    recording = stats if isinstance(stats, Recording) else read(stats)
    page = page_of(recording)
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)
