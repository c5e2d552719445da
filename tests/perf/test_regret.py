#!/usr/bin/env python3
"""The regret benchmark: its arithmetic, a tiny grid, its end by a signal. Usage: ... BIN_FOLDER"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.dom.minidom

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
PERF = pathlib.Path(__file__).resolve().parents[2] / "perf"
os.environ["PITH_BIN"] = str(BIN)
sys.path.insert(0, str(PERF / "regret"))
import heatmap  # noqa: E402
import links  # noqa: E402  # which makes the laboratory's modules known
import namespaces  # noqa: E402
import rivals  # noqa: E402
import score  # noqa: E402
import tables  # noqa: E402


def cell(times, chosen="ring", tried=(), costs=None, **more):
    """`times`: microseconds by name, of which `tried` were only tried."""
    candidates = [{"name": name, "us": took, "rounds": 0 if name in tried else 5,
                   **({"costs": {"textbook": costs[name]}} if costs and name in costs else {})}
                  for name, took in times.items()]
    return {"link": "shm", "collective": "allreduce", "bytes": 65536, "ranks": 4, "density": None,
            "chosen": chosen, "candidates": candidates, **more}


def left_out(**more):
    return {"link": "shm", "collective": "allreduce", "bytes": 8, "ranks": 4, "density": None,
            "left_out": "no time", **more}


class Arithmetic(unittest.TestCase):
    def test_regret(self):
        one = cell({"default": 12, "default-again": 9, "ring": 11, "two_shot": 10})
        self.assertEqual(score.best_of(one), "two_shot")  # the second default is no candidate
        self.assertAlmostEqual(score.regret_of(one), 0.2)
        self.assertAlmostEqual(score.regret_of(one, "ring"), 0.1)
        self.assertIsNone(score.regret_of(one, "direct"))

    def test_never_negative(self):
        one = cell({"default": 10, "default-again": 10, "ring": 11})
        self.assertEqual(score.regret_of(one), 0)
        # One call by itself may have been lucky: who was only tried cannot be the best.
        lucky = cell({"default": 10, "default-again": 10, "ring": 2}, tried=("ring",))
        self.assertEqual((score.best_of(lucky), score.regret_of(lucky, "ring")), ("default", 0))

    def test_same_plan(self):
        times = {"default": 12, "default-again": 12, "ring": 10}
        self.assertEqual(score.regret_to_others(cell(times)), 0)
        self.assertAlmostEqual(score.regret_to_others(cell(times, chosen="two_shot")), 0.2)
        sparse = cell({"default": 12, "default-again": 12, "recursive-doubling": 10},
                      chosen="topk_recursive_doubling", density=0.01)
        self.assertEqual(score.regret_to_others(sparse), 0)

    def test_harness(self):
        first, second = score.regrets_of_same(cell({"default": 10, "default-again": 11, "ring": 1}))
        self.assertEqual(first, 0)
        self.assertAlmostEqual(second, 0.1)

    def test_spread(self):
        found = score.spread([0, 3])
        self.assertAlmostEqual(found["geomean"], 1)  # sqrt(1 * 4) - 1
        self.assertEqual((found["p95"], found["worst"]), (3, 3))
        self.assertEqual(score.percentile(list(range(1, 101)), 0.95), 95)
        self.assertIsNone(score.spread([]))
        self.assertTrue(score.reaches({"geomean": 0.03, "p95": 0.15, "worst": 1}))
        self.assertFalse(score.reaches({"geomean": 0.031, "p95": 0.15, "worst": 1}))

    def test_groups(self):
        times = {"default": 12, "default-again": 12, "ring": 10}
        cells = [cell(times), cell({**times, "default": 10}, ranks=2),
                 cell(times, density=0.01, collective="sparse_allreduce", link="1g"), left_out()]
        found = score.summaries(cells)
        self.assertEqual(found["all", ""]["cells"], 3)
        self.assertEqual(found["collective", "sparse_allreduce 1 %"]["cells"], 1)
        self.assertAlmostEqual(found["link", "1g"]["regret"]["worst"], 0.2)
        self.assertEqual(found["ranks", "2"]["regret"]["worst"], 0)
        self.assertEqual(score.wins(cells), {"allreduce": {"ring": 1, "default": 1},
                                             "sparse_allreduce 1 %": {"ring": 1}})
        self.assertEqual(score.summaries([])["all", ""]["regret"], None)


class Rivals(unittest.TestCase):
    def test_best_fixed(self):
        cells = [cell({"default": 10, "ring": 10, "direct": 11, "streams=1": 10, "tree": 9}),
                 cell({"default": 10, "ring": 20, "direct": 11, "streams=1": 10})]
        self.assertEqual(rivals.best_fixed(cells, score.regret_of), "direct")
        self.assertIsNone(rivals.best_fixed([cell({"default": 1})], score.regret_of))

    def test_openmpi(self):
        def chosen(collective, size, ranks):
            return rivals.openmpi({"collective": collective, "bytes": size, "ranks": ranks})
        self.assertEqual(chosen("allreduce", 8, 4), "ring")
        self.assertEqual(chosen("allreduce", 4095, 2), "recursive_doubling")
        self.assertEqual(chosen("allreduce", 4096, 2), "ring")
        self.assertEqual(chosen("allreduce", 1 << 26, 8), "rabenseifner")
        # Their sizes are those of a block: 2 MiB are 512 KiB each of four ranks.
        self.assertEqual(chosen("reduce_scatter", 2 << 20, 4), "recursive_halving")
        self.assertEqual(chosen("reduce_scatter", 4 << 20, 4), "views")
        self.assertIsNone(chosen("sparse_allreduce", 8, 4))
        self.assertIsNone(chosen("allreduce", 8, 16))

    def test_textbook(self):
        one = cell({"default": 1, "ring": 1, "direct": 3}, costs={"ring": 5, "direct": 4})
        self.assertEqual(rivals.RIVALS["textbook"](one), "direct")
        self.assertEqual(rivals.RIVALS["textbook-laid"](one), "direct")
        found = score.rival_regrets([one])
        self.assertAlmostEqual(found["textbook", "allreduce"]["spread"]["worst"], 2)
        self.assertEqual(found["fixed", "allreduce"]["choice"], "ring")


class Output(unittest.TestCase):
    cells = [cell({"default": 12, "default-again": 12, "ring": 10}), left_out()]

    def test_tables(self):
        self.assertRegex(tables.summary_lines(score.summaries(self.cells))[1],
                         r"^all +1 \| +20\.0 +20 +20 \|")
        self.assertRegex(tables.cell_lines(self.cells)[1], r"64K ring +12\.0 ring +10\.0 +20\.0")
        self.assertEqual(tables.left_out_lines(self.cells),
                         ["left out, no time: shm, 4 ranks: 1 cells"])
        self.assertIn("missed", tables.target_line(score.summary_of(self.cells)["regret"]))

    def test_heat_map(self):
        svg = heatmap.heat_map(self.cells, "a < b")
        drawn = xml.dom.minidom.parseString(svg)
        fills = [box.getAttribute("fill") for box in drawn.getElementsByTagName("rect")]
        self.assertEqual(fills.count(heatmap.colour_of(0.2)), 2)  # the cell's and the legend's
        self.assertEqual(fills.count(heatmap.LEFT_OUT), 1)
        xml.dom.minidom.parseString(heatmap.heat_map([], "nothing"))

    def test_links(self):
        link = links.parse_link("0.1g+20ms")
        self.assertEqual((link.rate, link.delay, link.kind), (1e8, 0.02, "switch"))
        self.assertEqual(links.parse_link("10g").kind, "veth")
        for wrong in ("0g", "1g+ms", "infiniband", "1g+1ms "):
            self.assertRaises(ValueError, links.parse_link, wrong)


COMMAND = [sys.executable, "-B", str(PERF / "regret.py")]


def run(*arguments):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=100,
                          check=False)


def hosts_of(process):
    return [name for name in namespaces.namespaces()
            if name.startswith(f"{namespaces.PREFIX}-{process.pid}-")]


class Replay(unittest.TestCase):
    def test_tiny_grid(self):
        with tempfile.TemporaryDirectory() as folder:
            report, picture = (pathlib.Path(folder) / name for name in ("out.json", "out.svg"))
            done = run("--links", "shm,loopback", "--ranks", "2", "--sizes", "8,64K",
                       "--densities", "0.01", "--minutes", "0.5", "--rounds-max", "3", "--cells",
                       "--json", str(report), "--svg", str(picture))
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.loads(report.read_text(encoding="utf-8"))
            xml.dom.minidom.parse(str(picture))
        self.assertEqual(document["errors"], {})
        self.assertGreaterEqual(document["machine"]["cores"], 1)
        cells = document["cells"]
        self.assertEqual(len(cells), 2 * 2 * 5)
        timed = score.complete(cells)
        self.assertTrue(timed)  # a busy machine may leave no time for some
        self.assertRegex(done.stdout, rf"(?m)^all +{len(timed)} \|")
        for one in timed:
            self.check_cell(one)

    def check_cell(self, one):
        names = [candidate["name"] for candidate in one["candidates"]]
        self.assertEqual(names[:2], ["default", "default-again"])
        self.assertEqual(len(names), len(set(names)))
        self.assertGreaterEqual(len(score.tried_times_of(one)), 3)
        self.assertEqual("streams=1" in names, one["link"] == "loopback" and one["bytes"] > 8)
        self.assertTrue(all(candidate["us"] > 0 for candidate in one["candidates"]))
        if one["density"] is None:
            self.assertIn(one["chosen"], names)

    def test_call_limit(self):
        done = run("--links", "shm", "--ranks", "2", "--sizes", "64K", "--collectives", "allreduce",
                   "--minutes", "0.3", "--call-limit", "1e-9")
        self.assertEqual(done.returncode, 1)
        self.assertIn("over the limit of a call: shm, 2 ranks: 1 cells", done.stdout)

    def test_no_time(self):
        done = run("--links", "shm", "--ranks", "2", "--minutes", "0.01")
        self.assertEqual(done.returncode, 1)
        self.assertIn("shm, 2 ranks: no time", done.stdout)

    @unittest.skipIf(namespaces.unavailable("veth"), "no network namespaces here")
    def test_ended_by_a_signal(self):
        """It tells what was measured, and leaves neither ranks nor their hosts behind."""
        process = subprocess.Popen(
            [*COMMAND, "--links", "1g", "--ranks", "2", "--sizes", "8", "--minutes", "1"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            end = time.monotonic() + 60
            while len(hosts_of(process)) < 2 and time.monotonic() < end:
                time.sleep(0.05)
            self.assertGreaterEqual(len(hosts_of(process)), 2)
            process.terminate()
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, errors)
        self.assertIn("# Regret of the library's choices", output)
        self.assertEqual(hosts_of(process), [])

    def test_refusals(self):
        for arguments, words in ((["--links", "carrier"], "carrier"),
                                 (["--collectives", "barrier"], "barrier"),
                                 (["--ranks", "two"], "--ranks")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)
        flags = ["--ranks", "2", "--transport", "shm", "--out", os.devnull]
        for extra, variables, words in ((["--settings", "speed=9"], {}, "speed=9"),
                                        ([], {"PITH_ALGO": "ring"}, "PITH_ALGO")):
            done = subprocess.run([str(BIN / "regret_bench"), *flags, *extra], timeout=60,
                                  env={**os.environ, **variables}, capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
