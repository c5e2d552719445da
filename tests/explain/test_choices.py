#!/usr/bin/env python3
"""pith-explain --log on what a real run has recorded, and on made-up records.
Usage: ... BIN_FOLDER"""
import copy
import json
import re
import subprocess
import tempfile
import unittest

from programs import BIN, clean, run

RECORD = {
    "format": "pith choices 1", "ended": False, "written_unix_s": 1000, "ranks": 4, "hosts": 1,
    "learns": True, "views": True, "oversubscribed": False, "devices": False,
    "link": {"alpha_s": 1e-6, "beta_s_per_byte": 1e-10, "gamma_s_per_byte": 2e-10,
             "message_s": 1e-7},
    "chunk_bytes": 65536, "lanes": 4,
    "cells": [{
        "collective": "allreduce", "bytes": 65536, "timed_calls": 90, "forced": False,
        "chosen": {"algorithm": "ring", "variant": ""},
        "rivals": [{"algorithm": "ring", "variant": "in long chunks"}],
        "candidates": [
            {"algorithm": "two_shot", "variant": "", "predicted_s": 1e-5, "samples": 12,
             "median_s": 3e-5, "doubt": 0.02},
            {"algorithm": "ring", "variant": "", "predicted_s": 1.5e-5, "samples": 40,
             "median_s": 2.2e-5, "doubt": 0.01},
            {"algorithm": "rabenseifner", "variant": "", "predicted_s": 2e-5, "samples": 9,
             "median_s": 2e-5, "doubt": 0.09},
            {"algorithm": "double_tree", "variant": "", "predicted_s": 7e-5},
            {"algorithm": "hierarchical", "variant": "", "serves": False},
            {"algorithm": "ring", "variant": "in long chunks", "predicted_s": 1.4e-5}]}]}


