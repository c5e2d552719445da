"""Links between files of the repository, as links between pages of the site."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

# Manuals that lie beside what they describe, and their pages.
ELSEWHERE = {
    "include/compression.md": "compression.md",
    "src/nccl/environment.md": "nccl-environment.md",
    "src/nccl/refused.md": "nccl-refused.md",
}
LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".cpp": "cpp", ".hpp": "cpp", ".sh": "bash",
             ".md": "markdown"}


class BadLink(Exception):
    pass


def replace_links(text: str, change: Callable[[str], str]) -> str:
    """The text with every link's target changed, except in code."""
    pieces = re.split(r"(^```.*?^```$|`[^`\n]*`)", text, flags=re.M | re.S)
    for at in range(0, len(pieces), 2):
        # A link's name may be code, so brackets alone tell where a target begins.
        pieces[at] = re.sub(r"\]\(([^()\s]+)\)", lambda match: f"]({change(match[1])})", pieces[at])
    return "".join(pieces)


class Site:
    """The pages so far, by their paths in the site, and the sources that they link to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pages: dict[str, str] = {}
        self.sources: set[str] = set()
        self._page_of = dict(ELSEWHERE)
        for path in sorted((root / "docs").glob("*.md")):
            if path.name != "README.md":
                self._page_of[f"docs/{path.name}"] = path.name

    def add_files(self) -> None:
        for origin, page in self._page_of.items():
            text = (self.root / origin).read_text(encoding="utf-8")
            self.pages[page] = replace_links(text, lambda to, at=origin: self.target(at, to))

    def add_sources(self) -> None:
        for path in sorted(self.sources):
            text = (self.root / path).read_text(encoding="utf-8")
            language = LANGUAGES.get(Path(path).suffix, "text")
            self.pages[self.source_page(path)] = f"# {path}\n\n~~~~ {language}\n{text}~~~~\n"

    def target(self, origin: str, to: str) -> str:
        """Where a link in the file `origin` of the repository leads in the site."""
        if re.match(r"[a-z][a-z0-9+.-]*:", to) or to.startswith("#"):
            return to
        name, _, part = to.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(origin), name))
        part = f"#{part}" if part else ""
        if path in self._page_of:
            return self._page_of[path] + part
        # A page that is made has its place beside the others in docs/.
        if path.startswith("docs/") and not (self.root / path).exists():
            return path.removeprefix("docs/") + part
        if (self.root / path / "README.md").is_file():
            path += "/README.md"
        if not (self.root / path).is_file():
            raise BadLink(f"{origin}: link to {to}, which is not there")
        return self.source(path)

    def source(self, path: str) -> str:
        """A link to the page of a file of the repository, which will be made."""
        self.sources.add(path)
        return self.source_page(path)

    @staticmethod
    def source_page(path: str) -> str:
        return f"source/{path}.md"
