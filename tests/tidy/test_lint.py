#!/usr/bin/env python3
"""lint.py in a small repository, with a stand-in for clang-tidy: which files it is shown."""
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

# Does not like what has "bad" in it.
CLANG_TIDY = '#!/bin/sh\nfor source; do :; done\necho "shown ${source##*/}"\n! grep bad "$source"\n'


@unittest.skipUnless(shutil.which("git"), "needs git")
class Repository(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lint-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.write("bin/clang-tidy-16", CLANG_TIDY)
        (self.root / "bin/clang-tidy-16").chmod(0o755)
        self.write(".gitignore", "/build/\n/bin/\n")
        for name in ("one", "two"):
            self.write(f"src/{name}.cpp", '#include "one.hpp"\n' if name == "one" else "")
        self.write("src/one.hpp", "")
        self.sources = [str(source) for source in self.root.glob("src/*.cpp")]
        self.write_commands(self.sources)
        self.git("init", "-q", "-b", "main")
        self.commit()

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def write_commands(self, files):
        entries = [{"directory": str(self.root), "command": f"c++ -I{self.root}/src -c {file}",
                    "file": file} for file in files]
        self.write("build/compile_commands.json", json.dumps(entries))

    def git(self, *arguments):
        subprocess.run(["git", "-C", str(self.root), "-c", "user.name=n", "-c", "user.email=e",
                        *arguments], check=True, capture_output=True)

    def commit(self):
        self.git("add", ".")
        self.git("commit", "-q", "-m", "change")

    def lint(self, *arguments):
        said = io.StringIO()
        path = f"{self.root}/bin:{os.environ['PATH']}"
        with unittest.mock.patch.dict(os.environ, PATH=path, PITH_TEST_FULL=""), \
             contextlib.redirect_stdout(said):
            status = lint.main([str(self.root / "build"), "--root", str(self.root), *arguments])
        self.said = said.getvalue()
        return status

    def test_what_changed(self):
        self.assertEqual(self.lint("--or-skip"), lint.SKIPPED)
        self.git("switch", "-q", "-c", "branch")
        self.write("src/two.cpp", "int bad;\n")
        self.commit()
        self.assertEqual(self.lint(), 1)
        self.assertIn("int bad;", self.said)
        self.assertNotIn("shown one.cpp", self.said)
        self.write("src/two.cpp", "")
        self.write("src/one.hpp", "// more\n")
        self.commit()
        self.assertEqual(self.lint(), 0)
        self.write("src/one.cpp", "int bad;\n")
        self.write("src/two.cpp", "int good;\n")
        self.assertEqual(self.lint("--most", "1", "--or-skip"), lint.SKIPPED)

    def test_a_group(self):
        group = "build/Unity/unity_0_cxx.cxx"
        self.write(group, "".join(f'#include "{source}"\n' for source in self.sources))
        self.write_commands([str(self.root / group)])
        self.write("src/two.cpp", "int bad;\n")
        self.assertEqual(self.lint("--base", "HEAD"), 1)
        self.assertIn("int bad;", self.said)
        self.assertNotIn("shown one.cpp", self.said)
        commands = json.loads((self.root / "build/lint/compile_commands.json").read_text("utf-8"))
        self.assertEqual(sorted(entry["file"] for entry in commands), sorted(self.sources))


if __name__ == "__main__":
    unittest.main()
