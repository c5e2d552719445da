#!/usr/bin/env python3
"""`./pith` as a script: what it installs, configures, builds and runs, and how it ends.

A copy of it runs in a temporary folder with a PATH that holds nothing but the few system tools it
may use and stand-ins (fake.sh) for all that would install, compile or test.
"""
import os
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
NOBODY = 65534


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

    def pith(self, *arguments, user=None, **variables):
        """Runs it; self.log is then how it called the others. Both outputs go to one place."""
        log = self.here / "log"
        log.write_text("", encoding="utf-8")
        as_user = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        done = subprocess.run(
            [str(self.tree / "pith"), *arguments],
            env={"PATH": str(self.bin), "WORLD": str(self.here), **variables}, cwd=self.here,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=100, check=False, **as_user)
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
    def test_all_there(self):
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertIn("g++", self.asked())
        self.assertEqual(self.calls("apt-get", "apt-cache", "sudo"), [])
        self.assertNotIn("Debian", self.output)

    def test_only_what_is_missing(self):
        self.lack("ccache")
        self.lack("libfmt-dev", status="config-files")
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertIn("pith: installing Debian packages: ccache libfmt-dev\n", self.output)
        self.assertEqual(self.installed(), [["ccache", "libfmt-dev"]])
        self.assertEqual(len(self.calls("apt-get")), 1)  # no update
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertEqual(self.calls("apt-get", "apt-cache"), [])

    def test_each_command_has_its_own(self):
        asked = {}
        for command in ("build", "test", "bench"):
            self.assertEqual(self.pith(command), 0, self.output)
            asked[command] = set(self.asked())
        self.assertNotIn("catch2", asked["build"])
        self.assertLess(asked["build"], asked["test"])
        self.assertLess(asked["build"], asked["bench"])
        self.assertLessEqual({"catch2", "clang-format", "clang-tidy-16", "git"}, asked["test"])
        self.assertIn("libopenmpi-dev", asked["bench"])

    def test_old_lists(self):
        (self.here / "stale").touch()
        self.lack("ccache")
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertEqual([call[1] for call in self.calls("apt-get")], ["update", "install"])
        self.assertEqual(self.installed(), [["ccache"]])

    def test_installing_fails(self):
        self.lack("ccache")
        self.let_fail("apt-get", 100)
        self.assertEqual(self.pith("build"), 1)
        self.assertEqual([call[1] for call in self.calls("apt-get")],
                         ["install", "update", "install"])
        self.assertEqual(self.log[-1][0], "apt-get")  # and nothing was configured
        self.assertTrue(self.output.endswith("error: apt-get could not install: ccache\n"))

    def test_cmake_looks_again_after_an_installation(self):
        self.pith("build")
        self.lack("libucx-dev")
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertEqual([tree for tree, _ in self.configured()], ["build"])


class LeftOut(unittest.TestCase):
    def test_each_message_names_the_package(self):
        """Whoever has a library installed lacks what is needed to build with it."""
        for folder in ("", "perf", "tools"):
            text = (ROOT / folder / "CMakeLists.txt").read_text(encoding="utf-8")
            messages = re.findall(r'message\(STATUS ((?:"[^"]*"\s*)+)\)', text)
            self.assertTrue(messages, folder)
            for message in messages:
                with self.subTest(message):
                    self.assertRegex(message, r"\((lib\w+|nlohmann-json3)-dev[,)]")


class OtherSystems(Machine):
    def test_neither_apt_nor_compiler(self):
        self.pith("test")
        packages = self.asked()
        shutil.rmtree(self.tree / "build")
        self.remove("apt-get", "c++")
        self.assertEqual(self.pith("test"), 1)
        self.assertEqual(self.log, [])
        first, last = self.output.splitlines()
        self.assertEqual(first.split(": ")[-1].split(), packages)
        self.assertTrue(last.startswith("pith: error: there is no apt-get here"), last)

    def test_compiler_without_apt(self):
        self.remove("apt-get", "dpkg-query")
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertRegex(self.output, r"(?m)^pith: .* Debian packages.*: g\+\+ .*libhwloc-dev$")
        self.assertEqual(self.built(), [("build", "all")])


