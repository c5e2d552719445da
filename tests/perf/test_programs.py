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


def usable(transport):
    return bool(re.search(rf"(?m)^{transport} +usable", run("pith-info", "--transports").stdout))


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

    def test_algorithms(self):
        """The head names them, by size; what is forced, too."""
        sizes = ("--ranks", "2", "-b", "8", "-e", "4K", "-f", "8", "-n", "1")
        names = set(run("all_reduce_perf", "--algo", "list").stdout.split())
        done = run("all_reduce_perf", *sizes, "-d", "half")
        told = re.search(r"(?m)^# Algorithms of half: (.+)$", done.stdout)[1]
        parts = re.findall(r"(\w+) from (\d+) B", told)
        self.assertEqual(parts[0][1], "8")
        self.assertEqual(told, ", ".join(f"{name} from {size} B" for name, size in parts))
        self.assertLessEqual({f"allreduce:{name}" for name, _ in parts}, names)
        done = run("all_reduce_perf", *sizes, "--algo", "ring")
        self.assertRegex(done.stdout, r"(?m)^# Algorithms of float: ring from 8 B$")
        self.assertLess(done.stdout.index("# Algorithms"), done.stdout.index("# Out of bounds"))
        # As the lines round sizes, so does the head.
        done = run("all_reduce_perf", "--ranks", "2", "-b", "10", "-e", "10", "--algo", "ring")
        self.assertEqual([row[0] for row in rows_of(done.stdout)], ["8"])
        self.assertRegex(done.stdout, r"(?m)^# Algorithms of float: ring from 8 B$")
        done = run("all_gather_perf", "--ranks", "3", "-b", "100", "-e", "100", "-n", "1")
        size = rows_of(done.stdout)[0][0]
        self.assertRegex(done.stdout, rf"(?m)^# Algorithms of float: \w+ from {size} B$")
        # One rank's call is a copy, unless it multiplies.
        alone = ("--ranks", "1", "-b", "8", "-e", "8", "-n", "1")
        done = run("all_reduce_perf", *alone)
        self.assertRegex(done.stdout, r"(?m)^# Algorithms of float: none, one rank$")
        done = run("all_reduce_perf", *alone, "-o", "mulsum")
        self.assertRegex(done.stdout, r"(?m)^# Algorithms of float: none, one rank; of mulsum: \w+ "
                         r"from 8 B$")

    def test_pinning(self):
        allowed = sorted(os.sched_getaffinity(0))
        self.addCleanup(os.sched_setaffinity, 0, allowed)
        # All cores that this process may use, then some of them; ranks are processes or threads.
        for cores in (allowed, allowed[-1:], allowed[1:3]):
            if not cores:
                continue
            os.sched_setaffinity(0, cores)
            several = str(min(4, len(cores)))
            for ranks in (["--ranks", several], ["--ranks", "1", "-t", several]):
                with self.subTest(cores=cores, ranks=ranks):
                    devices = self.devices_of(*ranks)
                    self.assertEqual(devices, cores[:int(several)])
        # Where there are too few, none leaves those that are allowed.
        os.sched_setaffinity(0, allowed[:1])
        self.assertEqual(self.devices_of("--ranks", "2"), 2 * allowed[:1])

    def devices_of(self, *ranks):
        """The core of each rank, by the table."""
        done = run("all_reduce_perf", *ranks, "-b", "8", "-e", "8", "-n", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        return [int(core) for core in re.findall(r"(?m)^#  Rank .* device +(\d+) \[", done.stdout)]

    def test_columns(self):
        done = run("all_reduce_perf", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1")
        names, units, row = [line for line in done.stdout.splitlines()
                             if "redop" in line or "(B)" in line or line.startswith("  ")][-3:]
        # Columns end where the numbers under them end.
        for name in ("size", "count", "type", "redop", "root", "time", "#wrong"):
            end = names.index(name) + len(name)
            self.assertNotEqual(row[end - 1], " ", name)
            self.assertEqual((row + " ")[end], " ", name)
        self.assertEqual(len(names), len(units))

    def test_types_operations_and_roots(self):
        done = run("all_reduce_perf", "--ranks", "3", "-b", "100", "-e", "100", "-n", "1", "-d",
                   "all", "-o", "all")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = rows_of(done.stdout)
        self.assertEqual(len(rows), 12 * 6)
        self.assertEqual({row[8] for row in rows} | {row[12] for row in rows}, {"0"})
        done = run("broadcast_perf", "--ranks", "3", "-b", "64", "-e", "64", "-n", "1", "-r", "all")
        self.assertEqual([row[4] for row in rows_of(done.stdout)], ["0", "1", "2"])

    def test_threads_and_groups(self):
        common = ["-b", "1K", "-e", "2K", "-i", "1K", "-n", "3", "-m", "2", "-u", "1"]
        for ranks in (["--ranks", "1", "-t", "4"], ["--ranks", "2", "-t", "2", "-g", "2"],
                      ["--ranks", "1", "-t", "2", "-p", "1"], ["--ranks", "1", "-g", "3"]):
            for blocking in ("0", "1", "2", "3"):
                with self.subTest(ranks=ranks, blocking=blocking):
                    done = run("all_reduce_perf", *ranks, *common, "-z", blocking)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual([row[0] for row in rows_of(done.stdout)], ["1024", "2048"])

    def test_settings(self):
        for arguments in (["--memory", "registered"], ["--transport", "tcp"], ["-R", "1"],
                          ["--transport", "ucx"], ["--algo", "allreduce:ring"],
                          ["--algo", "ring", "--transport", "shm"]):
            with self.subTest(arguments):
                if "ucx" in arguments and not usable("ucx"):
                    self.skipTest("no ucx here")
                done = run("all_reduce_perf", "--ranks", "2", "-b", "4K", "-e", "4K", "-n", "2",
                           *arguments)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_without_check(self):
        done = run("all_reduce_perf", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1", "-c", "0")
        self.assertEqual([rows_of(done.stdout)[0][i] for i in (8, 12)], ["N/A", "N/A"])

    def test_options_of_a_line(self):
        done = run("all_reduce_perf", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1", "-N", "3",
                   "-S", "1", "-C", "1", "-a", "3", "-T", "60")
        rows = rows_of(done.stdout)
        self.assertEqual(len(rows), 3)
        self.assertRegex(" ".join(rows[0][13:]), r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
        self.assertIn("cputime", done.stdout)


    def test_iterations(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            for ranks in (["--ranks", "2"], ["--ranks", "1", "-t", "2", "-g", "2"]):
                done = run("all_reduce_perf", *ranks, "-b", "8", "-e", "8", "-n", "4", "-I", "1",
                           "-K", "1", "-J", path)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(len(rows_of(done.stdout)[0]), 5 + 2 * 8)
                with open(path, encoding="utf-8") as file:
                    result = json.load(file)["results"][0]
                os.remove(path)
                times = result["in_place_per_iter"]
                self.assertEqual(len(times["times_us"]), 4)
                self.assertEqual([len(one) for one in times["per_process_max_times_us"]], [4, 4])
                self.assertEqual(times["max_us"], max(times["times_us"][1:]))


class Json(unittest.TestCase):
    def test_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            for name in ("out.json", "out.json.0", "out.json.1"):
                done = run("all_reduce_perf", "--ranks", "4", "-b", "64", "-e", "256", "-f", "2",
                           "-n", "2", "-J", path, PITH_SECRET="hush", PITH_LOG="error")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"# Writing JSON output to {os.path.join(folder, name)}\n",
                              done.stdout)
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

    def test_algorithm(self):
        with tempfile.TemporaryDirectory() as folder:
            for ranks, wanted in (("2", "ring"), ("1", "none")):
                path = pathlib.Path(folder) / f"{ranks}.json"
                done = run("all_reduce_perf", "--ranks", ranks, "-b", "8", "-e", "64", "-f", "8",
                           "-n", "1", "--algo", "ring", "-J", str(path))
                self.assertEqual(done.returncode, 0, done.stderr)
                document = json.loads(path.read_text(encoding="utf-8"))
                self.assertEqual([one["algorithm"] for one in document["results"]], 2 * [wanted])

    def test_environment(self):
        """Settings that were set, by --transport too, and no secret."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            done = run("all_reduce_perf", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1", "-J",
                       str(path), "--transport", "tcp", PITH_LANES="2", PITH_SECRET="hush",
                       PITH_SECRET_FILE="")
            self.assertEqual(done.returncode, 0, done.stderr)
            told = json.loads(path.read_text(encoding="utf-8"))["env"]
        self.assertEqual(sorted(one for one in told if one.startswith("PITH_")),
                         ["PITH_LANES=2", "PITH_TRANSPORT=tcp"])

    def test_bus_factors(self):
        with tempfile.TemporaryDirectory() as folder:
            for program, (factor, _, _) in PROGRAMS.items():
                path = os.path.join(folder, program + ".json")
                run(program, "--ranks", "3", "-b", "3K", "-e", "3K", "-n", "2", "-J", path)
                with open(path, encoding="utf-8") as file:
                    half = json.load(file)["results"][0]["out_of_place"]
                self.assertAlmostEqual(half["bus_bw"], factor(3) * half["alg_bw"], msg=program)


class Resources(unittest.TestCase):
    def test_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            done = run("all_reduce_perf", "--ranks", "2", "-b", "64", "-e", "256", "-f", "4",
                       "--resources", "-J", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = [line.split()[1:] for line in done.stdout.splitlines()
                     if re.match(r"# +\d+ +\d ", line)]
            self.assertEqual([line[:2] for line in lines],
                             [["64", "0"], ["64", "1"], ["256", "0"], ["256", "1"]])
            with open(path, encoding="utf-8") as file:
                records = json.load(file)["resources"]
        self.assertEqual([(record["size"], record["rank"]) for record in records],
                         [(64, 0), (64, 1), (256, 0), (256, 1)])
        for record in records:
            self.assertLess(record["allocations_per_call"], 5)
            for name in ("system_calls_per_call", "waiting_calls_per_call", "scratch_bytes"):
                # A container may forbid tracing, and old kernels do not tell the memory.
                self.assertTrue(record[name] is None or record[name] >= 0, record)

    def test_threads_are_refused(self):
        done = run("all_reduce_perf", "--ranks", "2", "-t", "2", "--resources")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--nthreads", done.stderr)


class ExitStatus(unittest.TestCase):
    def test_wrong_data(self):
        done = run("faulty_perf", "--ranks", "2", "-b", "8", "-e", "16", "-i", "8", "-n", "1")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual([row[8] for row in rows_of(done.stdout)], ["1", "1"])
        self.assertEqual([row[12] for row in rows_of(done.stdout)], ["1", "1"])
        self.assertEqual(out_of_bounds(done.stdout), ("4", "FAILED"))
        unchecked = run("faulty_perf", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1", "-c", "0")
        self.assertEqual(unchecked.returncode, 0)

    def test_too_slow(self):
        done = run("all_reduce_perf", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1",
                   NCCL_TESTS_MIN_BW="1e9")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"# Avg bus bandwidth    : \S+ FAILED")

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
                (["--ranks", "2", "-d", "f33"], ["--datatype", "f33", "bfloat16"]),
                (["--ranks", "2", "--algo", "nope"], ["allreduce:nope", "allreduce:ring"]),
                (["--ranks", "2", "--transport", "nope"], ["PITH_TRANSPORT", "nope"]),
                (["--ranks", "2", "--compress", "topk:k=1"], ["--compress", "density"]),
                (["--ranks", "2", "--compress", "topk", "--data", "/nowhere"], ["/nowhere"]),
                (["--ranks", "2", "-J", "/nowhere/x.json"], ["--output_file", "/nowhere/x.json"])):
            with self.subTest(arguments):
                done = run("all_reduce_perf", *arguments)
                self.assertNotEqual(done.returncode, 0)
                for word in words:
                    self.assertIn(word, done.stderr)
                self.assertEqual(rows_of(done.stdout), [])
        done = run("broadcast_perf", "--ranks", "2", "--compress", "topk")
        self.assertEqual((done.returncode, done.stderr.count("no compressed form")), (1, 1))
        done = run("broadcast_perf", "--ranks", "2", "-r", "2")
        self.assertEqual((done.returncode, done.stderr.count("--root is 2")), (1, 1))

    def test_under_a_launcher(self):
        for size, works in (("1", True), ("2", False)):
            done = run("all_reduce_perf", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1",
                       OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE=size, PMIX_NAMESPACE="1")
            self.assertEqual(done.returncode == 0, works, done.stderr)
            if not works:
                self.assertIn("--ranks is 2, and Open MPI's mpirun has started this process as "
                              "rank 0 of 2", done.stderr)
                self.assertEqual(ranks_of(done.stdout), [])

    def test_under_launchers_that_disagree(self):
        """Several of this process, each of which would start ranks of its own."""
        mpirun = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "1"}
        pod = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        for ranks in ((), ("--ranks", "2")):
            with self.subTest(ranks):
                self.check_refused("two launchers disagree", *ranks, **mpirun, **pod)

    def test_under_a_launcher_that_is_missed(self):
        """It is no reason to run alone: each of the others would, too."""
        for ranks in ((), ("--ranks", "2")):
            for variables in ({"RANK": "0", "WORLD_SIZE": "4"}, {"PMI_RANK": "0", "PMI_SIZE": "2"},
                              {"PITH_LAUNCHER": "srun", "OMPI_COMM_WORLD_RANK": "0",
                               "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "1"},
                              {"PITH_LAUNCHER": "srun"}):
                with self.subTest(ranks=ranks, variables=variables):
                    self.check_refused("no launcher has said", *ranks, **variables)

    def check_refused(self, words, *arguments, **variables):
        done = run("all_reduce_perf", *arguments, "-b", "8", "-e", "8", "-n", "1", **variables)
        self.assertEqual((done.returncode, done.stderr.count(words)), (1, 1), done.stderr)
        self.assertEqual(ranks_of(done.stdout), [])

    def test_version(self):
        done = run("all_reduce_perf", "--version")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^all_reduce_perf \d+\.\d+\.\d+, of Pith \d+\.\d+\.\d+\n$")

    def test_help(self):
        done = run("all_reduce_perf", "--help")
        self.assertEqual(done.returncode, 0)
        for flag in ("--minbytes", "--ranks", "--algo", "--memory", "-J"):
            self.assertIn(flag, done.stdout)


class Compressed(unittest.TestCase):
    def test_bypass(self):
        """Where calls go another way the table says so, also that they are dense."""
        sizes = ("--ranks", "2", "-b", "1K", "-e", "1K", "-n", "1")
        done = run("all_reduce_perf", *sizes, "--compress", "topk:bypass=never")
        self.assertRegex(done.stdout, r"(?m)^# from this size on: compressed by \w+$")
        done = run("all_reduce_perf", *sizes, "--compress", "topk:density=1,bypass=auto")
        self.assertRegex(done.stdout, r"(?m)^# from this size on: bypassed, sent dense by \w+$")
        self.assertEqual(len(rows_of(done.stdout)), 1)
        # Ahead of the row that it is about.
        done = run("all_reduce_perf", *sizes, "--compress", "topk")
        lines = done.stdout.splitlines()
        told = [i for i, line in enumerate(lines) if line.startswith("# from this size on")]
        rows = [i for i, line in enumerate(lines) if line and not line.startswith("#")]
        self.assertEqual([i + 1 for i in told], rows)

    def test_bypass_in_json(self):
        for spec, bypassed in (("topk:bypass=never", 0), ("topk:density=1,bypass=auto", 3)):
            with tempfile.TemporaryDirectory() as folder, self.subTest(spec):
                path = pathlib.Path(folder) / "out.json"
                done = run("all_reduce_perf", "--ranks", "2", "-b", "1K", "-e", "1K", "-n", "3",
                           "--compress", spec, "-J", str(path))
                self.assertEqual(done.returncode, 0, done.stderr)
                result = json.loads(path.read_text(encoding="utf-8"))["results"][0]
                for half in (result["out_of_place"], result["in_place"]):
                    self.assertEqual(half["bypassed"], bypassed)
                    names = (half["algorithm"], half["dense_algorithm"])
                    self.assertEqual([name != "" for name in names],
                                     [bypassed == 0, bypassed > 0], names)

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
            self.assertEqual(len(row), 23, row)
            self.assertEqual((row[8], row[17]), ("0", "0"))
            for half in (result["out_of_place"], result["in_place"]):
                self.assertEqual((half["nwrong"], half["max_error"]), (0, 0))
                self.assertGreater(half["wire_bytes"], 0)
                dense_ring_bytes = 2 * 2 / 3 * result["count"] * 4
                self.assertAlmostEqual(half["ratio"] * half["wire_bytes"], dense_ring_bytes, 2)
        large = results[-1]["out_of_place"]
        self.assertTrue(0.02 <= large["density"] <= 0.06, large)
        self.assertGreater(large["ratio"], 10)

    def check(self, spec, *arguments):
        with self.subTest(spec):
            done = run("all_reduce_perf", "--ranks", "3", "-b", "64K", "-e", "64K", "-n", "2", "-c",
                       "5", "--compress", spec, *arguments)
            self.assertEqual((done.returncode, out_of_bounds(done.stdout)), (0, ("0", "OK")),
                             done.stderr)

    def test_elections(self):
        for election in ("staleness", "variance", "variance-lagged", "variance,score=raw"):
            self.check(f"ar-topk:election={election}")
        self.check("ar-topk:values=bf16,reduction=ring", "-o", "avg")
        for scheme in ("exdyna", "micro"):
            for rule in ("quantile", "intended", "released"):
                self.check(f"{scheme}:rule={rule}")
        self.check("exdyna:values=bf16", "-o", "avg")
        self.check("micro:values=f16", "-d", "half")
        for density in (0.02, 0.5, 1):
            self.check(f"deft:density={density}")

    def test_what_has_no_plain_twin(self):
        for spec in ("topk:bypass=auto", "bf16", "none", "exdyna:feedback=0", "ar-topk:feedback=0",
                     "topk:hierarchy=host", "ar-topk:hierarchy=host"):
            self.check(spec)

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

    def measure(self, folder, *arguments, distribution="gauss"):
        path = pathlib.Path(folder) / "out.json"
        done = run("compress_perf", "--count", "60000", "--rounds", "1", "--density", "0.01",
                   "--distribution", distribution, "--core", str(min(os.sched_getaffinity(0))),
                   "--json", str(path), *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(result.pop("count"), 59 * 1024)  # rounded up to a multiple of 1024
        self.assertTrue(result.pop("cpu"))
        return done.stdout, result

    def check_numbers(self, rows, names):
        for row in rows:
            self.assertEqual(row["density"], 0.01)
            self.assertEqual(set(row) - {"density", "distribution"}, names)
            for name in names:
                self.assertGreater(row[name], 0, row)

    def test_tables_and_json(self):
        with tempfile.TemporaryDirectory() as folder:
            text, result = self.measure(folder, "--torch", "echo 5.5 2")
        self.assertEqual(set(result), {"kernels", "steps", "torch", "exdyna"})
        self.check_kernels(text, result["kernels"])
        self.assertEqual([row["distribution"] for row in result["steps"]], ["gauss"])
        self.check_numbers(result["steps"], {
            "pass_ms", "pith_ms", "pith_drift_ms", "simd_ms", "stl_ms", "in_place_ms", "write_ms",
            "break_even_dense_gbps", "break_even_in_place_gbps"})
        self.assertRegex(text, r"(?m)^gauss +1%( +[\d.]+){5} +\d+%( +[\d.]+){3}( +\d+){2}$")
        self.assertEqual(result["torch"], [{"density": 0.01, "ms": 5.5, "threads": 2}])
        self.assertRegex(text, r"(?m)^torch +1% +5\.5 ms, threads: 2$")
        self.check_numbers(result["exdyna"], {"add_ms", "step_ms", "own_part_ms", "exact_ms"})
        self.assertRegex(text, r"(?m)^ +1%( +[\d.]+){6}$")

    def check_kernels(self, text, kernels):
        rows = {row["kernel"]: row for row in kernels}
        self.assertLessEqual({"memcpy", "accumulate", "select", "select bf16", "histogram",
                              "keep_largest", "sum_lists bf16 x8", "scatter f32",
                              "encode_indices", "decode_indices"}, set(rows))
        self.assertRegex(text, r"(?m)^kernels alone, values: gauss$")
        for name, row in rows.items():
            self.assertEqual(row["distribution"], "gauss")
            self.assertRegex(text, rf"(?m)^{re.escape(name)} ")
            for key in ("ms", "dense_gb_s", "share_of_memcpy"):
                self.assertGreater(row[key], 0, row)
        # Of random places: the bits of a pair of an index and a bfloat16.
        self.assertTrue(20 < rows["encode_indices"]["bits_per_pair"] < 26, rows["encode_indices"])

    def test_real_gradients_and_parts(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "some.f32"
            path.write_bytes(struct.pack("<3000f", *(((-1) ** i) * 0.01 * i for i in range(3000))))
            _, result = self.measure(folder, "--part", "steps", "--data", str(path))
            _, real = self.measure(folder, "--part", "steps", "kernels", "--data", str(path),
                                   distribution="data")
        self.assertEqual(set(result), {"steps"})
        self.assertEqual([row["distribution"] for row in result["steps"]], ["gauss", "data"])
        self.assertEqual([row["distribution"] for row in real["steps"]], ["data"])
        self.assertEqual({row["distribution"] for row in real["kernels"]}, {"data"})
        bits = [row["bits_per_pair"] for row in real["kernels"]
                if row["kernel"] == "encode_indices"]
        self.assertTrue(20 < bits[0] < 26, bits)

    def test_refusals(self):
        for arguments, words in ((["--density", "0.3"], ["--density", "0.3"]),
                                 (["--data", "/nowhere"], ["--data", "/nowhere"]),
                                 (["--part", "steps", "--torch", "true"], ["--torch", "true"])):
            with self.subTest(arguments):
                done = run("compress_perf", "--count", "1024", "--rounds", "1", "--density", "0.1",
                           "--distribution", "gauss", *arguments)
                self.assertNotEqual(done.returncode, 0)
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


class Lists(unittest.TestCase):
    def test_algorithms(self):
        done = run("all_reduce_perf", "--algo", "list")
        self.assertEqual(done.returncode, 0)
        names = done.stdout.split()
        self.assertIn("allreduce:ring", names)
        for name in names:  # each is what PITH_ALGO takes
            self.assertRegex(name, r"^allreduce:\w+$")
            done = run("all_reduce_perf", "--ranks", "2", "-b", "64", "-e", "64", "-n", "1",
                       PITH_ALGO=name)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_names_with_their_collective_and_without(self):
        for name in ("ring", "allreduce:ring"):
            for arguments, variables in ((("--algo", name), {}), ((), {"PITH_ALGO": name})):
                done = run("all_reduce_perf", "--ranks", "2", "-b", "64", "-e", "64", "-n", "1",
                           *arguments, **variables)
                self.assertEqual(done.returncode, 0, done.stderr)
        for arguments, variables in ((("--algo", "magic"), {}), ((), {"PITH_ALGO": "magic"})):
            done = run("all_reduce_perf", "--ranks", "2", "-b", "64", "-e", "64", "-n", "1",
                       *arguments, **variables)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("allreduce:ring", done.stderr)

    def test_transports(self):
        done = run("broadcast_perf", "--transport", "list")
        self.assertEqual(done.returncode, 0)
        self.assertLessEqual({"shm", "tcp", "local"}, set(done.stdout.split()))


if __name__ == "__main__":
    unittest.main()
