#!/usr/bin/env python3
"""`./pith` as a script: what it installs, configures, builds and runs, and how it ends.

A copy of it runs in a temporary folder with a PATH that holds nothing but the few system tools it
may use and stand-ins (fake.sh) for all that would install, compile or test.
"""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAKE = pathlib.Path(__file__).resolve().parent / "fake.sh"
SYSTEM = ("bash", "cat", "dirname", "env", "find", "grep", "mkdir", "mv", "nproc", "rm", "sed",
          "sort", "true", "xargs")
FAKES = ("apt-cache", "apt-get", "c++", "ccache", "clang++-16", "clang-16", "cmake", "ctest",
         "dpkg-query", "ninja", "python3", "setarch", "sudo")
TREES = ("build", "build-asan", "build-tsan", "build-fuzz")
SUMMARY = "Total Test time (real) = 1.00 sec"


class Machine(unittest.TestCase):
    """A copy of `pith` in self.tree, and the programs that it finds."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="script-")
        self.addCleanup(folder.cleanup)
        self.here = pathlib.Path(folder.name).resolve()
        self.tree, self.bin = self.here / "tree", self.here / "bin"
        for made in (self.tree, self.bin, self.here / "missing", self.here / "fails"):
            made.mkdir()
        shutil.copy(ROOT / "pith", self.tree)
        for name in SYSTEM:
            (self.bin / name).symlink_to(shutil.which(name))
        self.fake(*FAKES)

    def fake(self, *names, folder=None):
        for name in names:
            shutil.copy(FAKE, (folder or self.bin) / name)

    def remove(self, *names):
        for name in names:
            (self.bin / name).unlink()

    def lack(self, *packages, status=""):
        for package in packages:
            (self.here / "missing" / package).write_text(status, encoding="utf-8")

    def let_fail(self, name, status=1):
        (self.here / "fails" / name).write_text(f"{status}\n", encoding="utf-8")

    def pith(self, *arguments, **variables):
        """Runs it; self.log is then how it called the others. Both outputs go to one place."""
        log = self.here / "log"
        log.write_text("", encoding="utf-8")
        done = subprocess.run(
            [str(self.tree / "pith"), *arguments],
            env={"PATH": str(self.bin), "WORLD": str(self.here), **variables}, cwd=self.here,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=100, check=False)
        self.log = [line.split("\t") for line in log.read_text(encoding="utf-8").splitlines()]
        self.output = done.stdout
        return done.returncode

    def calls(self, *names):
        return [call for call in self.log if call[0] in names]

    def asked(self):
        return [call[-1] for call in self.calls("dpkg-query")]

    def installed(self):
        """What each call of `apt-get install` named."""
        return [[word for word in call[2:] if not word.startswith("-")]
                for call in self.calls("apt-get") if call[1] == "install"]

    def configured(self):
        """Trees that CMake configured, with the settings that it was given."""
        return [(pathlib.Path(call[call.index("-B") + 1]).name,
                 {word[2:] for word in call if word.startswith("-D")})
                for call in self.calls("cmake")]

    def built(self):
        """(tree, target) of each build."""
        return [(call[0].split(".")[1], call[-1]) for call in self.log
                if call[0].startswith("cmake.")]

    def ctests(self):
        """Tree: arguments of its ctest."""
        return {call[0].split(".")[1]: call[1:] for call in self.log
                if call[0].startswith("ctest.")}


class Packages(Machine):
    def test_only_what_is_missing(self):
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertIn("g++", self.asked())
        self.assertEqual(self.calls("apt-get", "apt-cache", "sudo"), [])
        self.lack("ccache")
        self.lack("libfmt-dev", status="config-files")
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertIn("pith: installing Debian packages: ccache libfmt-dev\n", self.output)
        self.assertEqual(self.installed(), [["ccache", "libfmt-dev"]])
        self.assertEqual([tree for tree, _ in self.configured()], ["build"])  # CMake looks again

    def test_installing_fails(self):
        self.lack("ccache")
        self.let_fail("apt-get", 100)
        self.assertEqual(self.pith("build"), 1)
        self.assertEqual([call[1] for call in self.calls("apt-get")],
                         ["install", "update", "install"])
        self.assertEqual(self.log[-1][0], "apt-get")  # and nothing was configured

    def test_without_apt(self):
        self.remove("apt-get", "dpkg-query")
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertRegex(self.output, r"(?m)^pith: .* Debian packages.*: g\+\+ .*libhwloc-dev$")
        self.assertEqual(self.built(), [("build", "all")])
        self.remove("c++")
        self.assertEqual(self.pith("build"), 1)
        self.assertEqual(self.log, [])

    def test_each_message_of_what_is_left_out_names_the_package(self):
        """Whoever has a library installed lacks what is needed to build with it."""
        for folder in ("", "perf", "tools"):
            text = (ROOT / folder / "CMakeLists.txt").read_text(encoding="utf-8")
            messages = re.findall(r'message\(STATUS ((?:"[^"]*"\s*)+)\)', text)
            self.assertTrue(messages, folder)
            for message in messages:
                self.assertRegex(message, r"\((lib\w+|nlohmann-json3)-dev[,)]")


class Commands(Machine):
    def last_line(self):
        return self.output.rstrip().splitlines()[-1]

    def test_build(self):
        self.assertEqual(self.pith("build", JOBS="3"), 0, self.output)
        self.assertEqual(self.calls("cmake.build")[0][3:5], ["--parallel", "3"])
        settings = dict(self.configured())["build"]
        self.assertLessEqual({"CMAKE_BUILD_TYPE=Release", "PITH_TESTS=OFF",
                              "CMAKE_CXX_COMPILER_LAUNCHER=ccache"}, settings)
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertEqual(self.configured(), [])
        self.let_fail("cmake.build", 2)
        self.assertEqual(self.pith("build"), 2)

    def test_a_good_test(self):
        self.assertEqual(self.pith("test"), 0, self.output)
        self.assertEqual(self.built(), [("build-asan", "tests_asan"), ("build-tsan", "tests_tsan"),
                                        ("build", "all")])
        tested = self.ctests()
        for label in ("asan", "tsan"):
            self.assertIn(f"-L\t^{label}$", "\t".join(tested[f"build-{label}"]))
        self.assertNotIn("-L", tested["build"])
        for arguments in tested.values():
            self.assertIn("-LE\t^full$", "\t".join(arguments))
        self.assertRegex(self.output, r"(?m)^pith: build-asan: built in \d+ s$")
        self.assertEqual(self.last_line(), SUMMARY)
        trees = dict(self.configured())
        self.assertIn("PITH_SANITIZE=address", trees["build-asan"])
        self.assertIn("PITH_SANITIZE=thread", trees["build-tsan"])
        self.let_fail("setarch")  # as in some containers
        self.assertEqual(self.pith("test"), 0, self.output)
        self.assertEqual(self.configured(), [])

    def test_full(self):
        self.assertEqual(self.pith("test", "--full"), 0, self.output)
        tested = self.ctests()
        self.assertEqual(list(tested), ["build-asan", "build-tsan", "build-fuzz", "build"])
        self.assertIn("^asan(_full)?$", tested["build-asan"])
        self.assertIn("^tsan(_full)?$", tested["build-tsan"])
        for arguments in tested.values():
            self.assertNotIn("-LE", arguments)
            self.assertEqual(arguments[-1], "PITH_TEST_FULL=1")
        self.assertIn(("build-asan", "tests_asan_full"), self.built())

    def test_failures(self):
        """Each is told at the end, and costs no later part."""
        for name in ("ctest.build-asan", "cmake.build-tsan", "ctest.build-fuzz"):
            self.let_fail(name, 8)
        self.assertEqual(self.pith("test", "--full"), 1)
        self.assertEqual(list(self.ctests()), ["build-asan", "build-fuzz", "build"])
        self.assertEqual(self.last_line(), "pith: error: tests failed under a sanitizer or fuzzer: "
                                           "address thread fuzzer (see above)")
        self.let_fail("ctest.build", 8)
        self.assertEqual(self.pith("test"), 1)
        (self.here / "fails" / "ctest.build-asan").unlink()
        (self.here / "fails" / "cmake.build-tsan").unlink()
        self.assertEqual(self.pith("test"), 8)

    def test_demo_and_bench(self):
        (self.tree / "build" / "bin").mkdir(parents=True)
        self.fake("pith-demo", folder=self.tree / "build" / "bin")
        self.assertEqual(self.pith("demo", "--epochs", "3"), 0, self.output)
        self.assertEqual(self.log[-1], ["pith-demo", "--epochs", "3"])
        self.assertEqual(self.last_line(), "demo: accuracy")
        self.assertEqual(self.pith("bench", "--rounds", "2"), 0, self.output)
        self.assertEqual(self.log[-1], ["python3", f"{self.tree}/perf/compare.py", "--case",
                                        "all", "--rounds", "2"])

    def test_clean(self):
        for name in (*TREES, "build-mine", "src"):
            (self.tree / name / "bin").mkdir(parents=True)
        self.assertEqual(self.pith("clean"), 0, self.output)
        self.assertEqual(sorted(path.name for path in self.tree.iterdir()),
                         ["build-mine", "pith", "src"])

    def test_help_and_mistakes(self):
        self.assertEqual(self.pith("help"), 0, self.output)
        known = re.findall(r"^    (\w+)\) run_", (ROOT / "pith").read_text(encoding="utf-8"), re.M)
        for command in known:
            self.assertRegex(self.output, rf"(?m)^  {command} ")
        for arguments, words in ((("tset",), "unknown command 'tset'"),
                                 (("test", "--fast"), "test: unknown argument '--fast'"),
                                 (("build", "quickly"), "build: unknown argument 'quickly'")):
            self.assertEqual(self.pith(*arguments), 1)
            self.assertEqual(self.log, [])
            self.assertIn(words, self.last_line())


if __name__ == "__main__":
    unittest.main()