class Rights(Machine):
    def as_nobody(self, *arguments):
        if os.geteuid() != 0:
            return self.pith(*arguments)
        for path in (self.here, *self.here.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o777)
        (self.here / "log").touch()
        (self.here / "log").chmod(0o666)
        try:
            subprocess.run([str(self.bin / "true")], check=True, user=NOBODY, group=NOBODY,
                           extra_groups=[])
        except (OSError, subprocess.SubprocessError) as error:
            self.skipTest(f"nobody else can run programs here: {error}")
        return self.pith(*arguments, user=NOBODY)

    def test_without_sudo(self):
        self.lack("ccache", "libspdlog-dev")
        self.remove("sudo")
        self.assertEqual(self.as_nobody("build"), 1, self.output)
        first, last = self.output.splitlines()
        self.assertRegex(first, r"needs these Debian packages: g\+\+ cmake .*libhwloc-dev$")
        self.assertRegex(last, "^pith: error: missing: ccache libspdlog-dev; run as root")
        self.assertEqual({call[0] for call in self.log}, {"dpkg-query"})

    def test_without_sudo_nothing_missing(self):
        self.remove("sudo")
        self.assertEqual(self.as_nobody("build"), 0, self.output)

    def test_with_sudo(self):
        self.lack("ccache")
        self.assertEqual(self.as_nobody("build"), 0, self.output)
        self.assertEqual(self.installed(), [["ccache"]])
        self.assertEqual([call[1:4] for call in self.calls("sudo")],
                         [["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]])

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_root(self):
        self.lack("ccache")
        self.remove("sudo")
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertEqual(self.installed(), [["ccache"]])


class Build(Machine):
    def test_twice(self):
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertEqual([tree for tree, _ in self.configured()], ["build"])
        settings = self.configured()[0][1]
        self.assertLessEqual({"CMAKE_BUILD_TYPE=Release", "PITH_TESTS=OFF"}, settings)
        self.assertIn("CMAKE_CXX_COMPILER_LAUNCHER=ccache", settings)
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertEqual(self.configured(), [])
        self.assertEqual(self.built(), [("build", "all")])

    def test_without_ccache(self):
        self.remove("ccache")
        self.assertEqual(self.pith("build"), 0, self.output)
        self.assertNotIn("ccache", str(self.configured()))

    def test_jobs(self):
        self.pith("build", JOBS="3")
        self.assertEqual(self.calls("cmake.build")[0][3:5], ["--parallel", "3"])

    def test_a_tree_keeps_its_tests(self):
        self.pith("build")
        self.pith("test")
        self.assertIn("PITH_TESTS=ON", dict(self.configured())["build"])
        self.pith("build")
        self.assertEqual(self.configured(), [])

    def test_failure(self):
        self.let_fail("cmake.build", 2)
        self.assertEqual(self.pith("build"), 2)
        self.assertEqual(self.pith("build", "quickly"), 1)
        self.assertEqual(self.log, [])
        self.assertIn("build: unknown argument 'quickly'", self.output)


class Test(Machine):
    def last_line(self):
        return self.output.rstrip().splitlines()[-1]

    def test_a_good_run(self):
        self.assertEqual(self.pith("test"), 0, self.output)
        self.assertEqual(self.built(), [("build-asan", "tests_asan"), ("build-tsan", "tests_tsan"),
                                        ("build", "all")])
        tested = self.ctests()
        self.assertEqual(list(tested), ["build-asan", "build-tsan", "build"])
        self.assertIn("-L\t^asan$", "\t".join(tested["build-asan"]))
        self.assertIn("-L\t^tsan$", "\t".join(tested["build-tsan"]))
        self.assertNotIn("-L", tested["build"])
        for arguments in tested.values():
            self.assertIn("-LE\t^full$", "\t".join(arguments))
            self.assertEqual(arguments[-1], "PITH_TEST_FULL=")
        self.assertEqual(self.last_line(), SUMMARY)
        trees = dict(self.configured())
        self.assertIn("PITH_SANITIZE=address", trees["build-asan"])
        self.assertIn("PITH_SANITIZE=thread", trees["build-tsan"])
        self.assertEqual(self.pith("test"), 0, self.output)
        self.assertEqual(self.configured(), [])

    def test_sanitizers_want_fixed_addresses(self):
        self.pith("test")
        self.assertEqual([call[1:3] for call in self.calls("setarch")],
                         [["-R", "true"], ["-R", "ctest"]] * 2)
        self.let_fail("setarch")
        self.assertEqual(self.pith("test"), 0, self.output)
        self.assertEqual(list(self.ctests()), ["build-asan", "build-tsan", "build"])

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
        self.assertIn(f"CMAKE_CXX_COMPILER={self.bin}/clang++-16",
                      dict(self.configured())["build-fuzz"])
        self.assertIn("clang-16", self.asked())
        self.assertEqual(self.last_line(), SUMMARY)

    def test_a_failure_under_a_sanitizer(self):
        for name in ("ctest.build-asan", "cmake.build-tsan"):
            self.let_fail(name, 8)
        self.assertEqual(self.pith("test"), 1)
        self.assertEqual(list(self.ctests()), ["build-asan", "build"])
        self.assertEqual(self.last_line(), "pith: error: tests failed under a sanitizer or fuzzer: "
                                           "address thread (see above)")

    def test_a_failure_of_the_fuzzer(self):
        self.let_fail("ctest.build-fuzz", 8)
        self.assertEqual(self.pith("test", "--full"), 1)
        self.assertIn("build", self.ctests())
        self.assertRegex(self.last_line(), "^pith: error: .*: fuzzer ")

    def test_a_plain_failure(self):
        self.let_fail("ctest.build", 8)
        self.assertEqual(self.pith("test"), 8)
        self.let_fail("cmake.build", 2)
        self.assertEqual(self.pith("test"), 2)
        self.assertNotIn("build", self.ctests())

    def test_unknown_argument(self):
        self.assertEqual(self.pith("test", "--fast"), 1)
        self.assertEqual(self.log, [])
        self.assertIn("test: unknown argument '--fast' (known: --full)", self.output)


class OtherCommands(Machine):
    def test_demo(self):
        (self.tree / "build" / "bin").mkdir(parents=True)
        self.fake("pith-demo", folder=self.tree / "build" / "bin")
        self.assertEqual(self.pith("demo", "--epochs", "3"), 0, self.output)
        self.assertEqual(self.built(), [("build", "pith-demo")])
        self.assertEqual(self.log[-1], ["pith-demo", "--epochs", "3"])
        self.assertEqual(self.output.splitlines()[-1], "demo: accuracy")
        self.let_fail("pith-demo", 5)
        self.assertEqual(self.pith("demo"), 5)

    def test_bench(self):
        for _ in range(2):  # peers may have come in between, so CMake looks each time
            self.assertEqual(self.pith("bench", "--rounds", "2"), 0, self.output)
            self.assertEqual([tree for tree, _ in self.configured()], ["build"])
            self.assertEqual(self.log[-1], ["python3", f"{self.tree}/perf/compare.py", "--case",
                                            "all", "--rounds", "2"])

    def test_lint(self):
        tidy = self.tree / "tests" / "tidy"
        tidy.mkdir(parents=True)
        (tidy / "format.sh").write_text("#!/bin/sh\nexit 77\n", encoding="utf-8")
        (tidy / "format.sh").chmod(0o755)
        self.assertEqual(self.pith("lint", JOBS="3"), 0, self.output)
        self.assertIn("PITH_TESTS=ON", dict(self.configured())["build"])
        self.assertEqual(self.log[-1], ["python3", "-B", f"{tidy}/lint.py", f"{self.tree}/build",
                                        "--jobs", "3"])
        self.assertLessEqual({"clang-tidy-16", "git", "python3"}, set(self.asked()))
        self.let_fail("python3")
        self.assertNotEqual(self.pith("lint"), 0)
        (tidy / "format.sh").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        self.assertEqual(self.pith("lint"), 1)
        self.assertEqual(self.calls("python3"), [])

    def test_clean(self):
        for name in (*TREES, "build-mine", "src"):
            (self.tree / name / "bin").mkdir(parents=True)
        self.assertEqual(self.pith("clean"), 0, self.output)
        self.assertEqual(self.log, [])
        self.assertEqual(sorted(path.name for path in self.tree.iterdir()),
                         ["build-mine", "pith", "src"])

    def test_help(self):
        for arguments in ((), ("help",), ("-h",), ("--help",)):
            self.assertEqual(self.pith(*arguments), 0, self.output)
            self.assertTrue(self.output.startswith("Usage: ./pith COMMAND"), self.output)
            self.assertEqual(self.log, [])
        known = re.findall(r"^    (\w+)\) run_", (ROOT / "pith").read_text(encoding="utf-8"), re.M)
        self.assertIn("demo", known)
        for command in known:
            self.assertRegex(self.output, rf"(?m)^  {command} ")

    def test_unknown_command(self):
        self.assertEqual(self.pith("tset"), 1)
        self.assertEqual(self.log, [])
        self.assertIn("Usage:", self.output)
        self.assertEqual(self.output.splitlines()[-1], "pith: error: unknown command 'tset'")


if __name__ == "__main__":
    unittest.main()
