#!/usr/bin/env python3
"""What makes the documentation's site, without MkDocs. Usage: test_site_parts.py SOURCE"""
import pathlib
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(SOURCE / "docs" / "site"))
from algorithms_pages import CHOOSING, as_markdown, top_comment  # noqa: E402
from links import BadLink, Site, replace_links  # noqa: E402
from settings_page import settings_page  # noqa: E402

COMMENT = """\
// Ring [Patarasu, Yuan]: around
// `all_ranks`, a < b.
//
//  0 --> 1       prose
//   |
//
//   2
//
// Cost: 2 alpha. Wins for long *vectors*.
#include <cmath>
"""


class Programs:
    """Prints what a program would."""

    def __init__(self, text):
        self.text = text

    def run(self, *_):
        return self.text


class Comments(unittest.TestCase):
    def test_markdown(self):
        self.assertEqual(as_markdown(top_comment(COMMENT)), "\n\n".join([
            "Ring \\[Patarasu, Yuan\\]: around `all_ranks`, a &lt; b.",
            "```text\n0 --> 1       prose\n |\n\n 2\n```",
            "**Cost**: 2 alpha. **Wins** for long \\*vectors\\*."]))

    def test_every_algorithm_has_one(self):
        files = [path for folder in ("dense", "sparse")
                 for path in (SOURCE / "collectives" / folder).glob("*_*.cpp")
                 if path.name.startswith(("all", "barrier", "broadcast", "reduce"))]
        files += [SOURCE / "src" / "compress" / f"{name}.hpp" for name in CHOOSING]
        self.assertGreater(len(files), 25)
        for path in files:
            self.assertTrue(top_comment(path.read_text("utf-8")), path)


class Links(unittest.TestCase):
    def test_code_is_left_alone(self):
        text = "[a](b) `[c](d)`\n```c\n[e](f)\n```\n[`g`](h)"
        self.assertEqual(replace_links(text, str.upper),
                         "[a](B) `[c](d)`\n```c\n[e](f)\n```\n[`g`](H)")

    def test_targets(self):
        site = Site(SOURCE)
        for to, expected in (("python.md#arrays", "python.md#arrays"), ("#arrays", "#arrays"),
                             ("https://a.b/c", "https://a.b/c"), ("settings.md", "settings.md"),
                             ("../include/compression.md", "compression.md"),
                             ("../include/pith/pith.h", "source/include/pith/pith.h.md"),
                             ("../tools/python", "source/tools/python/README.md.md")):
            self.assertEqual(site.target("docs/start.md", to), expected)
        self.assertEqual(site.sources, {"include/pith/pith.h", "tools/python/README.md"})
        self.assertEqual(site.target("src/nccl/refused.md", "environment.md"),
                         "nccl-environment.md")
        with self.assertRaisesRegex(BadLink, "docs/start.md: link to ../gone.md"):
            site.target("docs/start.md", "../gone.md")

    def test_pages(self):
        site = Site(SOURCE)
        site.add_files()
        self.assertLessEqual({"index.md", "start.md", "compression.md"}, set(site.pages))
        self.assertNotIn("README.md", site.pages)
        site.add_sources()
        header = site.pages["source/include/pith/pith.h.md"]
        self.assertTrue(header.startswith("# include/pith/pith.h\n\n~~~~ c\n/* Pith"), header[:99])


class Settings(unittest.TestCase):
    def test_table(self):
        page = settings_page(Programs("setting value origin scope meaning\n"
                                      "PITH_A - default agreed one|two, a*b\n"
                                      "PITH_LONG_ONE auto default local three\n"))
        self.assertIn("| `PITH_A` |  | agreed | one\\|two, a\\*b |\n", page)
        self.assertIn("| `PITH_LONG_ONE` | `auto` | local | three |\n", page)

    def test_surprises(self):
        for text in ("", "other words\n", "setting value origin scope meaning\n"
                                          "PITH_A 1 environment local one\n"):
            with self.assertRaises(RuntimeError):
                settings_page(Programs(text))


if __name__ == "__main__":
    unittest.main(verbosity=0)
