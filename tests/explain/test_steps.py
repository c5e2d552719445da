#!/usr/bin/env python3
"""pith-sim --compress and --svg. Usage: ... BIN_FOLDER"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
SVG = "{http://www.w3.org/2000/svg}"
FAR = {"hosts": 4, "ranks_per_host": 1, "between": {"alpha": 1e-4, "beta": 1e-8}, "gamma": 0}


class Steps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_sim(self, keys, *arguments):
        path = f"{self.folder}/cluster.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(keys, file)
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("PITH_")}
        return subprocess.run([str(BIN / "pith-sim"), *arguments, path], capture_output=True,
                              text=True, timeout=120, env=environment, check=False)

    def found(self, keys, *arguments):
        done = self.run_sim(keys, "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def runs(self, keys, *arguments):
        sizes = self.found(keys, *arguments)["sizes"]
        self.assertEqual(len(sizes), 1)
        return sizes[0], {(run["name"], run.get("density")): run for run in sizes[0]["runs"]}

    def test_as_the_cost_functions_say_on_equal_links(self):
        size, runs = self.runs(FAR, "--bytes", "1M", "--compress", "topk", "--compress", "ar-topk",
                               "--compress", "exdyna", "--densities", "0.01,0.1")
        for name in ("topk:exchange=direct", "topk:exchange=ring", "topk:exchange=split",
                     "topk:exchange=recursive-doubling", "ar-topk:reduction=direct",
                     "ar-topk:reduction=ring", "ar-topk:reduction=tree", "exdyna"):
            for density in (0.01, 0.1):
                with self.subTest(name, density=density):
                    run = runs[name, density]
                    self.assertTrue(run["compressed"])
                    self.assertGreater(run["simulated_s"], 2e-4)
                    # Work is free there, and not in the prediction.
                    self.assertLess(run["simulated_s"], 1.1 * run["predicted_s"])
            self.assertLess(runs[name, 0.01]["simulated_s"], runs[name, 0.1]["simulated_s"])
        direct = runs["topk:exchange=direct", 0.1]["simulated_s"]
        pairs = (1 << 20) / 4 * 0.1
        self.assertAlmostEqual(direct, 1e-4 + 3 * pairs * 1e-8 * (4 + 0.62), delta=0.1 * direct)
        self.assertEqual(size["best"], min(runs.values(), key=lambda r: r["simulated_s"])["name"])

    def test_a_step_computes_too(self):
        arguments = ("--bytes", "256K", "--compress", "topk:density=0.01")
        size, runs = self.runs(FAR, *arguments)
        later, longer = self.runs(FAR, *arguments, "--compute", "50ms")
        self.assertEqual(size["best"], later["best"])
        for name, run in runs.items():
            self.assertEqual(run["step_s"], run["simulated_s"])
            self.assertAlmostEqual(longer[name]["step_s"], run["step_s"] + 0.05, delta=1e-12)
        said = self.run_sim(FAR, *arguments, "--compute", "50ms").stdout
        best, dense = (min(run["step_s"] for run in longer.values() if run["compressed"] == which)
                       for which in (True, False))
        self.assertIn("A step computes 50.00 ms", said)
        self.assertRegex(said, rf"(?m)^density 0.01: a step of [\d.]+ ms by topk:exchange=\S+, "
                               rf"{dense / best:.2f} times as fast as dense$")
        self.assertRegex(said, r"(?m)^dense: a step of ")

    def test_gossip_is_no_sum(self):
        arguments = ("--bytes", "256K", "--compress", "choco", "--compress", "topk")
        size, runs = self.runs(FAR, *arguments)
        sums = {name: run for (name, _), run in runs.items() if "gossips" not in run}
        self.assertEqual(len(runs) - len(sums), 1)
        self.assertEqual(size["best"], min(sums, key=lambda name: sums[name]["simulated_s"]))
        said = self.run_sim(FAR, *arguments).stdout
        self.assertRegex(said, r"(?m)^density 0.01: a step of [\d.]+ [um]s by choco, gossip with "
                               r"neighbours, which is no sum$")
        self.assertRegex(said, r"(?m)^density 0.01: .* by topk:exchange=\S+, .* as fast as dense$")
        self.assertRegex(said, r"(?m)^\*      0.01  choco .* no sum$")

    def test_what_specs_fix(self):
        _, runs = self.runs(FAR, "--bytes", "64K", "--compress",
                            "topk:exchange=split,values=bf16,density=0.5", "--compress", "bf16")
        compressed = {name for (name, _), run in runs.items() if run["compressed"]}
        self.assertEqual(compressed, {"topk:exchange=split", "bf16"})
        self.assertEqual(runs["topk:exchange=split", 0.5]["density"], 0.5)
        self.assertIn(("bf16", None), runs)
        _, runs = self.runs({"hosts": 2, "ranks_per_host": 4, "between": "1g"}, "--bytes", "64K",
                            "--compress", "topk:hierarchy=host", "--densities", "0.05")
        self.assertIn(("topk:exchange=direct", 0.05), runs)

    def test_seeds_and_changes(self):
        arguments = ("--bytes", "64K", "--compress", "topk:density=0.1")
        first = self.found({**FAR, "seed": 1}, *arguments)
        self.assertEqual(first, self.found({**FAR, "seed": 1}, *arguments))
        self.assertNotEqual(first, self.found({**FAR, "seed": 2}, *arguments))
        slow = self.runs({**FAR, "bandwidth": [{"at": 0, "factor": 0.1}]}, *arguments)[1]
        usual = self.runs(FAR, *arguments)[1]
        key = ("topk:exchange=direct", 0.1)
        self.assertGreater(slow[key]["simulated_s"], 3 * usual[key]["simulated_s"])

    def picture(self, *arguments):
        path = f"{self.folder}/times.svg"
        done = self.run_sim(FAR, *arguments, "--svg", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        root = xml.etree.ElementTree.parse(path).getroot()
        lines = [len(line.get("points").split()) for line in root.iter(f"{SVG}polyline")]
        return lines, len(list(root.iter(f"{SVG}circle"))), "".join(root.itertext())

    def test_pictures(self):
        lines, marks, said = self.picture("--bytes", "1K:64K")
        self.assertEqual(set(lines), {7})
        self.assertEqual(marks, 7)
        self.assertIn("dots: what the library takes", said)
        lines, marks, said = self.picture("--bytes", "64K", "--compress", "topk", "--densities",
                                          "0.001,0.01,0.1")
        self.assertEqual(set(lines), {3})
        self.assertEqual(marks, 3)
        self.assertIn("by density", said)
        lines, marks, said = self.picture("--bytes", "16K:64K", "--compress", "topk", "--densities",
                                          "0.01,0.1")
        self.assertEqual(set(lines), {3})
        self.assertEqual(marks, 3)
        self.assertIn("topk:exchange=direct, 0.01", said)

    def test_mistakes_are_named(self):
        for arguments, said in (
                (["--compress", "topq"], "expected one of none"),
                (["--compress", "none"], "--compress is none, which sums all elements"),
                (["--compress", "topk:density=auto"], "expected a number for density"),
                (["--compress", "auto"], "expected the schemes that it may choose"),
                (["--compress", "topk", "--densities", "0.1,2"], "--densities has 2, expected"),
                (["--compress", "topk", "--bytes", "2"], "--bytes is 2, expected an element"),
                (["--compress", "topk", "--collective", "broadcast"],
                 "expected allreduce with --compress"),
                (["--compress", "topk", "--bytes", "4G"], "expected at most 4: fewer --bytes"),
                (["--svg", "x"], "expected two sizes as 64:4M, or several --densities, with --svg"),
                (["--bytes", "1K:2K", "--svg", "/nowhere/x"],
                 "--svg is /nowhere/x, which cannot be written")):
            done = self.run_sim(FAR, *arguments)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn("pith-sim: ", done.stderr)
            self.assertIn(said, done.stderr)
        for arguments in (["--densities", "0.1"], ["--compute", "1ms"],
                          ["--compress", "topk", "--only", "ring"]):
            self.assertNotEqual(self.run_sim(FAR, *arguments).returncode, 0)


if __name__ == "__main__":
    unittest.main()
