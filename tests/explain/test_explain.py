#!/usr/bin/env python3
"""pith-explain. Usage: ... BIN_FOLDER"""
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


def run(*arguments, **variables):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PITH_")}
    return subprocess.run([str(BIN / "pith-explain"), *arguments], capture_output=True, text=True,
                          timeout=60, env={**environment, **variables}, check=False)


class PithExplain(unittest.TestCase):
    def explained(self, *arguments, **variables):
        done = run("--json", *arguments, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def answer(self, *arguments, **variables):
        """For one size; its candidates by name."""
        sizes = self.explained(*arguments, **variables)["sizes"]
        self.assertEqual(len(sizes), 1)
        return sizes[0], {one["name"]: one for one in sizes[0]["candidates"]}

    def test_cost_by_hand(self):
        answer, by_name = self.answer("--bytes", "8K", "--ranks", "8", "--alpha", "10us",
                                      "--beta", "1e-9", "--gamma", "1e-10")
        self.assertEqual(answer["bytes"], 8192)
        ring = 14 * (10e-6 + 1024e-9) + 7 * 1024e-10
        self.assertAlmostEqual(by_name["ring"]["cost_s"], ring, delta=1e-12)
        doubling = 3 * (10e-6 + 8192e-9 + 8192e-10)
        self.assertAlmostEqual(by_name["recursive_doubling"]["cost_s"], doubling, delta=1e-12)

    def test_in_order_and_regret(self):
        for arguments in (["--ranks", "8"], ["--ranks", "64", "--hosts", "8"], ["--link", "shm"],
                          ["--collective", "allgather", "--bytes", "1K"],
                          ["--collective", "barrier"],
                          ["--compress", "topk:density=0.01", "--link", "1g,+5ms"]):
            answer, by_name = self.answer(*arguments)
            for is_open in (True, False):
                costs = [one["cost_s"] for one in answer["candidates"]
                         if ("closed" not in one) == is_open]
                self.assertEqual(costs, sorted(costs))
            first = answer["candidates"][0]
            self.assertEqual(answer["cheapest"], first["name"])
            taken = by_name[answer["taken"]]
            self.assertNotIn("closed", taken)
            self.assertAlmostEqual(answer["regret"], taken["cost_s"] / first["cost_s"] - 1)
            self.assertGreaterEqual(answer["regret"], 0)

    def test_why_not(self):
        _, by_name = self.answer("--ranks", "64")
        self.assertEqual(by_name["two_shot"]["closed"], "serves at most 32 ranks")
        _, by_name = self.answer("--collective", "broadcast")
        self.assertEqual(by_name["views"]["closed"], "needs memory that ranks share")
        _, by_name = self.answer("--collective", "broadcast", "--views")
        self.assertNotIn("closed", by_name["views"])

    def test_text_says_where_the_rule_differs(self):
        answer, _ = self.answer("--table", "32K:32K", "--hosts", "8", "--link", "1g")
        self.assertNotEqual(answer["taken"], answer["cheapest"])
        said = run("--bytes", "32K", "--hosts", "8", "--link", "1g").stdout
        self.assertIn(f"takes {answer['taken']}, but by this model {answer['cheapest']} is the "
                      "cheapest", said)
        self.assertIn(f"Regret by this model: {100 * answer['regret']:.1f} %", said)
        self.assertRegex(said, r"(?m)^\* recursive_doubling .* taken, ")
        self.assertRegex(said, r"(?m)^  rabenseifner .*the cheapest, but not taken$")

    def test_far_links_change_what_is_taken(self):
        near, _ = self.answer("--bytes", "1K", "--hosts", "8", "--link", "10g")
        self.assertEqual(near["taken"], "recursive_doubling")
        far, _ = self.answer("--bytes", "1K", "--hosts", "8", "--link", "10g,+20ms")
        self.assertEqual(far["taken"], "direct")
        _, at_once = self.answer("--bytes", "1K", "--link", "10g", "--alpha", "1us")
        self.assertAlmostEqual(at_once["direct"]["cost_s"],
                               (1 + 6 * 0.5) * 1e-6 + 7 * 1024 * (0.8e-9 + 0.2e-9), delta=1e-12)

    def test_settings_count(self):
        answer, _ = self.answer(PITH_ALGO="allreduce:double_tree")
        self.assertEqual((answer["taken"], answer["forced"]), ("double_tree", True))
        self.assertIn("taken as PITH_ALGO says", run(PITH_ALGO="double_tree").stdout)
        self.assertFalse(self.answer()[0]["forced"])

    def test_compressed_forms(self):
        answer, by_name = self.answer("--compress", "topk:density=0.01", "--link", "100m")
        self.assertTrue(answer["taken"].startswith("topk:"))
        self.assertEqual(answer["elected"], (4 << 20) // 4 // 100)
        self.assertEqual(by_name["topk:exchange=split"]["closed"], "needs exchange=split")
        self.assertNotIn("closed", by_name["ring"])  # bypass=auto might take it
        for scheme in ("ar-topk", "ar-topk:reduction=ring", "exdyna", "exdyna:rule=intended",
                       "micro", "deft", "bf16", "int8", "qsgd:bits=2", "sign", "efsign",
                       "terngrad", "onebit", "3lc", "powersgd", "atomo", "randomk", "fp16",
                       "arc-topk", "arc-topk:sketch=1,values=bf16",
                       "int8:map=dynamic", "signum", "bounded:abs=0.01", "lossless",
                       "threshold:value=0.1", "sidco", "dgc", "clt-k", "wangni", "adaptive",
                       "gtopk", "gtopk:values=bf16",
                       "topk:exchange=split,values=f32", "topk:hierarchy=host",
                       "topk:exchange=split,values=int4", "choco:graph=torus",
                       "topk:exchange=recursive-doubling,values=f16"):
            answer, by_name = self.answer("--compress", scheme, "--link", "100m", "--hosts", "4")
            self.assertTrue(by_name[answer["taken"]]["compressed"], scheme)
            self.assertTrue(answer["bypass"].startswith("compressed"), answer["bypass"])
        answer, by_name = self.answer("--compress", "topk", "--bytes", "64", "--link", "shm")
        self.assertTrue(answer["bypass"].startswith("dense: bypass=auto"), answer["bypass"])
        self.assertFalse(by_name[answer["taken"]]["compressed"])
        answer, by_name = self.answer("--compress", "topk:bypass=never", "--bytes", "64")
        self.assertTrue(by_name[answer["taken"]]["compressed"])
        self.assertEqual(by_name["ring"]["closed"], "compressed: bypass=never")
        answer, _ = self.answer("--compress", "topk:hierarchy=host")
        self.assertIn("all ranks are on one host", answer["bypass"])
        self.assertIn("dense", self.answer("--compress", "none")[0]["bypass"])
        answer, by_name = self.answer("--compress", "auto:schemes=topk+onebit+ar-topk+deft")
        self.assertEqual(answer["taken"], "onebit")  # of the first call
        self.assertTrue(answer["bypass"].startswith("auto begins with onebit"), answer["bypass"])
        self.assertLessEqual({"topk:exchange=ring", "deft", "ring"}, by_name.keys())
        said = run("--compress", "choco", "--link", "100m", "--hosts", "4").stdout
        self.assertIn("a step of gossip with neighbours, which is no sum", said)
        self.assertNotIn("cheapest", said)

    def test_coded_moves(self):
        for collective, carrier, sent in (("allgather", "ring", 7), ("broadcast", "chain", 7 / 8),
                                          ("reduce_scatter", "pairwise", 7),
                                          ("alltoall", "pairwise", 7)):
            answer, by_name = self.answer("--collective", collective, "--compress", "int8",
                                          "--link", "1g", "--bytes", "16M")
            self.assertEqual(answer["taken"], f"int8 by {carrier}")
            self.assertEqual(answer["plain_bytes"], sent * (16 << 20))
            self.assertLess(answer["sent_bytes"], 0.26 * answer["plain_bytes"])
            dense = min(one["cost_s"] for one in answer["candidates"] if not one["compressed"]
                        and not one["closed"].startswith("needs"))
            self.assertLess(by_name[answer["taken"]]["cost_s"], 0.35 * dense)
            self.assertTrue(all("closed" in one for one in answer["candidates"]
                                if not one["compressed"]))
        said = run("--collective", "alltoall", "--compress", "qsgd:bits=4", "--bytes", "1M").stdout
        self.assertRegex(said, r"262144 elements; a rank sends 9.\d+e\+05 bytes instead of 7.34e")

    def test_table(self):
        sizes = self.explained("--table", "1K:1M")["sizes"]
        self.assertEqual([at["bytes"] for at in sizes], [1 << i for i in range(10, 21)])
        printed = run("--table", "1K:1M").stdout.splitlines()
        self.assertEqual([line.split()[:2] for line in printed[2:-1]][-1],
                         ["1M", sizes[-1]["taken"]])
        self.assertIn(f"{100 * max(at['regret'] for at in sizes):.1f} % at worst", printed[-1])

    def test_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/costs.svg"
            done = run("--table", "64:1M", "--compress", "topk", "--svg", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            root = xml.etree.ElementTree.parse(path).getroot()
            sizes = self.explained("--table", "64:1M", "--compress", "topk")["sizes"]
            lines = list(root.iter(f"{SVG}polyline"))
            self.assertEqual(len(lines), len(sizes[0]["candidates"]))
            for line in lines:
                self.assertEqual(len(line.get("points").split()), len(sizes))
            self.assertEqual(len(list(root.iter(f"{SVG}circle"))), len(sizes))

    def test_mistakes_are_named(self):
        for arguments, said in (
                (["--bytes", "4X"], '--bytes is "4X", expected a size as 4096, 64K or 4M'),
                (["--bytes=-4"], '--bytes is "-4", expected a size'),
                (["--bytes", "0"], '--bytes is "0", expected a size'),
                (["--log", ""], "--log is empty, expected a value"),
                (["--link", "3g"], '--link is "3g", expected shm, 10g, 1g or 100m'),
                (["--link", "1g,+5"], '--link is "1g,+5", expected'),
                (["--link", "1g,5ms"], '--link is "1g,5ms", expected'),
                (["--table", "64"], '--table is "64", expected two sizes'),
                (["--table", "4K:64"], '--table is "4K:64", expected two sizes, the smaller'),
                (["--collective", "sum"], '--collective is "sum", expected one of allreduce, '),
                (["--hosts", "9"], "--hosts is 9, expected at most --ranks, 8"),
                (["--hosts", "2", "--views"], "--hosts is 2, expected 1 with --views"),
                (["--compress", "nothing"], "expected one of none"),
                (["--compress", "topk", "--collective", "broadcast"],
                 "expected bf16, fp16, int8, fp8, qsgd, terngrad or natural, without feedback=1"),
                (["--compress", "int8", "--collective", "gather"],
                 "--collective is gather, expected allreduce, allgather, reduce_scatter,"),
                (["--svg", "/nowhere/x"], "--svg is /nowhere/x, which cannot be written")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn("pith-explain: ", done.stderr)
            self.assertIn(said, done.stderr)
        self.assertNotEqual(run("--ranks", "1").returncode, 0)
        wrong = run(PITH_ALGO="nothing")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn('PITH_ALGO names "nothing"', wrong.stderr)


if __name__ == "__main__":
    unittest.main()
