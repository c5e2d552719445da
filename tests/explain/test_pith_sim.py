#!/usr/bin/env python3
"""pith-sim. Usage: ... BIN_FOLDER"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()


class PithSim(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def cluster(self, **keys):
        path = f"{self.folder}/cluster.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(keys, file)
        return path

    def run_sim(self, *arguments, **variables):
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("PITH_")}
        return subprocess.run([str(BIN / "pith-sim"), *arguments], capture_output=True, text=True,
                              timeout=120, env={**environment, **variables}, check=False)

    def sizes(self, *arguments, **variables):
        done = self.run_sim("--json", *arguments, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["sizes"]

    def outcome(self, *arguments, **variables):
        """For one size; its runs by name."""
        sizes = self.sizes(*arguments, **variables)
        self.assertEqual(len(sizes), 1)
        return sizes[0], {run["name"]: run for run in sizes[0]["runs"]}

    def test_as_the_cost_functions_say_on_equal_links(self):
        link = {"alpha": 1e-5, "beta": 1e-9}
        path = self.cluster(ranks_per_host=8, inside=link, gamma=1e-10)
        outcome, runs = self.outcome(path, "--bytes", "8K")
        for name in ("ring", "recursive_doubling", "rabenseifner", "two_shot", "direct"):
            self.assertAlmostEqual(runs[name]["simulated_s"], runs[name]["predicted_s"],
                                   delta=1e-11)
        times = [run["simulated_s"] for run in outcome["runs"] if "closed" not in run]
        self.assertEqual(times, sorted(times))
        self.assertEqual(outcome["oracle"], outcome["runs"][0]["name"])
        taken = runs[outcome["taken"]]["simulated_s"]
        self.assertAlmostEqual(outcome["regret"], taken / times[0] - 1)

    def test_links_inside_and_between(self):
        keys = {"hosts": 4, "ranks_per_host": 4, "inside": "shm"}
        near = self.outcome(self.cluster(between="10g", **keys))[1]
        far = self.outcome(self.cluster(between="10g,+5ms", **keys))[1]
        alone = self.outcome(self.cluster(ranks_per_host=[4]))[1]
        for name in ("ring", "two_shot"):
            self.assertGreater(far[name]["simulated_s"], 5e-3)
            self.assertGreater(far[name]["simulated_s"], near[name]["simulated_s"])
            self.assertGreater(near[name]["simulated_s"], alone[name]["simulated_s"])

    def test_shared_uplinks(self):
        keys = {"hosts": 2, "ranks_per_host": 8, "between": "1g"}
        own = self.outcome(self.cluster(uplink="own", **keys))[1]
        shared = self.outcome(self.cluster(uplink="shared", **keys))[1]
        # One rank of a host sends to the other host in a ring, all do so at once in two-shot.
        self.assertAlmostEqual(shared["ring"]["simulated_s"], own["ring"]["simulated_s"],
                               delta=0.05 * own["ring"]["simulated_s"])
        self.assertGreater(shared["two_shot"]["simulated_s"], 5 * own["two_shot"]["simulated_s"])

    def test_changes_and_jitter(self):
        keys = {"ranks_per_host": [1, 1], "between": "1g"}
        usual = self.outcome(self.cluster(**keys))[1]["ring"]["simulated_s"]
        slower = self.outcome(self.cluster(
            bandwidth=[{"at": usual / 2, "factor": 0.5}], **keys))[1]["ring"]["simulated_s"]
        self.assertAlmostEqual(slower / usual, 1.5, delta=0.02)
        shaken = self.cluster(jitter=1e-3, seed=3, **keys)
        first = self.outcome(shaken)[0]
        self.assertEqual(first, self.outcome(shaken)[0])
        self.assertNotEqual(first, self.outcome(self.cluster(jitter=1e-3, seed=4, **keys))[0])

    def test_text_and_table(self):
        path = self.cluster(hosts=4, ranks_per_host=2)
        outcome, _ = self.outcome(path, "--bytes", "1K")
        said = self.run_sim(path, "--bytes", "1K").stdout
        self.assertIn(f"The library takes {outcome['taken']}, the oracle {outcome['oracle']}. "
                      f"Regret: {100 * outcome['regret']:.1f} %.", said)
        sizes = self.sizes(path, "--bytes", "64:64K", "--collective", "broadcast")
        self.assertEqual([at["bytes"] for at in sizes], [1 << i for i in range(6, 17)])
        table = self.run_sim(path, "--bytes", "64:64K", "--collective", "broadcast").stdout
        self.assertEqual(len(table.splitlines()), len(sizes) + 3)

    def test_forced(self):
        outcome, _ = self.outcome(self.cluster(ranks_per_host=4), PITH_ALGO="double_tree")
        self.assertEqual((outcome["taken"], outcome["forced"]), ("double_tree", True))

    def test_thousands_of_ranks(self):
        path = self.cluster(hosts=256, ranks_per_host=8)
        outcome, runs = self.outcome(path, "--bytes", "1K", "--only", "rabenseifner,double_tree")
        self.assertEqual(outcome["taken"], "hierarchical")
        self.assertEqual(sum("simulated_s" in run for run in runs.values()), 3)
        self.assertEqual(runs["ring"]["closed"], "not among --only")
        self.assertEqual(runs["two_shot"]["closed"], "serves at most 32 ranks")

    def test_trace(self):
        path = self.cluster(hosts=2, ranks_per_host=2)
        trace = f"{self.folder}/trace.json"
        done = self.run_sim(path, "--bytes", "4K", "--trace", trace, "--traced", "ring")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(trace, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        calls = [e for e in events if e["ph"] == "X" and e["cat"] == "call"]
        ring = self.outcome(path, "--bytes", "4K")[1]["ring"]["simulated_s"]
        self.assertEqual({e["pid"] for e in calls}, {0, 1, 2, 3})
        self.assertAlmostEqual(max(e["ts"] + e["dur"] for e in calls), ring * 1e6, delta=0.01)

    def test_mistakes_are_named(self):
        good = {"ranks_per_host": 4}
        for keys, said in (
                ({}, '"ranks_per_host" is null, expected whole numbers from 1'),
                ({"ranks_per_host": 0}, '"ranks_per_host" is 0, expected whole numbers'),
                ({"ranks_per_host": [4, 4], "hosts": 3}, '"hosts" is 3, expected as many as'),
                ({"ranks_per_host": 1}, "expected 2 to 16384 ranks in all"),
                ({**good, "between": "3g"}, '"between" is "3g", expected shm, 10g, 1g or 100m'),
                ({**good, "inside": {"alfa": 1}}, '{"alfa":1}, expected alpha and beta'),
                ({**good, "uplink": 1}, '"uplink" is 1, expected shared or own'),
                ({**good, "jitter": -1}, '"jitter" is -1, expected a number of at least 0'),
                ({**good, "bandwidth": [{"at": 1, "factor": 0}]}, "the last factor above 0"),
                ({**good, "views": True, "hosts": 2}, '"views" is true, expected false'),
                ({**good, "nodes": 4}, 'key "nodes" is unknown, expected one of hosts, ')):
            done = self.run_sim(self.cluster(**keys))
            self.assertEqual(done.returncode, 1, keys)
            self.assertIn("pith-sim: ", done.stderr)
            self.assertIn(said, done.stderr)
        path = self.cluster(**good)
        for arguments, said in (
                ([f"{self.folder}/nothing"], "nothing cannot be read"),
                ([path, "--ranks", "5"], "--ranks is 5, expected 2 to 4"),
                ([path, "--bytes", "x"], '--bytes is "x", expected a size'),
                ([path, "--only", "rign"], '--only is "rign", expected one of recursive_doubling'),
                ([path, "--traced", "ring"], '--trace is "", expected a file with --traced'),
                ([path, "--bytes", "1:8", "--trace", "x"], "expected one size with --trace"),
                ([path, "--trace", "/nowhere/x"], "/nowhere/x, which cannot be written")):
            done = self.run_sim(*arguments)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
