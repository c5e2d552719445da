#!/usr/bin/env python3
"""pith-demo as a user meets it: what it prints, its exit status, its time, and ranks that die.

Usage: test_program.py BIN_FOLDER [Short|Long]"""
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
LAST_LINE = re.compile(r"demo: accuracy (\d+\.\d) %, equal to single-process training: (yes|no), "
                       r"(\d+) MB moved, (\d+) % in communication")
EPOCH = re.compile(r"epoch +(\d+)/(\d+)  loss +(\d+\.\d{4})  accuracy +(\d+\.\d) %  +(\d+) MB moved"
                   r"  +(\d+) % in communication")
RANKS = 4
MANY = "1000"  # epochs: more than anybody waits for
PROMISED_S = 180
GOSSIP = "choco:density=0.1,gamma=0.1"


def environment():
    return {key: value for key, value in os.environ.items() if not key.startswith("PITH_")}


def start(*arguments, under=(), **options):
    """In a folder of its own, for the demo leaves a picture where it runs."""
    return subprocess.Popen([*under, str(BIN / "pith-demo"), *arguments], env=environment(),
                            stdin=subprocess.DEVNULL, **options)


def run(*arguments, folder=None, under=()):
    """Status, output, complaints and seconds."""
    begin = time.monotonic()
    demo = start(*arguments, under=under, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                 text=True, cwd=folder)
    output, complaints = demo.communicate(timeout=PROMISED_S + 60)
    return demo.returncode, output, complaints, time.monotonic() - begin


def rank_pids(demo):
    """Process ids by rank, as the demo's children name themselves."""
    pids = {}
    for pid in pathlib.Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split():
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except OSError:
            continue
        for word in words:
            if word.startswith("--rank="):
                pids[int(word[len("--rank="):])] = int(pid)
    return pids


def is_gone(pid):
    return not os.path.exists(f"/proc/{pid}")


class Case(unittest.TestCase):
    def check_plain(self, output):
        self.assertNotRegex(output, "[\r\x1b\x08]")

    def check_epochs(self, output, count):
        epochs = [match.groups() for match in map(EPOCH.fullmatch, output.splitlines()) if match]
        self.assertEqual([(int(number), int(of)) for number, of, *_ in epochs],
                         [(number, count) for number in range(1, count + 1)])
        self.assertLess(float(epochs[-1][2]), float(epochs[0][2]))

    def check_table(self, output):
        """A line a rank, all of them with the same parameters, and the sums."""
        rows = re.findall(r"(?m)^ *(\d|total) +(\d+\.\d\d) +(\d+\.\d\d) +(\d+) +(\d+\.\d)"
                          r"(?:  ([0-9a-f]{16}))?$", output)
        self.assertEqual([row[0] for row in rows], [*map(str, range(RANKS)), "total"])
        self.assertEqual(len({row[5] for row in rows[:-1]}), 1)
        for column in (1, 2, 3, 4):
            total = sum(float(row[column]) for row in rows[:-1])
            self.assertAlmostEqual(total, float(rows[-1][column]), delta=0.05 * RANKS)

    def check_last_line(self, output):
        """The accuracy in percent."""
        match = LAST_LINE.fullmatch(output.splitlines()[-1])
        self.assertTrue(match, output)
        self.assertEqual(match[2], "yes")
        self.assertGreater(int(match[3]), 0)
        self.assertLessEqual(int(match[4]), 100)
        self.assertIn("hold the same parameters, bit for bit: yes", output)
        return float(match[1])


