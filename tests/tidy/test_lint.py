#!/usr/bin/env python3
"""lint.py in small repositories, with a stand-in for clang-tidy: which files it is shown."""
import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import unittest.mock

import lint

# Writes down what it is shown, and does not like what has "bad" in it.
CLANG_TIDY = """#!/bin/sh
for source; do :; done
echo "$source" >> "$SHOWN"
! grep bad "$source"
"""


@unittest.skipUnless(shutil.which("git"), "needs git")
class Repository(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lint-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve() / "tree"
        self.build = self.root / "build"
        self.bin = self.root.parent / "bin"
        self.shown = self.root.parent / "shown"
        for made in (self.root, self.build, self.bin):
            made.mkdir()
        (self.bin / "clang-tidy-16").write_text(CLANG_TIDY, encoding="utf-8")
        (self.bin / "clang-tidy-16").chmod(0o755)
        self.write("build/tests/headers/lonely.cpp", '#include "src/lonely.hpp"\n')
        self.write(".gitignore", "/build/\n")
        self.write("src/one.cpp", '#include "one.hpp"\n')
        self.write("src/two.cpp", '#include "core/deep.hpp"\n#include <vector>\n')
        self.write("src/one.hpp", '#include "core/deep.hpp"\n')
        self.write("src/core/deep.hpp", "")
        self.write("src/lonely.hpp", "")
        self.commands("src/one.cpp", "src/two.cpp", "build/tests/headers/lonely.cpp")
        self.git("init", "-q", "-b", "main")
        self.commit()

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def commands(self, *sources):
        command = f"c++ -I{self.root} -I{self.root}/src -fcoroutines -c"
        entries = [{"directory": str(self.build), "command": f"{command} {self.root / source}",
                    "file": str(self.root / source)} for source in sources]
        self.write("build/compile_commands.json", json.dumps(entries))

    def git(self, *arguments):
        subprocess.run(["git", "-C", str(self.root), "-c", "user.name=n", "-c", "user.email=e",
                        *arguments], check=True, capture_output=True)

    def commit(self):
        self.git("add", ".")
        self.git("commit", "-q", "--allow-empty", "-m", "change")

    def lint(self, *arguments, path=None, full=False):
        """The status; self.saw is then what clang-tidy was shown."""
        self.shown.write_text("", encoding="utf-8")
        variables = {"PATH": path or f"{self.bin}:{os.environ['PATH']}", "SHOWN": str(self.shown),
                     "PITH_TEST_FULL": "1" if full else ""}
        said = io.StringIO()
        with unittest.mock.patch.dict(os.environ, variables), contextlib.redirect_stdout(said):
            status = lint.main([str(self.build), "--root", str(self.root), "--jobs", "1",
                                *arguments])
        self.said = said.getvalue()
        self.saw = self.shown.read_text(encoding="utf-8").split()
        return status

    def test_sources_that_changed(self):
        self.assertEqual(self.lint("--or-skip"), lint.SKIPPED)
        self.assertRegex(self.said, "^lint: skipped: there is no commit to compare")
        self.git("switch", "-q", "-c", "branch")
        for name in ("one", "two"):
            self.write(f"src/{name}.cpp", f"int {name};\n")
            self.commit()
        self.assertEqual(self.lint(), 0)
        self.assertEqual(self.saw, ["src/one.cpp", "src/two.cpp"])
        self.assertEqual(self.lint("--base", "HEAD~1"), 0)
        self.assertEqual(self.saw, ["src/two.cpp"])

    def test_headers_by_a_source_that_includes_them(self):
        for header, source in (("src/one.hpp", "src/one.cpp"),
                               ("src/core/deep.hpp", "src/two.cpp"),
                               ("src/lonely.hpp", "build/tests/headers/lonely.cpp")):
            self.commit()
            self.write(header, (self.root / header).read_text(encoding="utf-8") + "// more\n")
            self.commit()
            self.assertEqual(self.lint(), 0)
            self.assertEqual(self.saw, [source])

    def test_breaches_are_shown_and_fail(self):
        self.commit()
        self.write("src/one.cpp", "int bad;\n")
        self.write("src/two.cpp", "int good;\n")
        self.write("src/ucx.cpp", "int ucx;\n")
        self.assertEqual(self.lint(), 1)
        self.assertEqual(len(self.saw), 2)
        self.assertIn("int bad;", self.said)
        self.assertIn("not content with 1 of them", self.said)
        self.assertIn("not looked at: src/ucx.cpp", self.said)

    def test_many_files_are_left_to_the_full_run(self):
        self.commit()
        self.write("src/one.cpp", "int one;\n")
        self.write("src/two.cpp", "int two;\n")
        self.assertEqual(self.lint("--most", "1"), lint.SKIPPED)
        self.assertRegex(self.said, "^lint: skipped: 2 files changed")
        self.assertEqual(self.lint("--most", "1", full=True), 0)
        self.assertEqual(len(self.saw), 2)


if __name__ == "__main__":
    unittest.main()
