#!/usr/bin/env python3
"""Runs the perf programs on tiny sizes: table, JSON, exit status, lists. Usage: ... BIN_FOLDER"""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()

# name: (busbw / algbw among n ranks, has an operation, has a root)
PROGRAMS = {
    "all_reduce_perf": (lambda n: 2 * (n - 1) / n, True, False),
    "all_gather_perf": (lambda n: (n - 1) / n, False, False),
    "broadcast_perf": (lambda n: 1, False, True),
    "reduce_perf": (lambda n: 1, True, True),
    "reduce_scatter_perf": (lambda n: (n - 1) / n, True, False),
    "alltoall_perf": (lambda n: (n - 1) / n, False, False),
    "gather_perf": (lambda n: (n - 1) / n, False, True),
    "scatter_perf": (lambda n: (n - 1) / n, False, True),
    "sendrecv_perf": (lambda n: 1, False, False),
}
NOT_IN_PLACE = ("alltoall_perf", "sendrecv_perf")
KEYS = ["version", "start_time", "args", "env", "nccl_version", "config", "results",
        "out_of_bounds", "average_bus_bandwidth", "errors", "end_time"]


def run(program, *arguments, **variables):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PITH_")}
    return subprocess.run([str(BIN / program), *arguments], capture_output=True, text=True,
                          timeout=60, env={**environment, **variables}, check=False)


def rows_of(output):
    """The lines of the table as a parser of nccl-tests' output reads them: split at spaces."""
    return [line.split() for line in output.splitlines() if line and not line.startswith("#")]


def ranks_of(output):
    return re.findall(r"(?m)^#  Rank +(\d+) Group +0 Pid +\d+ on +\S+ device +\d+ \[", output)


def out_of_bounds(output):
    return re.search(r"^# Out of bounds values : (\d+) (OK|FAILED)$", output, re.M).groups()


class Table(unittest.TestCase):
    def test_every_program(self):
        for program, (_, has_op, has_root) in PROGRAMS.items():
            with self.subTest(program):
                done = run(program, "--ranks", "2", "-b", "256", "-e", "4K", "-f", "4", "-n", "2")
                self.assertEqual(done.returncode, 0, done.stderr)
                rows = rows_of(done.stdout)
                self.assertEqual([row[0] for row in rows], ["256", "1024", "4096"])
                for row in rows:
                    self.assertEqual(len(row), 13, row)
                    self.assertEqual(row[2:5], ["float", "sum" if has_op else "none",
                                                "0" if has_root else "-1"])
                    self.assertEqual(row[8], "0")
                    self.assertEqual(row[12], "N/A" if program in NOT_IN_PLACE else "0")
                    for number in row[5:8] + row[9:12]:
                        float(number)
                self.assertEqual(out_of_bounds(done.stdout), ("0", "OK"))
                self.assertRegex(done.stdout, r"(?m)^# Avg bus bandwidth    : [\d.e+-]+ $")
                self.assertRegex(done.stdout, r"# nThread 1 nGpus 1 minBytes 256 maxBytes 4096 "
                                 r"step: 4\(factor\) warmup iters: 1 iters: 2 agg iters: 1 "
                                 r"validation: 1 graph: 0")
                self.assertEqual(ranks_of(done.stdout), ["0", "1"])

    def test_alone(self):
        """Without a launcher and --ranks it is one process, as nccl-tests is."""
        small = ("-b", "8", "-e", "8", "-n", "1")
        for flags, ranks in (((), 1), (("-g", "2"), 2), (("-t", "2", "-g", "2"), 4)):
            with self.subTest(flags):
                done = run("all_reduce_perf", *small, *flags)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(len(rows_of(done.stdout)), 1)
                self.assertEqual(out_of_bounds(done.stdout), ("0", "OK"))
                told = re.findall(r"(?m)^#  Rank +(\d+) Group +0 Pid +(\d+) ", done.stdout)
                self.assertEqual([rank for rank, _ in told], [str(r) for r in range(ranks)])
                self.assertEqual(len({process for _, process in told}), 1)

    def test_types_operations_and_roots(self):
        done = run("all_reduce_perf", "--ranks", "3", "-b", "100", "-e", "100", "-n", "1", "-d",
                   "all", "-o", "all")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = rows_of(done.stdout)
        self.assertEqual(len(rows), 12 * 6 + 6 * 6)  # six operations for integers only
        self.assertEqual({row[8] for row in rows} | {row[12] for row in rows}, {"0"})
        done = run("broadcast_perf", "--ranks", "3", "-b", "64", "-e", "64", "-n", "1", "-r", "all")
        self.assertEqual([row[4] for row in rows_of(done.stdout)], ["0", "1", "2"])

    def test_threads_and_groups(self):
        for blocking, ranks in enumerate((["--ranks", "1", "-t", "4"], ["--ranks", "1", "-g", "3"],
                                          ["--ranks", "2", "-t", "2", "-g", "2"],
                                          ["--ranks", "1", "-t", "2", "-p", "1"])):
            with self.subTest(ranks=ranks, blocking=blocking):
                done = run("all_reduce_perf", *ranks, "-b", "1K", "-e", "2K", "-i", "1K", "-n", "3",
                           "-m", "2", "-u", "1", "-z", str(blocking))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual([row[0] for row in rows_of(done.stdout)], ["1024", "2048"])

    def test_algorithms(self):
        """Those that are listed can be forced, with their collective and without, and are told."""
        names = run("all_reduce_perf", "--algo", "list").stdout.split()
        self.assertIn("allreduce:ring", names)
        for name in [*names, "ring"]:
            done = run("all_reduce_perf", "--ranks", "2", "-b", "64", "-e", "64", "-n", "1",
                       "--algo", name)
            self.assertEqual(done.returncode, 0, done.stderr)
            told = re.search(r"(?m)^# Algorithms of float: (\w+) from 64 B$", done.stdout)[1]
            self.assertEqual(told, name.rpartition(":")[2])


