"""Where no laboratory can be built its tests are skipped, with one line that says why."""
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from case import SKIPPED
from namespaces import unavailable

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = ("test_lab", "test_failure")

# A test as a user who may do less: only what it has read already must be readable then.
DRIVER = """
import os, sys
sys.path.insert(0, {here!r})
import case, {test}
{then}
case.main()
"""

# Parts of a test, one a network.
PARTS = """
import sys, unittest
sys.path.insert(0, {here!r})
from case import Lab

class Parts(unittest.TestCase):
    def test(self):
        for link in ("veth", "switch", "veth"):
            with self.subTest(link=link), Lab(1, link):
                print("built", link)

unittest.main(verbosity=2)
"""

# As on a kernel without the module that the call asks for.
LACKING = """#!/bin/sh
case " $* " in *' {what} '*) echo 'Specified {what} is unknown.' >&2; exit 2 ;; esac
exec {program} "$@"
"""

# An `ip` that nobody lets do anything, as in a container without rights.
REFUSING = "#!/bin/sh\necho 'Operation not permitted' >&2\nexit 1\n"


class Skipped(unittest.TestCase):
    @contextlib.contextmanager
    def standing_in(self, tool, script):
        """The environment in which the script stands in for a tool."""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, tool), "w", encoding="utf-8") as file:
                file.write(script)
            os.chmod(file.name, 0o755)
            yield {"PATH": f"{folder}:{os.environ['PATH']}"}

    def check(self, test, words, then="", environment=None, before=()):
        script = DRIVER.format(here=HERE, test=test, then=then)
        done = subprocess.run([*before, sys.executable, "-B", "-c", script], capture_output=True,
                              text=True, check=False, timeout=60,
                              env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, SKIPPED, done.stdout + done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 1, done.stdout)
        self.assertRegex(done.stdout, f"^skipped: .*{words}")
        self.assertEqual(done.stderr, "")

    def test_without_the_tools(self):
        for test in TESTS:
            with self.subTest(test):
                self.check(test, r"ip, tc, unshare \(packages iproute2, util-linux\)",
                           environment={"PATH": "/nonexistent"})

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_without_root(self):
        for test in TESTS:
            with self.subTest(test):
                self.check(test, "need root", then="os.setuid(65534)")

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_without_tun(self):
        hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/net && exec "$@"', "-"]
        if subprocess.run([*hide, "true"], capture_output=True, check=False).returncode:
            self.skipTest("nothing can be mounted here")
        self.check("test_lab", "/dev/net/tun: No such file", before=hide)

    @unittest.skipUnless(os.geteuid() == 0 and os.path.exists("/dev/net/tun"), "needs root, tun")
    def test_where_namespaces_are_refused(self):
        with self.standing_in("ip", REFUSING) as environment:
            self.check("test_lab", "namespaces are refused here: ip netns add .* not permitted",
                       environment=environment)

    @unittest.skipUnless(not unavailable("veth") and not unavailable(), "needs a laboratory")
    def test_without_bridge_or_token_bucket(self):
        for tool, what in (("ip", "bridge"), ("tc", "tbf")):
            script = LACKING.format(what=what, program=shutil.which(tool))
            with self.subTest(what), self.standing_in(tool, script) as environment:
                done = subprocess.run(
                    [sys.executable, "-B", "-c", PARTS.format(here=HERE)], text=True, timeout=60,
                    env={**os.environ, **environment}, capture_output=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout, "built switch\n")
                self.assertRegex(done.stderr, r"skipped .a veth network needs the kernel's bridge "
                                 rf"and token bucket: .* {what}\b.*: Specified {what} is unknown")


if __name__ == "__main__":
    unittest.main()
