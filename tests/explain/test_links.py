#!/usr/bin/env python3
"""Files of links: what jobs save and begin with, and pith-explain --links. Usage: ... BIN_FOLDER"""
import json
import tempfile
import unittest

from programs import BIN, run

TITLE = "pith links 2\nof 4 ranks on 2 hosts 89abcdef01234567\n"


@unittest.skipUnless((BIN / "all_reduce_perf").exists(), "all_reduce_perf was not built")
class GivenLinks(unittest.TestCase):
    """What one job saves another begins with."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = f"{folder.name}/links"
        self.log = f"{folder.name}/choices.json"

    def job(self, ranks="2", calls="100", **variables):
        return run("all_reduce_perf", "--ranks", ranks, "-b", "4K", "-e", "4K", "-n", calls, "-w",
                   "0", "-c", "0",
                   **{"PITH_TRANSPORT": "tcp", "PITH_EXPLAIN_LOG": self.log, **variables})

    def link(self):
        with open(self.log, encoding="utf-8") as file:
            return json.load(file)["link"]

    def saved(self):
        with open(self.path, encoding="utf-8") as file:
            return file.read()

    def write(self, calls, whose=None):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in ("pith links 2", whose, calls)))

    def both(self):
        return {"PITH_LINKS": self.path, "PITH_SAVE_LINKS": self.path}

    def test_one_job_after_the_other(self):
        first = self.job(**self.both())  # there is no file yet
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(first.stderr, "")
        title, whose, *_ = self.saved().splitlines()
        self.assertEqual(title, "pith links 2")
        self.assertRegex(whose, r"^of 2 ranks on 1 hosts [0-9a-f]{16}$")
        # It begins with it; one call tells nothing else.
        self.write("calls 0.000123 0.1 4.5e-09 0.1", whose)
        second = self.job(calls="1", PITH_LINKS=self.path)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertEqual(second.stderr, "")
        given = (self.link()["alpha_s"], self.link()["beta_s_per_byte"])
        self.assertEqual(given, (0.000123, 4.5e-09))
        before = self.link()
        self.job(calls="1", PITH_LINKS=self.path, PITH_DETERMINISTIC="1")
        self.assertNotEqual(self.link(), before)
        # What calls tell takes its place.
        self.assertEqual(self.job(**self.both()).returncode, 0)
        self.assertIn("\ncalls ", self.saved())
        self.assertNotIn("0.000123", self.saved())

    def test_links_of_another_job_are_not_used(self):
        self.write("calls 0.000123 0.1 4.5e-09 0.1", "of 2 ranks on 1 hosts 0123456789abcdef")
        for ranks, ours in (("2", "2 ranks on 1 hosts of other names"),
                            ("3", "3 ranks on 1 hosts")):
            done = self.job(ranks, calls="1", PITH_LINKS=self.path)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count(
                f"PITH_LINKS: {self.path} is not used: it is of 2 ranks on 1 hosts, and this job "
                f"has {ours}"), 1, done.stderr)
            self.assertNotEqual(self.link()["alpha_s"], 0.000123)

    def test_mistakes(self):
        self.write("calls 1 one 1 1", "of 2 ranks on 1 hosts 0123456789abcdef")
        for path, said in ((self.path, "what is not known of alpha is \"one\""),
                           (self.path + ".none", "No such file or directory"),
                           ("/tmp", "expected a file that PITH_SAVE_LINKS")):
            for transport in ("tcp", "local"):
                done = self.job(PITH_LINKS=path, PITH_TRANSPORT=transport)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(f"PITH_LINKS is {path}", done.stderr)
                self.assertIn(said, done.stderr)
        done = self.job(PITH_SAVE_LINKS="/nowhere/links")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("PITH_SAVE_LINKS: /nowhere/links"), 1, done.stderr)

    def test_what_pith_info_has_measured(self):
        done = run("pith-info", "--links", "--ranks", "2", "--save", self.path,
                   PITH_TRANSPORT="shm")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.job(PITH_LINKS=self.path, PITH_TRANSPORT="shm").stderr, "")
        rows = dict(line.split(" ", 1) for line in self.saved().splitlines()[2:])
        alpha, _, beta, _ = map(float, rows["views"].split())
        self.assertAlmostEqual(self.link()["alpha_s"], alpha, delta=1e-6 * alpha)
        self.assertAlmostEqual(self.link()["beta_s_per_byte"], beta, delta=1e-6 * beta)
        self.assertAlmostEqual(self.link()["gamma_s_per_byte"],
                               float(rows["reduce/host"].split()[2]), delta=1e-13)


class SavedLinks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = f"{folder.name}/links"

    def explained(self, text, *arguments):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)
        return run("pith-explain", "--json", "--links", self.path, *arguments)

    def test_the_measured_link_is_taken(self):
        text = (TITLE + "views 2e-07 0.01 1e-10 0.02\nmessages 3e-06 0.01 2e-10 0.02\n"
                "reduce/host 1e-07 0.1 5e-11 0.1\npath/0 2e-05 0.1 1e-09 0.1\n"
                "path/2 1e-05 0.1 3e-09 0.1\n")
        for hosts, alpha, beta, views in (("1", 2e-7, 1e-10, True), ("4", 2e-5, 3e-9, False)):
            done = self.explained(text, "--hosts", hosts)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(done.stdout)
            self.assertAlmostEqual(found["alpha_s"], alpha, delta=1e-3 * alpha)
            self.assertAlmostEqual(found["beta_s_per_byte"], beta, delta=1e-3 * beta)
            self.assertAlmostEqual(found["gamma_s_per_byte"], 5e-11, delta=1e-14)
            self.assertEqual(found["views"], views)
        found = json.loads(self.explained(text, "--hosts", "4", "--alpha", "1ms").stdout)
        self.assertEqual(found["alpha_s"], 1e-3)
        of_calls = text + "calls 5e-05 0.1 2e-09 0.1\n"
        for hosts, alpha in (("1", 2e-7), ("4", 5e-5)):
            found = json.loads(self.explained(of_calls, "--hosts", hosts).stdout)
            self.assertAlmostEqual(found["alpha_s"], alpha, delta=1e-3 * alpha)
        no_views = "".join(line for line in text.splitlines(True) if "views" not in line)
        found = json.loads(self.explained(no_views).stdout)
        self.assertAlmostEqual(found["alpha_s"], 3e-6, delta=1e-9)
        self.assertFalse(found["views"])

    def test_mistakes_are_named(self):
        for text, said in (("", "cannot be read, or is empty"),
                           ("links\n", 'saved links do not begin with "pith links 2"'),
                           ("pith links 2\nof 4 hosts\n", 'saved links, line 2: is "of 4 hosts"'),
                           (TITLE + "views 1\n",
                            'line 3, "views": what is not known of alpha is ""'),
                           (TITLE + "path/0 1e-5 0.1 1e-9 0.1\n", "no link inside a host")):
            done = self.explained(text)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)
            self.assertIn(self.path, done.stderr)
        done = self.explained(TITLE + "views 1e-7 0.1 1e-10 0.1\n", "--hosts", "2")
        self.assertIn("no path between hosts", done.stderr)
        self.assertNotEqual(self.explained(TITLE, "--link", "1g").returncode, 0)

if __name__ == "__main__":
    unittest.main()
