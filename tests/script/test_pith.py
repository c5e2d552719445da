#!/usr/bin/env python3
"""`./pith` as a script, in a folder with stand-ins (fake.sh) for all that installs, compiles or
tests: that each command calls what it is there for, and ends with the status of what failed."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAKE = pathlib.Path(__file__).resolve().parent / "fake.sh"
SYSTEM = ("bash", "cat", "cp", "dirname", "env", "find", "grep", "mkdir", "mv", "nproc", "rm",
          "sed", "sort", "true", "xargs")
FAKES = ("apt-get", "c++", "ccache", "clang++-16", "clang-16", "cmake", "cpack", "ctest",
         "dpkg-query", "ninja", "python3", "setarch", "sudo")


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="script-")
        self.addCleanup(folder.cleanup)
        self.here = pathlib.Path(folder.name).resolve()
        self.bin = self.here / "bin"
        self.bin.mkdir()
        shutil.copy(ROOT / "pith", self.here)
        for name in SYSTEM:
            (self.bin / name).symlink_to(shutil.which(name))
        for name in FAKES:
            shutil.copy(FAKE, self.bin / name)

    def pith(self, *arguments):
        """The status; self.log is then how it called the others, a line each."""
        log = self.here / "log"
        log.write_text("", encoding="utf-8")
        done = subprocess.run([str(self.here / "pith"), *arguments], cwd=self.here, text=True,
                              env={"PATH": str(self.bin), "WORLD": str(self.here)}, timeout=100,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        self.log = log.read_text(encoding="utf-8")
        self.output = done.stdout
        return done.returncode

    def test_build(self):
        (self.here / "lacks-ccache").touch()
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertRegex(self.log, r"(?m)^apt-get install .*\bccache$")
        self.assertRegex(self.log, r"(?m)^cmake .*-DPITH_TESTS=OFF")
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertNotIn("apt-get", self.log)
        (self.here / "fails-cmake.build").touch()
        self.assertNotEqual(self.pith("build"), 0)

    def test_test(self):
        for arguments, suffix, trees in (((), "", 3), (("--full",), "(_full)?", 4)):
            self.assertEqual(self.pith("test", *arguments), 0, self.output)
            for tree, kind in (("asan", "address"), ("tsan", "thread")):
                self.assertIn(f"-L ^{tree}{suffix}$", self.log)
                cache = (self.here / f"build-{tree}" / "CMakeCache.txt").read_text(encoding="utf-8")
                self.assertIn(kind, cache)
            self.assertEqual(self.log.count("\nctest."), trees)
            self.assertEqual("-LE ^full$" in self.log, not arguments)
        (self.here / "fails-ctest.build-asan").touch()  # costs no later part
        self.assertEqual(self.pith("test"), 1)
        self.assertIn("\nctest.build ", self.log)
        self.assertIn("address", self.output.splitlines()[-1])

    def test_wanted_packages(self):
        """The browser, without which the tests run, too."""
        (self.here / "lacks-chromium").touch()
        self.assertEqual(self.pith("test"), 0, self.output)
        self.assertNotIn("chromium", self.log)
        (self.here / "fails-apt-get").touch()
        self.assertEqual(self.pith("test", "--full"), 0, self.output)
        self.assertIn("chromium: not installed", self.output)
        (self.here / "fails-apt-get").unlink()
        self.assertEqual(self.pith("test", "--full"), 0, self.output)
        self.assertRegex(self.log, r"(?m)^apt-get install .*\bchromium$")

    def test_bench(self):
        (self.here / "lacks-python3-matplotlib").touch()
        self.assertEqual(self.pith("bench", "--quick"), 0, self.output)
        self.assertRegex(self.log, r"(?m)^apt-get install .*\bpython3-matplotlib$")
        self.assertRegex(self.log, r"(?m)^python3 .*/perf/compare.py --case all "
                                   r"--results .*/perf/results --quick$")
        (self.here / "lacks-python3-matplotlib").touch()
        (self.here / "fails-apt-get").touch()
        self.assertEqual(self.pith("bench"), 0, self.output)
        self.assertIn("python3-matplotlib: not installed, so there are no plots", self.output)

    def test_wheel(self):
        (self.here / "lacks-python3-venv").touch()
        self.assertEqual(self.pith("wheel"), 0, self.output)
        self.assertRegex(self.log, r"(?m)^apt-get install .*\bpython3-venv$")
        self.assertRegex(self.log, r"(?m)^cmake.build --build .* --target pith$")
        self.assertRegex(self.log, r"(?m)^python -m pip wheel .*tools/python$")
        self.assertRegex(self.log, r"(?m)^python .*name_wheel.py .*build/wheels$")
        self.assertEqual(self.pith("wheel"), 0, self.output)
        self.assertNotIn("-m venv", self.log)
        (self.here / "fails-python3").touch()
        self.assertEqual(self.pith("wheel"), 1)
        self.assertIn("expected Python 3.11", self.output)

    def test_package(self):
        (self.here / "lacks-help2man").touch()
        self.assertEqual(self.pith("package"), 0, self.output)
        self.assertRegex(self.log, r"(?m)^apt-get install .*\bhelp2man$")
        self.assertRegex(self.log, r"(?m)^cmake .*-DPITH_DEBIAN=ON -DCMAKE_INSTALL_PREFIX=/usr ")
        self.assertRegex(self.log, r"(?m)^cpack .*/build-package/.* -B .*/build/packages$")
        (self.here / "fails-cpack").touch()
        self.assertNotEqual(self.pith("package"), 0)

    def test_docs(self):
        self.assertEqual(self.pith("docs"), 0, self.output)
        self.assertRegex(self.log, r"(?m)^cmake.build --build .* --target pith-explain$")
        self.assertRegex(self.log, r"(?m)^python -m pip install .*docs/requirements.txt$")
        self.assertRegex(self.log, r"(?m)^python -B .*docs/site/build.py .*/build/bin .*/build$")
        (self.here / "fails-python").touch()
        self.assertNotEqual(self.pith("docs"), 0)

    def test_clean(self):
        for name in ("build", "build-asan", "build-mine", "src"):
            (self.here / name).mkdir()
        self.assertEqual(self.pith("clean"), 0, self.output)
        left = {path.name for path in self.here.iterdir()}
        self.assertEqual(left - {"bin", "log", "pith"}, {"build-mine", "src"})

    def test_help_and_mistakes(self):
        self.assertEqual(self.pith("help"), 0, self.output)
        for command in re.findall(r"^    (\w+)\) run_", (ROOT / "pith").read_text("utf-8"), re.M):
            self.assertRegex(self.output, rf"(?m)^  {command} ")
        for arguments in (("tset",), ("test", "--fast"), ("build", "quickly"), ("docs", "nicely"),
                          ("package", "rpm"), ("wheel", "python3", "python4")):
            self.assertEqual(self.pith(*arguments), 1)
            self.assertEqual(self.log, "")
            self.assertIn(f"'{arguments[-1]}'", self.output)


if __name__ == "__main__":
    unittest.main()