class Recorded(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = f"{folder.name}/choices.json"

    def write(self, text):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)

    def said(self, record):
        self.write(json.dumps(record))
        done = run("pith-explain", "--log", self.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_every_way_and_why(self):
        said = self.said(RECORD)
        for line in (r"  rabenseifner +20\.00 us +20\.00 us +9\.4 % +9  10\.0 % faster than what "
                     "is taken, which may be chance",
                     r"\* ring +15\.00 us +22\.00 us +1\.0 % +40  taken",
                     r"  two_shot .* 36\.4 % slower than what is taken",
                     r"  ring in long chunks +14\.00 us +-  +is to be tried",
                     r"  double_tree .* not tried: predicted 7 times as dear as the cheapest",
                     r"  hierarchical +- .* needs hosts with several ranks, each as many",
                     r"Measured regret of ring: 10\.0 %",
                     r"allreduce of up to 64K bytes, 90 calls timed"):
            self.assertRegex(said, f"(?m)^{line}$")
        self.assertIn("learns from times; written ", said)
        names = re.findall(r"(?m)^[* ] (\w[\w ]*?) +(?:[\d.]+ us|-) ", said)
        self.assertEqual(names, ["rabenseifner", "ring", "two_shot", "ring in long chunks",
                                 "double_tree", "hierarchical"])

    def test_json(self):
        self.write(json.dumps(RECORD))
        done = run("pith-explain", "--log", self.path, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        cell = found["cells"][0]
        self.assertEqual((cell["taken"], cell["fastest"]), ("ring", "rabenseifner"))
        self.assertAlmostEqual(cell["regret"], 0.1)
        ways = {one["name"]: one for one in cell["ways"]}
        self.assertEqual(ways["two_shot"]["measured_s"], 3e-5)
        self.assertNotIn("measured_s", ways["double_tree"])
        self.assertFalse(ways["hierarchical"]["serves"])

    def test_picture(self):
        record = copy.deepcopy(RECORD)
        smaller = copy.deepcopy(record["cells"][0])
        smaller["bytes"] = 1024
        record["cells"].append(smaller)
        self.write(json.dumps(record))
        picture = self.path + ".svg"
        done = run("pith-explain", "--log", self.path, "--svg", picture)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Measured regret of ring", done.stdout)
        with open(picture, encoding="utf-8") as file:
            groups = re.findall(r"(?s)<g><title>(.*?)</title>(.*?)</g>", file.read())
        lines = {name: (drawn.count("<circle"), len(re.search('points="(.*?)"', drawn)[1].split()))
                 for name, drawn in groups}
        # A dot for each measured size; lines go on beyond what was called, but for variants.
        self.assertEqual(lines["rabenseifner"], (2, 13))
        self.assertEqual(lines["double_tree"], (0, 13))
        self.assertEqual(lines["ring in long chunks"], (0, 2))
        self.assertNotIn("hierarchical", lines)
        for more, said in ((["--collective", "broadcast"],
                            "--collective is broadcast, expected one of which calls were timed"),
                           (["--svg", "/nowhere/x"], "--svg is /nowhere/x, which cannot be")):
            flags = more if more[0] == "--svg" else ["--svg", picture, *more]
            done = run("pith-explain", "--log", self.path, *flags)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)

    def test_why_nothing_is_tried(self):
        record = copy.deepcopy(RECORD)
        record["learns"] = False
        self.assertRegex(self.said(record),
                         "double_tree .* not tried: the communicator does not learn")
        record["cells"][0]["forced"] = True
        said = self.said(record)
        self.assertRegex(said, "double_tree .* not tried: PITH_ALGO names another")
        self.assertRegex(said, r"\* ring .* taken as PITH_ALGO says")
        for key in ("samples", "median_s", "doubt"):
            del record["cells"][0]["candidates"][1][key]
        self.assertIn("What is taken has not been measured yet.", self.said(record))
        record["cells"] = []
        self.assertIn("No call has been measured enough yet.", self.said(record))

    def test_bad_files(self):
        def broken(change):
            record = copy.deepcopy(RECORD)
            change(record)
            return json.dumps(record)

        cell = lambda record: record["cells"][0]
        for text, said in (
                ("ring is best", "not a JSON object"),
                ("[]", "not a JSON object"),
                ('{"ranks": 2}', 'its "format" is not "pith choices 1"'),
                (json.dumps(RECORD)[:-20], "not a JSON object"),
                (broken(lambda r: r.pop("cells")), "key 'cells' not found"),
                (broken(lambda r: r.update(ranks="two")), "type must be number"),
                (broken(lambda r: cell(r).update(chosen={"algorithm": "x", "variant": ""})),
                 "what is chosen or tried is no candidate"),
                (broken(lambda r: cell(r)["candidates"][0].update(median_s=0)),
                 "a time is not above 0")):
            self.write(text)
            for more in ([], ["--follow"]):
                done = run("pith-explain", "--log", self.path, *more)
                self.assertEqual(done.returncode, 1, text)
                self.assertIn(f"pith-explain: {self.path} is no record of choices: ", done.stderr)
                self.assertIn(said, done.stderr)
        missing = run("pith-explain", "--log", f"{self.path}.none")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("cannot be read", missing.stderr)
        both = run("pith-explain", "--log", self.path, "--follow", "--json")
        self.assertIn("expected no --json with it: --follow alone, or --svg", both.stderr)
        both = run("pith-explain", "--log", self.path, "--ranks", "4")
        self.assertIn("expected no --ranks with it", both.stderr)
        self.assertNotEqual(run("pith-explain", "--follow").returncode, 0)


@unittest.skipUnless((BIN / "all_reduce_perf").exists(), "all_reduce_perf was not built")
class Running(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = f"{folder.name}/choices.json"

    def call(self, iterations, **variables):
        done = run("all_reduce_perf", "--ranks", "2", "-b", "16K", "-e", "16K", "-n",
                   str(iterations), "-c", "0", PITH_EXPLAIN_LOG=self.path, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("PITH_EXPLAIN_LOG", done.stderr)

    def record(self):
        with open(self.path, encoding="utf-8") as file:
            return json.load(file)

    def cell(self):
        record = self.record()
        self.assertEqual((record["ranks"], record["hosts"], record["ended"]), (2, 1, True))
        return next(one for one in record["cells"]
                    if (one["collective"], one["bytes"]) == ("allreduce", 16384))

    def test_a_job_that_learns(self):
        watching = subprocess.Popen([str(BIN / "pith-explain"), "--log", self.path, "--follow"],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    env=clean({}))
        self.addCleanup(watching.kill)
        self.call(600, PITH_LEARN="1")
        seen, errors = watching.communicate(timeout=30)
        self.assertEqual(watching.returncode, 0, errors)
        cell = self.cell()
        self.assertTrue(self.record()["learns"])
        measured = [one for one in cell["candidates"] if "median_s" in one]
        # What is measured is forgotten where times have changed by a step.
        self.assertGreater(cell["timed_calls"], 30)
        self.assertGreaterEqual(cell["timed_calls"], sum(one["samples"] for one in measured))
        for one in measured:
            self.assertGreater(one["predicted_s"], 0)
            self.assertLess(one["median_s"], 1)
        said = run("pith-explain", "--log", self.path).stdout
        self.assertRegex(said, r"(?m)^\* " + re.escape(cell["chosen"]["algorithm"]))
        if len(measured) > 1:
            self.assertRegex(said, r"Measured regret: [\d.]+ % in the geometric mean")
        self.assertRegex(seen, r"written \d+ s ago, when the communicator ended")

    def test_a_job_that_does_not(self):
        self.call(50, PITH_LEARN="0")
        cell = self.cell()
        self.assertFalse(self.record()["learns"])
        measured = [one for one in cell["candidates"] if "median_s" in one]
        self.assertEqual([one["algorithm"] for one in measured], [cell["chosen"]["algorithm"]])
        self.call(50, PITH_LEARN="0", PITH_ALGO="allreduce:recursive_doubling")
        self.assertEqual(self.cell()["chosen"]["algorithm"], "recursive_doubling")
        self.assertTrue(self.cell()["forced"])

    def test_a_file_that_cannot_be_written(self):
        done = run("all_reduce_perf", "--ranks", "2", "-b", "1K", "-e", "1K", "-n", "20", "-c", "0",
                   PITH_EXPLAIN_LOG="/nowhere/choices")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("PITH_EXPLAIN_LOG: /nowhere/choices"), 1, done.stderr)

if __name__ == "__main__":
    unittest.main()
