"""How the laboratory's tests run: skipped with one line where it cannot be built."""
import functools
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


def main():
    reason = unavailable()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(module="__main__", verbosity=2)
