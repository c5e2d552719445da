#!/usr/bin/env python3
"""`./pith docs`, and then every link of the site: it leads to a page, and to a place in it, of the
site itself; nothing is loaded from elsewhere. Usage: test_site.py SOURCE"""
import functools
import html.parser
import os
import pathlib
import re
import subprocess
import sys
import unittest
import urllib.parse

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
SITE = SOURCE / "build" / "site"


class Page(html.parser.HTMLParser):
    """Links, what is loaded, and the places that links can lead to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.places = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.places.update(filter(None, (attrs.get("id"), attrs.get("name"))))
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        elif attrs.get("src"):
            self.loaded.append(attrs["src"])
        elif tag == "link" and attrs.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(attrs["href"])


@functools.cache
def read(path):
    return Page(path.read_text(encoding="utf-8"))


def is_elsewhere(target):
    return bool(re.match(r"(?:[a-z]+:)?//|[a-z]+:", target))


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = subprocess.run([SOURCE / "pith", "docs"], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout[-3000:])
        cls.pages = [path for path in SITE.rglob("*.html") if path.name != "404.html"]

    def test_pages(self):
        names = {os.path.relpath(path, SITE) for path in self.pages}
        wanted = {page.with_suffix(".html").name for page in (SOURCE / "docs").glob("*.md")}
        wanted = wanted - {"README.html"} | {"settings.html", "algorithms.html", "compressed.html",
                                             "compression.html", "nccl-environment.html"}
        self.assertLessEqual(wanted, names)

    def test_links(self):
        seen = 0
        for path in self.pages:
            for target in read(path).links:
                if not is_elsewhere(target):
                    seen += 1
                    with self.subTest(target, page=os.path.relpath(path, SITE)):
                        self.check_link(path, target)
        self.assertGreater(seen, 500)

    def check_link(self, path, target):
        name, part = urllib.parse.urldefrag(urllib.parse.unquote(target))
        to = (path.parent / name).resolve() if name else path
        self.assertTrue(to.is_file(), "not there")
        self.assertTrue(to.is_relative_to(SITE))
        if part and to.suffix == ".html" and part != "__skip":
            self.assertIn(part, read(to).places)

    def test_nothing_is_loaded_from_elsewhere(self):
        for path in self.pages:
            for target in read(path).loaded:
                with self.subTest(target, page=path.name):
                    self.assertFalse(is_elsewhere(target) and not target.startswith("data:"))
                    file = (path.parent / urllib.parse.urlsplit(target).path).resolve()
                    self.assertTrue(target.startswith("data:") or file.is_file())

    def test_what_is_made(self):
        text = (SITE / "settings.html").read_text(encoding="utf-8")
        table = (SOURCE / "src" / "settings" / "settings.cpp").read_text(encoding="utf-8")
        names = re.findall(r'SettingInfo\{"([A-Z_]+)"', table)
        self.assertGreater(len(names), 30)
        for name in names:
            self.assertTrue(f"<code>PITH_{name}</code>" in text, name)
        text = (SITE / "algorithms.html").read_text(encoding="utf-8")
        begins = ("all", "barrier", "broadcast", "reduce", "scatter", "gather")
        for path in (SOURCE / "collectives" / "dense").glob("*.cpp"):
            # What others include is a part of theirs.
            if path.name.startswith(begins) and not path.with_suffix(".hpp").exists():
                self.assertTrue(f"collectives/dense/{path.name}" in text, path.name)
        pictures = re.findall(r'src="(pictures/[^"]+\.svg)"', text)
        self.assertGreaterEqual(len(pictures), 5)
        for picture in pictures:
            self.assertTrue("<svg" in (SITE / picture).read_text(encoding="utf-8"), picture)
        text = (SITE / "compressed.html").read_text(encoding="utf-8")
        self.assertTrue('src="pictures/compressed.svg"' in text and "exdyna" in text)
        self.assertTrue("src/compress/topk_selector.hpp" in text)


if __name__ == "__main__":
    unittest.main(verbosity=0)
