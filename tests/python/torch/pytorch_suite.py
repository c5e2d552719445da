"""Runs PyTorch's own tests of process groups with the backend pith, beside Gloo.

    pytorch_suite.py [-k PATTERN] [--backends pith,gloo] [--ranks N] [--json FILE]

Prints a table of passed, failed and skipped tests, and each test that fails with pith but passes
with Gloo. Exit status 1 if there is one that EXPLAINED does not name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

# Tests that pass with Gloo and cannot pass with another backend, and why.
EXPLAINED: dict[str, str] = {
    "test_ddp_logging_data_cpu": "DDP's log calls every backend that is not PyTorch's own 'custom'",
}

START_LIMIT = 600.0  # seconds until the tests are loaded, beside the limit for one test


def names(pattern: str) -> list[str]:
    from torch.testing._internal.distributed.distributed_test import DistributedTest

    found = [n for n in dir(DistributedTest._DistTestBase) if n.startswith("test_")]
    return [name for name in found if re.search(pattern, name)]


# When their module is imported, the tests' decorators compare the backend with lists of PyTorch's
# own ones, and leave nearly all tests out for others. Pith is to pass what Gloo is asked for.
CHILD = """
import os
import sys
import torch
import pith.torch

wanted = os.environ["BACKEND"]
os.environ["BACKEND"] = "gloo"
from torch.testing._internal.distributed import distributed_test

distributed_test.BACKEND = os.environ["BACKEND"] = wanted
for backends in distributed_test.DistTestCases.backend_feature.values():  # asked by running tests
    if "gloo" in backends:
        backends.add("pith")

from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

class TestSuite(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

if __name__ == "__main__":
    import unittest
    print("READY", flush=True)
    suite = unittest.defaultTestLoader.loadTestsFromNames(
        ["TestSuite." + name for name in sys.argv[1:]], sys.modules["__main__"])
    class Result(unittest.TextTestResult):
        def say(self, test, what, why=""):
            print("RESULT", test.id().split(".")[-1], what, why.replace("\\n", "\\\\n"), flush=True)
        def addSuccess(self, test):
            self.say(test, "passed")
        def addSkip(self, test, reason):
            self.say(test, "skipped", reason)
        def addError(self, test, err):
            self.say(test, "failed", self._exc_info_to_string(err, test)[-3000:])
        addFailure = addError
    unittest.TextTestRunner(resultclass=Result, verbosity=0).run(suite)
"""


def run_tests(backend: str, tests: list[str], ranks: int, limit: float) -> dict[str, list[str]]:
    """Result and reason by test. A test during which the process dies counts as failed."""
    results: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "suite.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(CHILD)
        environment = dict(
            os.environ,
            BACKEND=backend,
            WORLD_SIZE=str(ranks),
            TEMP_DIR=folder,
            INIT_METHOD="env://",
            MASTER_ADDR="127.0.0.1",
            OMP_NUM_THREADS="1",
        )
        for name in ("barrier", "test_dir", "init_dir"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        left = list(tests)
        while left:
            found = run_some(script, left, environment, limit)
            results.update(found)
            left = [name for name in left if name not in results]
    return results


def run_some(
    script: str, tests: list[str], environment: dict[str, str], limit: float
) -> dict[str, list[str]]:
    """Runs tests until one hangs or ends the process; that one is among the results."""
    found: dict[str, list[str]] = {}
    process = subprocess.Popen(
        [sys.executable, script, *tests],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    last = time.monotonic() + START_LIMIT
    unread = b""  # bytes: a text stream does not know that nothing is there yet
    while True:
        unread += process.stdout.read() or b""
        *lines, unread = unread.split(b"\n")
        for line in (line.decode(errors="replace") for line in lines):
            if line == "READY":
                last = time.monotonic()
            elif line.startswith("RESULT "):
                name, what, why = (line.split(" ", 3) + [""])[1:4]
                found[name] = [what, why]
                print(f"{environment['BACKEND']}: {name} {what}", file=sys.stderr, flush=True)
                last = time.monotonic()
        if process.poll() is not None and not lines:
            break
        if time.monotonic() - last > limit:
            os.killpg(process.pid, 9)
            process.wait()
            break
        time.sleep(0.05)
    for name in tests:
        if name not in found:
            late = time.monotonic() - last > limit
            found[name] = ["failed", f"no end within {limit} s" if late else "the process died"]
            break
    return found


def table(results: dict[str, dict[str, list[str]]]) -> None:
    print(f"{'backend':10}{'passed':>8}{'failed':>8}{'skipped':>9}")
    for backend, tests in results.items():
        kinds = [what for what, _ in tests.values()]
        counts = [kinds.count(kind) for kind in ("passed", "failed", "skipped")]
        print(f"{backend:10}{counts[0]:8}{counts[1]:8}{counts[2]:9}")


def compare(results: dict[str, dict[str, list[str]]]) -> int:
    """The number of tests that only pith fails, without an explanation."""
    bad = 0
    pith, gloo = results.get("pith", {}), results.get("gloo", {})
    for name, (what, why) in sorted(pith.items()):
        if what != "failed":
            continue
        if gloo and gloo.get(name, ["passed"])[0] == "failed":
            print(f"fails with Gloo, too: {name}")
            continue
        if name in EXPLAINED:
            print(f"explained: {name}: {EXPLAINED[name]}")
            continue
        bad += 1
        last = [line for line in why.split("\\n") if line.strip()]
        print(f"only pith fails: {name}: {last[-1] if last else ''}")
    for name, (what, why) in sorted(pith.items()):
        if what == "skipped" and gloo.get(name, [""])[0] == "passed":
            print(f"skipped with pith, passes with Gloo: {name}: {why}")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", dest="pattern", default="")
    parser.add_argument("--backends", default="pith,gloo")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300, help="seconds for one test")
    parser.add_argument("--json")
    args = parser.parse_args()
    os.environ.setdefault("BACKEND", "gloo")
    os.environ.setdefault("WORLD_SIZE", str(args.ranks))
    os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
    tests = names(args.pattern)
    results = {
        backend: run_tests(backend, tests, args.ranks, args.limit)
        for backend in args.backends.split(",")
    }
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    table(results)
    return 1 if compare(results) else 0


if __name__ == "__main__":
    sys.exit(main())