class Short(Case):
    def test_a_short_run(self):
        status, output, complaints, _ = run("--no-comparison", "--epochs", "3")
        self.assertEqual(complaints, "")
        self.check_plain(output)
        self.check_epochs(output, 3)
        self.check_table(output)
        accuracy = self.check_last_line(output)
        # Three epochs need not reach the accuracy that the demo asks for.
        below = "counts as passed above 97 %" in output
        self.assertEqual(status, 1 if below else 0)
        self.assertGreaterEqual(accuracy, 50 if below else 97)
        self.assertLessEqual(accuracy, 97 if below else 100)

    @unittest.skipUnless(shutil.which("ip") and shutil.which("tc"), "no iproute2")
    def test_nothing_is_compared_where_namespaces_are_refused(self):
        under = ()  # as they are to everybody but root
        if os.geteuid() == 0:
            under = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
            if subprocess.run([*under, "true"], capture_output=True, check=False).returncode != 0:
                self.skipTest("root cannot give up a capability here")
        status, output, complaints, _ = run("--ranks", "2", "--epochs", "3", under=under)
        self.assertEqual(complaints, "")
        self.assertIn(status, (0, 1))  # three epochs need not reach what the demo asks for
        self.check_last_line(output)
        self.assertIn("No comparison of schemes over a slow link: network namespaces are refused "
                      "here: Operation not permitted.", output.splitlines())

    def test_progress_on_a_terminal(self):
        terminal, end = pty.openpty()
        demo = start("--no-comparison", "--epochs", "2", stdout=end, stderr=end)
        os.close(end)
        shown = b""
        while select.select([terminal], [], [], 60)[0]:
            try:
                shown += os.read(terminal, 1 << 16)
            except OSError:  # the demo has ended
                break
        os.close(terminal)
        self.assertIn(demo.wait(60), (0, 1))
        text = shown.decode()
        self.assertRegex(text, r"\repoch +1/2  \[#*-+\]")
        # All that is drawn over fits a terminal's line, and what replaces it erases it first.
        for drawn in re.findall(r"\r([^\r\n]*)(?=\r[^\n])", text):
            self.assertLess(len(drawn), 80, drawn)
        self.assertRegex(text, r"\r\x1b\[Kepoch +1/2  loss")
        self.assertIn("\rsingle process  [", text)
        self.assertTrue(LAST_LINE.fullmatch(text.splitlines()[-1]), text)

    def test_a_killed_rank_ends_the_demo(self):
        rank = RANKS - 1
        demo = start("--no-comparison", "--epochs", MANY, stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE, text=True)
        while "epoch   1/" not in (line := demo.stdout.readline()):
            self.assertTrue(line, "the demo ended before its first epoch")
        pids = rank_pids(demo)
        self.assertEqual(sorted(pids), list(range(RANKS)))
        os.kill(pids[rank], signal.SIGKILL)
        killed = time.monotonic()
        output, complaints = demo.communicate(timeout=60)
        self.assertLess(time.monotonic() - killed, 20)
        self.assertEqual(demo.returncode, 1)
        self.assertIn(f"rank {rank} was killed by signal 9", complaints)
        self.assertNotIn("demo: accuracy", output)
        self.assertTrue(all(map(is_gone, pids.values())))

    def test_a_killed_demo_leaves_no_rank(self):
        demo = start("--no-comparison", "--epochs", MANY, stdout=subprocess.PIPE, text=True)
        while "epoch   1/" not in (line := demo.stdout.readline()):
            self.assertTrue(line, "the demo ended before its first epoch")
        pids = rank_pids(demo)
        self.assertEqual(len(pids), RANKS)
        demo.kill()
        demo.wait()
        demo.stdout.close()
        limit = time.monotonic() + 20
        while not all(map(is_gone, pids.values())) and time.monotonic() < limit:
            time.sleep(0.01)
        self.assertTrue(all(map(is_gone, pids.values())))

    def test_its_time_is_kept(self):
        status, output, complaints, seconds = run("--no-comparison", "--epochs", MANY,
                                                  "--timeout", "2")
        self.assertEqual(status, 1)
        self.assertIn("4 ranks still ran when their 2 s were over", complaints)
        self.assertNotIn("demo: accuracy", output)
        self.assertLess(seconds, 20)

    def test_schemes_may_be_named(self):
        status, output, complaints, _ = run(
            "--ranks", "2", "--epochs", "6", "--schemes", "int8", "auto", GOSSIP, "--scheme-steps",
            "5", "--link", "1000", "--picture", os.devnull)
        if "No comparison of schemes" in output:
            self.skipTest("this machine lends no hosts")
        self.assertEqual((status, complaints), (0, ""), output)
        self.assertRegex(output, r"(?m)^int8 +not reached .* 100.00 %$")
        self.assertRegex(output, r"(?m)^auto +not reached ")
        self.assertIn("each has a model of its own, and the accuracy is the mean over", output)
        learnt = re.search(rf"(?m)^{GOSSIP} +not reached +[\d.]+ +([\d.]+) % +[\d.]+ +[\d.]+ "
                           r"+10.00 %$", output)
        self.assertTrue(learnt, output)
        self.assertGreater(float(learnt[1]), 30)  # who has learnt nothing knows a tenth
        self.assertNotIn("ExDyna", output)

    def test_schemes_that_cannot_run_end_it_at_once(self):
        for scheme, words in (
                ("nonsense", ['no compressor is called "nonsense", expected one of none']),
                ("topk:densty=1", ["--schemes", 'no key "densty"']),
                ("qsgd:bits=3", ['bits is "3", expected']),
                ("choco:graph=stated", ["pithCompressorSetGraph", "expected another graph"])):
            with self.subTest(scheme):
                status, output, complaints, _ = run("--schemes", "int8", scheme)
                self.assertEqual((status, output), (1, ""), output)
                for word in words:
                    self.assertIn(word, complaints)


class Long(Case):
    def test_the_whole_demo(self):
        with tempfile.TemporaryDirectory() as folder:
            status, output, complaints, seconds = run(folder=folder)
            self.assertEqual((status, complaints), (0, ""), output)
            self.assertLess(seconds, PROMISED_S)
            self.check_plain(output)
            self.check_epochs(output, 20)
            self.check_table(output)
            self.assertGreater(self.check_last_line(output), 97)
            if "No comparison of schemes" in output:
                return
            self.assertRegex(output, r"(?m)^top-k +(\d+\.\d|not reached|skipped|stopped)")
            if "Accuracy over time" not in output:
                return  # the machine was too busy for any scheme
            picture = pathlib.Path(folder, "pith-demo.png").read_bytes()
            self.assertTrue(picture.startswith(b"\x89PNG\r\n\x1a\n"))

    def test_schemes_are_left_out_when_the_time_is_over(self):
        """Each of them would go on for ever."""
        status, output, complaints, seconds = run(
            "--ranks", "2", "--epochs", "6", "--timeout", "100", "--scheme-steps", "20000",
            "--link", "100000", "--picture", os.devnull)
        if "No comparison of schemes" in output:
            self.skipTest("this machine lends no hosts")
        self.assertEqual((status, complaints), (0, ""), output)
        self.assertIn("stopped: 2 ranks still ran when their ", output)
        self.assertGreater(self.check_last_line(output), 97)
        self.assertLess(seconds, 120)


if __name__ == "__main__":
    unittest.main(verbosity=2)
