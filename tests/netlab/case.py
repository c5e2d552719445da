"""How the laboratory's tests run: skipped with one line where it cannot be built."""
import concurrent.futures
import functools
import subprocess
import sys
import unittest

import lab
from namespaces import unavailable

SKIPPED = 77  # what ctest takes for it
MBIT = 1e6

why_not = functools.cache(unavailable)


def need(link):
    """Skips the test, or the part of it, that is about a network which cannot be built here."""
    if reason := why_not(link):
        raise unittest.SkipTest(reason)


class Lab(lab.Lab):
    """A laboratory; a test that cannot have it is skipped."""

    def __init__(self, hosts, link="switch", **options):
        need(link)
        super().__init__(hosts, link, **options)


def names_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from names_of(test)
        else:
            yield test.id().removeprefix("__main__.")


def run_alone(name):
    return subprocess.run([sys.executable, "-B", sys.argv[0], name], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def run_together(at_once):
    """Each test in a process and a laboratory of its own, some at a time."""
    names = list(names_of(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])))
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        runs = list(pool.map(run_alone, names))
    for run in runs:
        print(run.stdout, end="")
    return 1 if not runs or any(run.returncode for run in runs) else 0


def main(at_once=1):
    """`at_once`: for tests that mostly wait."""
    reason = unavailable()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    if at_once > 1 and len(sys.argv) == 1:
        sys.exit(run_together(at_once))
    unittest.main(module="__main__", verbosity=2)
