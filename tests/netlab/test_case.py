"""Where no laboratory can be built its tests are skipped, with one line that says why."""
import os
import subprocess
import sys
import unittest

from case import SKIPPED

HERE = os.path.dirname(os.path.abspath(__file__))

# A test as a user who may do less: only what it has read already must be readable then.
DRIVER = """
import os, sys
sys.path.insert(0, {here!r})
import case, {test}
if os.geteuid() == 0: os.setuid(65534)
case.main()
"""


class Skipped(unittest.TestCase):
    def test_without_tools_or_root(self):
        for test in ("test_lab", "test_failure"):
            for words, changed in (("ip, tc, unshare", {"PATH": "/nonexistent"}),
                                   ("need root", {})):
                done = subprocess.run(
                    [sys.executable, "-B", "-c", DRIVER.format(here=HERE, test=test)], text=True,
                    env={**os.environ, **changed}, capture_output=True, check=False, timeout=60)
                self.assertEqual(done.returncode, SKIPPED, done.stdout + done.stderr)
                self.assertRegex(done.stdout, rf"^skipped: .*{words}.*\n$")


if __name__ == "__main__":
    unittest.main()
