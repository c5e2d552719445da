#!/usr/bin/env python3
"""Faults that the tests must catch: run.py [--verify] [--scratch FOLDER] [--jobs N] [ID ...]

Each fault of faults.txt is one line of the library made wrong. In a scratch copy of the tree it is
applied, the tests that the list names are built and run, and it is taken out again. Exit status 0:
every fault was caught. --verify only looks whether every text is found exactly once.
"""
import argparse
import dataclasses
import fnmatch
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CODE = (".cpp", ".hpp", ".h", ".c", ".cu", ".in")
FOLDERS = ("include", "src", "transport", "collectives", "cuda", "perf", "tools")
CONFIGURE = ("-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DPITH_TESTS=ON", "-DPITH_CUDA_CODE=ptx")
LEAST_SECONDS = 20  # before a test with a fault counts as one that hangs


class Failure(Exception):
    """Told in one line, without a trace."""


# --- the list -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Fault:
    name: str
    file: str = ""
    was: str = ""
    now: str = ""
    by: list = dataclasses.field(default_factory=list)  # names of tests, each with a filter or ""


def read_faults(text):
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        head = re.fullmatch(r"\[([a-z0-9-]+)\]", line)
        if head:
            faults.append(Fault(head.group(1)))
            continue
        key, _, value = line.partition(" ")
        if not faults or key not in ("file", "was", "now", "by"):
            raise Failure(f"faults.txt:{number}: expected [id], file, was, now or by")
        if key == "by":
            test, _, chosen = value.strip().partition(" ")
            faults[-1].by.append((test, chosen))
        else:
            setattr(faults[-1], key, value.strip())
    check_faults(faults)
    return faults


def check_faults(faults):
    names = [fault.name for fault in faults]
    for fault in faults:
        if names.count(fault.name) > 1:
            raise Failure(f"{fault.name}: comes twice")
        if not fault.file or not fault.was or not fault.by or fault.was == fault.now:
            raise Failure(f"{fault.name}: needs a file, a text, another text and a test")


class Tree:
    """The library's sources: where the text of a fault is."""

    def __init__(self, root):
        self.texts = {}
        for folder in FOLDERS:
            for path, _, names in os.walk(os.path.join(root, folder)):
                for name in names:
                    if name.endswith(CODE):
                        file = os.path.join(path, name)
                        with open(file, encoding="utf-8") as opened:
                            self.texts[os.path.relpath(file, root)] = opened.read()

    def find(self, fault):
        """The file with the text: the one named, else one of its name, else any; only there."""
        base = os.path.basename(fault.file)
        for paths in ([path for path in self.texts if path == fault.file],
                      [path for path in self.texts if os.path.basename(path) == base],
                      list(self.texts)):
            found = [path for path in paths if fault.was in self.texts[path]]
            times = sum(self.texts[path].count(fault.was) for path in found)
            if times > 1:
                raise Failure(f"{fault.name}: found {times} times, in {' '.join(sorted(found))}: "
                              f"{fault.was}")
            if found:
                return found[0]
        raise Failure(f"{fault.name}: not in {fault.file} nor elsewhere: {fault.was}")


# --- the scratch copy -----------------------------------------------------------------------------


def same(one, other):
    try:
        with open(one, "rb") as a, open(other, "rb") as b:
            return a.read() == b.read()
    except FileNotFoundError:
        return False


