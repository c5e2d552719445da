#!/usr/bin/env python3
"""The pages of docs/: every link leads somewhere, every block of code is of a kind that some test
runs, and those in C compile and print what the page says. Usage: test_pages.py SOURCE BUILD"""
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
PAGES = sorted((SOURCE / "docs").glob("*.md"))

MADE = {"settings.md", "algorithms.md", "compressed.md"}  # by docs/site
# Who runs the blocks of a language. Blocks without a language are not allowed.
RUN_BY = {"python": "tests/python", "c": "this test", "text": "nobody: it is output, or a formula"}


def prose(text):
    """Without code, of which the lines are kept."""
    return re.sub(r"(?ms)^```.*?^```$|`[^`\n]*`", lambda code: re.sub(r"[^\n]", "x", code[0]), text)


def anchors(path):
    text = re.sub(r"(?ms)^```.*?^```$", "", path.read_text("utf-8"))
    headings = re.findall(r"(?m)^#+ +(.*)$", text)
    return {re.sub(r"[^\w -]", "", one.strip().lower()).replace(" ", "-") for one in headings}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Pages(unittest.TestCase):
    def test_links(self):
        seen = 0
        for page in PAGES:
            for target in re.findall(r"\]\(([^()\s]+)\)", prose(page.read_text("utf-8"))):
                with self.subTest(target, page=page.name):
                    seen += 1
                    self.check_link(page, target)
        self.assertGreater(seen, 30)

    def check_link(self, page, target):
        if re.match(r"[a-z]+:", target):
            return
        name, _, part = target.partition("#")
        if name in MADE:
            self.assertEqual(part, "")
            return
        path = (page.parent / name).resolve() if name else page
        self.assertTrue(path.exists(), "not there")
        self.assertTrue(path.is_relative_to(SOURCE))
        if part:
            self.assertIn(part, anchors(path))

    def test_every_page_is_in_the_menu(self):
        menu = (SOURCE / "docs" / "mkdocs.yml").read_text("utf-8")
        for page in PAGES:
            if page.name != "README.md":
                self.assertIn(f": {page.name}\n", menu)

    def test_blocks_have_a_language_that_is_run(self):
        for page in PAGES:
            fences = re.findall(r"(?m)^( *)```(.*)$", page.read_text("utf-8"))
            for number, (indent, language) in enumerate(fences):
                with self.subTest(language, page=page.name):
                    self.assertEqual(indent, "", "tests see blocks that are not indented")
                    self.assertIn(language, [""] if number % 2 else RUN_BY)

    def test_c(self):
        seen = 0
        output = r"(?:(?:(?!^```).)*?prints\n\n```text\n(.*?)^```$)?"
        for page in PAGES:
            text = page.read_text("utf-8")
            for code, told in re.findall(r"(?ms)^```c\n(.*?)^```$" + output, text):
                with self.subTest(page=page.name):
                    seen += 1
                    self.assertTrue(told, "no output follows it")
                    self.assertEqual(self.run_c(code), told)
        self.assertGreater(seen, 0)

    def run_c(self, code):
        """What two ranks print."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "prog"
            program.with_suffix(".c").write_text(code, encoding="utf-8")
            compiler = os.environ.get("CC") or shutil.which("cc")
            built = subprocess.run(
                [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", f"{program}.c", "-o", program,
                 f"-I{SOURCE / 'include'}", f"-L{BUILD / 'lib'}", "-lpith"],
                capture_output=True, text=True, check=False)
            self.assertEqual(built.returncode, 0, built.stderr)
            shared = {**os.environ, "LD_LIBRARY_PATH": str(BUILD / "lib"), "PITH_SIZE": "2",
                      "PITH_ROOT": f"127.0.0.1:{free_port()}", "PITH_IFNAME": "lo"}
            ranks = [subprocess.Popen([program], env=shared | {"PITH_RANK": str(rank)}, text=True,
                                      stdout=subprocess.PIPE) for rank in range(2)]
            told = [rank.communicate(timeout=50)[0] for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [0, 0])
        return "".join(told)


if __name__ == "__main__":
    unittest.main(verbosity=0)
