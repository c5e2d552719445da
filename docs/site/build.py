#!/usr/bin/env python3
"""Makes the site of the documentation. Usage: build.py ROOT PROGRAMS BUILD

PROGRAMS has pith-info, pith-explain and pith-sim; BUILD gets the folders docs and site."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from algorithms_pages import dense_page, sparse_page
from links import Site
from programs import Programs
from settings_page import settings_page


def write_pages(root: Path, programs: Programs, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    pictures = folder / "pictures"
    pictures.mkdir(parents=True)
    shutil.copy(root / "docs/site/site.css", folder)
    site = Site(root)
    site.add_files()
    site.pages["settings.md"] = settings_page(programs)
    site.pages["algorithms.md"] = dense_page(site, programs, pictures)
    site.pages["compressed.md"] = sparse_page(site, programs, pictures)
    site.add_sources()
    for name, text in site.pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main() -> int:
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    root, bin_folder, build = (Path(name).resolve() for name in sys.argv[1:])
    pages, site, settings = build / "docs/pages", build / "site", build / "docs/mkdocs.yml"
    write_pages(root, Programs(bin_folder), pages)
    inherited = os.path.relpath(root / "docs/mkdocs.yml", settings.parent)
    settings.write_text(f"INHERIT: {inherited}\ndocs_dir: {pages}\nsite_dir: {site}\n",
                        encoding="utf-8")
    # Links that lead nowhere are warnings, and with --strict errors.
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--clean", "--config-file",
         str(settings)], check=False, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}).returncode


if __name__ == "__main__":
    sys.exit(main())
