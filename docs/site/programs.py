"""The project's own programs, run as if no setting were made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class Programs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, name: str, *arguments: str) -> str:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PITH_")}
        done = subprocess.run([str(self._folder / name), *arguments], env=kept, text=True,
                              capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{name} {' '.join(arguments)} ended with {done.returncode}: "
                               f"{done.stderr.strip()}")
        return done.stdout
