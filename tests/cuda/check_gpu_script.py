#!/usr/bin/env python3
"""tools/gpu/run.sh without a GPU: check_gpu_script.py RUN_SH BUILD_TREE STUB_FOLDER."""
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPT, TREE, STUB = (os.path.abspath(argument) for argument in sys.argv[1:4])


def run(*arguments, **variables):
    environment = dict(os.environ, GPU_TREE=TREE, GPU_PACK="/nonexistent")
    environment.pop("OUT", None)
    environment.update(variables)
    return subprocess.run(["bash", SCRIPT, *arguments], env=environment, capture_output=True,
                          text=True, timeout=200, check=False)


def load_table():
    spec = importlib.util.spec_from_file_location(
        "table", os.path.join(os.path.dirname(SCRIPT), "table.py"))
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    return table


class Script(unittest.TestCase):
    def test_plan_fits_a_day(self):
        done = run("--plan")
        self.assertEqual(done.returncode, 0, done.stderr)
        seconds = [int(found) for found in re.findall(r"^ *(\d+) s  bash", done.stdout, re.M)]
        self.assertTrue(0 < len(seconds) <= 6)
        self.assertLessEqual(max(seconds), 570)
        self.assertLessEqual(sum(seconds), 1650)
        self.assertIn(f"{sum(seconds)} s  together", done.stdout)

    def test_unknown_part(self):
        done = run("nonsense")
        self.assertEqual(done.returncode, 2)
        self.assertIn("unknown part 'nonsense'", done.stderr)

    @unittest.skipUnless(os.environ.get("PITH_TEST_FULL"), "only with PITH_TEST_FULL")
    def test_calls_over_the_stub(self):
        with tempfile.TemporaryDirectory() as out:
            done = run("calls", GPU_STUB=STUB, CALLS_MOST_BYTES="8", OUT=out)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(os.path.join(out, "gpu.json"), encoding="utf-8") as file:
                rows = json.load(file)["calls"]
            ways = {(row["way"], row["ranks"]) for row in rows}
            self.assertEqual(ways, {(f"{way} by {steps}", ranks)
                                    for way in ("threads", "processes")
                                    for steps in ("launch", "worker") for ranks in (2, 4)})
            self.assertTrue(os.path.exists(os.path.join(out, "results.tar.gz")))

    def test_builds_where_no_program_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, body in (("nvidia-smi", "[[ $1 == -L ]] || echo 9.0"),
                               ("cmake", 'echo "cmake $*"; exit 3')):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write("#!/usr/bin/env bash\n" + body + "\n")
                os.chmod(os.path.join(folder, name), 0o755)
            path = folder + os.pathsep + os.environ["PATH"]
            done = run("tests", "calls", PATH=path, GPU_TREE=os.path.join(folder, "tree"))
            self.assertEqual(done.returncode, 1)
            self.assertIn("build and facts instead of tests calls", done.stdout)
            self.assertRegex(done.stdout, "cmake .*-DPITH_WERROR=OFF .*-DPITH_CUDA_CODE=sm_90")

    def test_a_failing_part_is_told(self):
        done = run("calls", GPU_STUB="/nonexistent", CALLS_MOST_BYTES="8", PITH_CHUNK="nonsense")
        self.assertEqual(done.returncode, 1)
        self.assertIn("gpu: failed: calls", done.stdout)


class Table(unittest.TestCase):
    def lines(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            table = load_table()
            return table.lines_of(table.collect(folder))

    def test_nothing(self):
        self.assertEqual(self.lines({}), ["nothing measured"])

    def test_facts_that_tell(self):
        lines = self.lines({"facts.txt": "a b: 1\na c: STUCK\na ended: HANGS in: x (5.0 s)\n"})
        self.assertEqual(lines[1:], ["  a c: STUCK", "  a ended: HANGS in: x (5.0 s)"])

    def test_failed_cases(self):
        rule = "-" * 79
        text = f"{rule}\ngpu: one\n{rule}\nfile:1\n{rule}\ngpu: one\n{rule}\n" \
               "test cases: 2 | 1 passed | 1 failed\n"
        self.assertEqual(self.lines({"streams-worker.txt": text}),
                         ["streams-worker: test cases: 2 | 1 passed | 1 failed",
                          "  failed: gpu: one"])
        self.assertEqual(self.lines({"tests.txt": "cut off"}), ["tests: ended early"])

    def test_calls_beside_targets(self):
        rows = [{"way": "threads", "ranks": 2, "bytes": size, "us": 10.0, "of_copy": 0.6}
                for size in (8, 1 << 20, 64 << 20)]
        text = "\n".join(map(json.dumps, rows)) + '\n{"way": "thr'
        lines = self.lines({"calls.json": text})
        self.assertEqual([line.split("target")[1:] for line in lines], [[" 15 us"], [], [" 0.50"]])

    def test_staging_beside_a_pinned_copy(self):
        rows = [{"case": "staging to the host", "name": name, "us": us, "gb_s": 1, "of_copy": 0}
                for name, us in (("pinned copy", 9.0), ("chunks by the driver", 10.0))]
        perf = {"device": "none", "ok": True, "rows": rows}
        self.assertEqual(self.lines({"perf.json": json.dumps(perf)})[-1],
                         "staging to the host, chunks by the driver: 0.90 of a pinned copy"
                         "  target 0.90")

    def test_sparse_beside_the_other(self):
        rows = [{"way": way, "ranks": ranks, "bytes": size, "type": kind, "us": us, "of_copy": 0}
                for ranks in (2, 4)
                for way, size, kind, us in (("NVIDIA, sockets", 8, "float32", 1.0),
                                            ("Pith, tcp, 1 %", 8, "float32", 1.0),
                                            ("NVIDIA, sockets", 400, "float32", 600.0),
                                            ("NVIDIA, sockets", 200, "bfloat16", 350.0),
                                            ("Pith, tcp, 1 %", 400, "float32", 50.0))]
        lines = self.lines({"peers.json": "\n".join(map(json.dumps, rows))})
        self.assertEqual(lines[-4:], [f"sparse of {ranks}, 100 elements: NVIDIA {told}"
                                      for ranks in (2, 4)
                                      for told in ("float32 / ours 12.00  target 10.00",
                                                   "bfloat16 / ours 7.00  target 5.00")])
        self.assertIn("NVIDIA, sockets, 2 ranks, 200 B of bfloat16: 350.0 us", lines)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