def copy_tree(scratch):
    """Only what differs, so that a second run builds little."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"],
                            capture_output=True, text=True, check=True).stdout.splitlines()
    paths = {path for path in listed if os.path.isfile(os.path.join(ROOT, path))}
    for path in paths:
        source, copy = os.path.join(ROOT, path), os.path.join(scratch, path)
        if not same(source, copy):
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copy(source, copy)
    for folder, subfolders, names in os.walk(scratch):
        if folder == scratch:
            subfolders[:] = [name for name in subfolders if name not in ("build", ".git")]
        for name in names:
            if os.path.relpath(os.path.join(folder, name), scratch) not in paths:
                os.remove(os.path.join(folder, name))


def configure(scratch):
    launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    done = subprocess.run(["cmake", "-S", scratch, "-B", os.path.join(scratch, "build"), *CONFIGURE,
                           *(launcher if shutil.which("ccache") else [])],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"cmake fails in {scratch}:\n{done.stderr}")


@dataclasses.dataclass
class Test:
    command: list
    folder: str
    variables: dict
    limit: float = 0  # seconds, once it has run without a fault


def read_tests(build):
    """What CTest knows, before anything is built."""
    tests = {}
    for folder, _, names in os.walk(os.path.join(build, "tests")):
        if "CTestTestfile.cmake" not in names:
            continue
        with open(os.path.join(folder, "CTestTestfile.cmake"), encoding="utf-8") as file:
            text = file.read()
        for name, command in re.findall(r"^add_test\(\[=\[(.+?)\]=\] (.*)\)$", text, re.M):
            found = re.search(rf'^set_tests_properties\(\[=\[{re.escape(name)}\]=\] .*?'
                              r' ENVIRONMENT "([^"]*)"', text, re.M)
            variables = found.group(1).split(";") if found else []
            tests[name] = Test(shlex.split(command), folder,
                               dict(one.split("=", 1) for one in variables))
    return tests


class Bench:
    """Builds and runs tests in the scratch copy."""

    def __init__(self, scratch, jobs):
        self.build_folder = os.path.join(scratch, "build")
        self.jobs = jobs
        self.tests = read_tests(self.build_folder)
        self.limits = {}

    def test(self, name):
        if name not in self.tests:
            raise Failure(f"there is no test called {name}")
        return self.tests[name]

    def targets(self, by):
        """The programs and libraries in the tests' commands."""
        paths = {os.path.relpath(word, self.build_folder) for name, _ in by
                 for word in self.test(name).command if word.startswith(self.build_folder + "/")}
        return sorted(path for path in paths if fnmatch.fnmatch(path, "bin/*") or ".so" in path)

    def build(self, by):
        done = subprocess.run(["ninja", "-C", self.build_folder, "-j", str(self.jobs),
                               *self.targets(by)], capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stdout[-3000:]

    def run(self, name, chosen, limit):
        """How it ends, None where well, and what it prints."""
        test = self.test(name)
        command = [test.command[0], chosen] if chosen else test.command
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(command, cwd=test.folder, stdout=output,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       env={**os.environ, **test.variables},
                                       start_new_session=True)
            try:
                status = process.wait(limit)
                ended = {0: None, 77: None}.get(status, f"status {status}")
            except subprocess.TimeoutExpired:
                ended = f"hangs for {limit:.0f} s"
            end_group(process)
            output.seek(0)
            return ended, output.read().decode(errors="replace")

    def time_without_fault(self, by):
        """A test that fails anyway, or runs nothing, would tell nothing."""
        for name, chosen in by:
            if (name, chosen) in self.limits:
                continue
            begin = time.monotonic()
            ended, output = self.run(name, chosen, 900)
            seconds = time.monotonic() - begin
            if ended:
                raise Failure(f"{name} {chosen} fails without a fault: {ended}\n{output[-2000:]}")
            if chosen and re.search(r"No test cases? (?:matched|ran)|No tests ran", output):
                raise Failure(f"{name} {chosen} runs nothing")
            self.limits[name, chosen] = max(LEAST_SECONDS, 5 * seconds)

    def catch(self, by):
        """The first of the tests that does not end well, and how."""
        for name, chosen in by:
            ended, _ = self.run(name, chosen, self.limits[name, chosen])
            if ended:
                return f"{name} {chosen}".strip() + f" ({ended})"
        return None


def end_group(process):
    """Also what the test has started and left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def try_fault(bench, scratch, path, fault):
    """Returns what became of it, for the table."""
    file = os.path.join(scratch, path)
    with open(file, encoding="utf-8") as opened:
        text = opened.read()
    log = bench.build(fault.by)
    if log:
        raise Failure(f"its tests do not build without it:\n{log}")
    bench.time_without_fault(fault.by)
    try:
        write(file, text.replace(fault.was, fault.now))
        if bench.build(fault.by):
            return "does not build"
        caught = bench.catch(fault.by)
        return f"caught by {caught}" if caught else "SURVIVED"
    finally:
        write(file, text)


# --- the program ----------------------------------------------------------------------------------


def run(faults, places, options):
    scratch = os.path.realpath(options.scratch)
    os.environ["CCACHE_BASEDIR"] = scratch
    os.makedirs(scratch, exist_ok=True)
    copy_tree(scratch)
    configure(scratch)
    bench = Bench(scratch, options.jobs)
    for fault in faults:
        bench.targets(fault.by)  # so that unknown names are told at once
    counts = {}
    for fault in faults:
        begin = time.monotonic()
        try:
            result = try_fault(bench, scratch, places[fault.name], fault)
        except Failure as failure:  # the others' tests may be well
            result = f"tells nothing: {failure}"
        seconds = time.monotonic() - begin
        kind = "caught" if result.startswith("caught") else result
        counts[kind] = counts.get(kind, 0) + 1
        print(f"{fault.name:<34} {places[fault.name]:<44} {result:<60} {seconds:6.1f}", flush=True)
    print(f"{len(faults)} faults: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
    return 0 if counts.get("caught", 0) == len(faults) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", help="patterns; none: all")
    parser.add_argument("--verify", action="store_true", help="only look for the texts")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--scratch", default=os.path.join(tempfile.gettempdir(), "pith-mutants"),
                        help="the copy, kept for the next run (%(default)s)")
    options = parser.parse_args()
    try:
        with open(os.path.join(HERE, "faults.txt"), encoding="utf-8") as file:
            faults = read_faults(file.read())
        chosen = [fault for fault in faults if not options.ids or
                  any(fnmatch.fnmatch(fault.name, pattern) for pattern in options.ids)]
        if not chosen:
            raise Failure(f"no fault is called {' '.join(options.ids)}")
        tree, places, missing = Tree(ROOT), {}, []
        for fault in chosen:
            try:
                places[fault.name] = tree.find(fault)
            except Failure as failure:
                missing.append(str(failure))
        if missing:
            raise Failure("\n".join(missing))
        if not options.verify:
            return run(chosen, places, options)
        print(f"{len(chosen)} faults, each found once")
        return 0
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