class Json(unittest.TestCase):
    def test_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            for name in ("out.json", "out.json.0"):
                done = run("all_reduce_perf", "--ranks", "4", "-b", "64", "-e", "256", "-f", "2",
                           "-n", "2", "-J", path, PITH_SECRET="hush", PITH_LOG="error")
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    text = file.read()
            self.assertNotIn("hush", text)
            self.check_document(json.loads(text), rows_of(done.stdout))

    def check_document(self, document, rows):
        self.assertEqual(list(document), KEYS)
        self.assertEqual(document["version"], 3)
        self.assertIn("PITH_LOG=error", document["env"])
        config = document["config"]
        self.assertEqual((config["minimum_bytes"], config["step_factor"], config["iterations"]),
                         (64, 2, 2))
        self.assertEqual([device["rank"] for device in config["devices"]], [0, 1, 2, 3])
        self.assertEqual(len(document["results"]), 3)
        for result, row in zip(document["results"], rows):
            self.assertEqual([str(result[key]) for key in ("size", "count", "type", "redop")],
                             row[:4])
            self.assertEqual(result["root"].strip(), "-1")
            for place in ("out_of_place", "in_place"):
                self.assertEqual(result[place]["nwrong"], 0)
                self.assertAlmostEqual(result[place]["bus_bw"], 1.5 * result[place]["alg_bw"])
                bandwidth = result["size"] / result[place]["time"] / 1e3
                self.assertAlmostEqual(result[place]["alg_bw"], bandwidth)
        self.assertEqual(document["out_of_bounds"], {"count": 0, "okay": "true"})
        self.assertEqual(document["average_bus_bandwidth"]["okay"], "unchecked")

    def test_bus_factors(self):
        with tempfile.TemporaryDirectory() as folder:
            for program, (factor, _, _) in PROGRAMS.items():
                path = os.path.join(folder, program + ".json")
                run(program, "--ranks", "3", "-b", "3K", "-e", "3K", "-n", "2", "-J", path)
                with open(path, encoding="utf-8") as file:
                    half = json.load(file)["results"][0]["out_of_place"]
                self.assertAlmostEqual(half["bus_bw"], factor(3) * half["alg_bw"], msg=program)

    def test_resources(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            done = run("all_reduce_perf", "--ranks", "2", "-b", "64", "-e", "256", "-f", "4",
                       "--resources", "-J", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                records = json.load(file)["resources"]
        self.assertEqual([(record["size"], record["rank"]) for record in records],
                         [(64, 0), (64, 1), (256, 0), (256, 1)])
        self.assertTrue(all(record["allocations_per_call"] < 5 for record in records), records)


class ExitStatus(unittest.TestCase):
    def test_wrong_data(self):
        done = run("faulty_perf", "--ranks", "2", "-b", "8", "-e", "16", "-i", "8", "-n", "1")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual([row[8] for row in rows_of(done.stdout)], ["1", "1"])
        self.assertEqual([row[12] for row in rows_of(done.stdout)], ["1", "1"])
        self.assertEqual(out_of_bounds(done.stdout), ("4", "FAILED"))
        unchecked = run("faulty_perf", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1", "-c", "0")
        self.assertEqual(unchecked.returncode, 0)

    def test_timeout(self):
        """One process of the run says it, on a line of its own, though calls go on and on."""
        begin = time.monotonic()
        done = run("all_reduce_perf", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1000000000",
                   "-T", "1")
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "Test timeout: --timeout, 1 s, was reached\n"))
        self.assertTrue(done.stdout.endswith("-1\n"), done.stdout)

    def test_refusals(self):
        for arguments, words in (
                (["--ranks", "2", "-b", "2x"], ["--minbytes", "2x"]),
                (["--ranks", "2", "--algo", "nope"], ["allreduce:nope"]),
                (["--ranks", "2", "--transport", "nope"], ["PITH_TRANSPORT", "nope"]),
                (["--ranks", "2", "--compress", "topk", "--data", "/nowhere"], ["/nowhere"]),
                (["--ranks", "2", "-J", "/nowhere/x.json"], ["--output_file", "/nowhere/x.json"])):
            with self.subTest(arguments):
                done = run("all_reduce_perf", *arguments)
                self.assertNotEqual(done.returncode, 0)
                for word in words:
                    self.assertIn(word, done.stderr)
                self.assertEqual(rows_of(done.stdout), [])
        done = run("reduce_perf", "--ranks", "2", "--compress", "topk")
        self.assertEqual((done.returncode, done.stderr.count("no compressed form")), (1, 1))
        done = run("all_reduce_perf", "--ranks", "2", "--compress", "choco")
        self.assertEqual((done.returncode, done.stderr.count("expected a scheme that sums")),
                         (1, 1))
        done = run("broadcast_perf", "--ranks", "2", "--compress", "topk:density=0.1")
        self.assertEqual((done.returncode, done.stderr.count("--compress: compressor is topk:")),
                         (1, 1), done.stderr)
        done = run("broadcast_perf", "--ranks", "2", "-r", "2")
        self.assertEqual((done.returncode, done.stderr.count("--root is 2")), (1, 1))


class Compressed(unittest.TestCase):
    def test_table_and_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            done = run("all_reduce_perf", "--ranks", "3", "-b", "4", "-e", "64K", "-f", "128",
                       "-n", "2", "--compress", "topk:density=0.02", "-J", str(path))
            self.assertEqual(done.returncode, 0, done.stderr)
            results = json.loads(path.read_text(encoding="utf-8"))["results"]
        rows = rows_of(done.stdout)
        self.assertEqual([row[0] for row in rows], ["4", "512", "65536"])
        self.assertEqual(out_of_bounds(done.stdout), ("0", "OK"))
        for row, result in zip(rows, results):
            self.assertEqual((len(row), row[8], row[17]), (23, "0", "0"))
            for half in (result["out_of_place"], result["in_place"]):
                dense_ring_bytes = 2 * 2 / 3 * result["count"] * 4
                self.assertAlmostEqual(half["ratio"] * half["wire_bytes"], dense_ring_bytes, 2)
        self.assertGreater(results[-1]["out_of_place"]["ratio"], 10)

    def check(self, spec, *arguments):
        with self.subTest(spec):
            done = run("all_reduce_perf", "--ranks", "3", "-b", "64K", "-e", "64K", "-n", "2", "-c",
                       "5", "--compress", spec, *arguments)
            self.assertEqual((done.returncode, out_of_bounds(done.stdout)), (0, ("0", "OK")),
                             done.stderr)

    def test_schemes(self):
        """Each beside its plain twin, where it has one; see perf's own tests for the twins."""
        for election in ("staleness", "variance", "variance-lagged", "variance,score=raw"):
            self.check(f"ar-topk:election={election}")
        self.check("ar-topk:values=bf16,reduction=ring", "-o", "avg")
        for scheme, rule in (("exdyna", "quantile"), ("micro", "intended"), ("exdyna", "released")):
            self.check(f"{scheme}:rule={rule},values=bf16", "-o", "avg")
        self.check("micro:values=f16", "-d", "half")
        self.check("topk:values=int4", "-o", "avg")
        for spec in ("deft:density=0.5", "topk:hierarchy=host", "ar-topk:feedback=0",
                     "bounded:abs=1e-12", "spardl:feedback=0", "ok-topk:feedback=0",
                     "gtopk:feedback=0", "topk:values=int4,feedback=0"):
            self.check(spec)

    def test_every_scheme(self):
        """With its defaults, all that pith-info tells of, but for what is no sum."""
        lines = run("pith-info", "--schemes").stdout.splitlines()
        schemes = [line.split()[0] for line in lines
                   if "without which this library was built" not in line]
        self.assertGreater(len(schemes), 30)
        for scheme in schemes:
            if scheme != "choco":
                self.check(scheme)

    def test_moves(self):
        """Coded values; the bytes on the wire are those of the parts that other ranks send."""
        for program, spec, sent, arguments in (
                ("all_gather_perf", "int8", 2, ()), ("alltoall_perf", "qsgd:bits=2", 2, ()),
                ("reduce_scatter_perf", "natural", 2, ("-d", "half")),
                ("broadcast_perf", "bf16", 2 / 3, ("-r", "all", "-d", "bfloat16")),
                ("reduce_scatter_perf", "fp8:format=e5m2", 2, ("-o", "avg"))):
            with self.subTest(program=program, spec=spec):
                done = run(program, "--ranks", "3", "-b", "4", "-e", "64K", "-f", "16384", "-n",
                           "2", "--compress", spec, *arguments)
                self.assertEqual((done.returncode, out_of_bounds(done.stdout)), (0, ("0", "OK")),
                                 done.stderr)
                row = rows_of(done.stdout)[-1]
                plain = sent * int(row[1]) * 4
                self.assertAlmostEqual(float(row[10]) * float(row[11]) / plain, 1, 1)
                self.assertEqual(row[17], "N/A" if program == "alltoall_perf" else "0")

    def test_types_and_data(self):
        with tempfile.TemporaryDirectory() as folder:
            for worker in range(2):
                path = pathlib.Path(folder) / f"some.worker{worker}.f32"
                values = [(-1) ** i * 0.01 * (i + worker) for i in range(300)]
                path.write_bytes(struct.pack("<300f", *values))
            for kind in ("half", "bfloat16"):
                done = run("all_reduce_perf", "--ranks", "2", "-b", "2K", "-e", "2K", "-n", "2",
                           "-d", kind, "-o", "avg", "--compress", "topk:values=bf16,feedback=0",
                           "--data", folder)
                self.assertEqual((done.returncode, out_of_bounds(done.stdout)), (0, ("0", "OK")),
                                 done.stderr)


class Kernels(unittest.TestCase):
    """compress_perf, which also holds all contenders' lists and residuals against each other."""

    def test_table_and_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            done = run("compress_perf", "--count", "60000", "--rounds", "1", "--density", "0.01",
                       "--distribution", "gauss", "--json", str(path))
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads(path.read_text(encoding="utf-8"))
        self.assertTrue(result["steps"] and result["exdyna"])
        for row in result["kernels"]:
            self.assertRegex(done.stdout, rf"(?m)^{re.escape(row['kernel'])} ")

    def time_schemes(self, *arguments):
        """The rows of the part schemes, each with its line of the table."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            done = run("compress_perf", "--part", "schemes", "--count", "131072", "--rounds", "1",
                       "--matrix", "128", "256", "--json", str(path), *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = json.loads(path.read_text(encoding="utf-8"))["schemes"]
        for row in rows:
            line = rf"(?m)^{re.escape(row['scheme'])} .* {re.escape(row['algorithm'])}$"
            self.assertRegex(done.stdout, line)
        return rows

    def test_every_scheme(self):
        """None that pith-info knows is forgotten, and none sends dense vectors instead."""
        lines = run("pith-info", "--schemes").stdout.splitlines()
        known = [line.split()[0] for line in lines if "; needs " not in line]
        rows = self.time_schemes()
        self.assertEqual([row["scheme"] for row in rows], known)
        dense = rows[known.index("none")]
        self.assertEqual((dense["bits_per_element"], dense["share_compressing"]), (32, None))
        for row in rows:
            with self.subTest(row["scheme"]):
                self.assertNotIn("bypass=auto", row["spec"])
                self.assertGreater(min(row["ms"], row["dense_ms"]), 0)
                # Nearly all normal numbers are above the default of threshold's value.
                most = 33 if row is dense or row["scheme"] == "threshold" else 30
                self.assertTrue(0 < row["bits_per_element"] < most, row)

    def test_stated_schemes(self):
        specs = ["topk:density=0.1", "choco:graph=stated", "powersgd:rank=2"]
        topk, choco, powersgd = self.time_schemes("--schemes", *specs)
        self.assertEqual([topk["scheme"], choco["scheme"], powersgd["scheme"]], specs)
        self.assertTrue(0 < topk["share_compressing"] < 1, topk)
        self.assertAlmostEqual(topk["bits_per_element"], 0.1 * 37, 0)
        self.assertLess(choco["bits_per_element"], 1)
        self.assertAlmostEqual(powersgd["bits_per_element"], 32 * 2 * (1 / 128 + 1 / 256), 2)

    def test_refusals(self):
        """Before anything is measured."""
        for arguments, words in (
                (["--part", "steps", "foo"], ["--part", "foo", "kernels", "schemes"]),
                (["--schemes", "topk", "foo"], ["--schemes", "foo", "topk"]),
                (["--matrix", "0", "8"], ["--matrix", "0 "]),
                (["--distribution", "foo"], ["--distribution", "foo", "laplace"]),
                (["--distribution", "data"], ["--distribution", "--data"]),
                (["--data", "/nowhere"], ["--data", "/nowhere"]),
                (["--json", "/nowhere/x"], ["--json", "/nowhere/x"]),
                (["--count", "0"], ["--count", "0 "]), (["--core", "99999"], ["--core", "99999"]),
                (["--density", "0.5"], ["--density", "0.5"])):
            with self.subTest(arguments):
                done = run("compress_perf", *arguments)
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(done.stdout, "")
                for word in words:
                    self.assertIn(word, done.stderr)


class PlainTopk(unittest.TestCase):
    """The rival over MPI, which compares its first result with MPI_Allreduce's by itself."""

    @unittest.skipUnless((BIN / "openmpi_topk").exists() and shutil.which("mpirun.openmpi"),
                         "no Open MPI")
    def test_table_and_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to",
                       "none", "--mca", "mpi_yield_when_idle", "1", "-np", "3",
                       str(BIN / "openmpi_topk"), "--ranks", "3", "--no-pin", "--sizes", "4,256K",
                       "--density", "0.02", "--calls", "2", "--json", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        self.assertEqual([row["bytes"] for row in rows], [4, 262144])
        self.assertEqual([row[0] for row in rows_of(done.stdout)][-2:], ["4", "262144"])
        for row in rows:
            self.assertTrue(0 < row["us_min"] <= row["us"] <= row["us_max"], row)


if __name__ == "__main__":
    unittest.main()
