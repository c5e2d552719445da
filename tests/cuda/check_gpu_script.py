#!/usr/bin/env python3
"""tools/gpu/run.sh without a GPU: check_gpu_script.py RUN_SH BUILD_TREE STUB_FOLDER."""
import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import types
import unittest
from unittest import mock

SCRIPT, TREE, STUB = (os.path.abspath(argument) for argument in sys.argv[1:4])


def run(*arguments, **variables):
    environment = dict(os.environ, GPU_TREE=TREE, GPU_PACK="/nonexistent")
    environment.pop("OUT", None)
    environment.update(variables)
    return subprocess.run(["bash", SCRIPT, *arguments], env=environment, capture_output=True,
                          text=True, timeout=200, check=False)


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def lives(pid):
    """And is not only still to be waited for."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] not in ([], ["Z"])


def load_module(name):
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(os.path.dirname(SCRIPT), f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Script(unittest.TestCase):
    def test_plan_fits_a_day(self):
        done = run("--plan")
        self.assertEqual(done.returncode, 0, done.stderr)
        seconds = [int(found) for found in re.findall(r"^ *(\d+) s  bash", done.stdout, re.M)]
        self.assertTrue(0 < len(seconds) <= 6)
        self.assertLessEqual(max(seconds), 480)
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
            plain = {(f"{way} by {steps}", ranks) for way in ("threads", "processes")
                     for steps in ("launch", "worker") for ranks in (2, 4)}
            by_blocks = {(f"{way}, {blocks} blocks", 2) for way, _ in plain
                         for blocks in (8, 16, 32)}
            self.assertEqual(ways, plain | by_blocks)
            self.assertEqual({row.get("queued", 1) for row in rows}, {1, 16, 64})
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

    def programs(self, folder, bodies):
        """A pack whose programs are scripts, for the parts that ask for them."""
        os.makedirs(os.path.join(folder, "pack", "bin"))
        for name, body in bodies.items():
            with open(os.path.join(folder, "pack", "bin", name), "w", encoding="utf-8") as file:
                file.write("#!/usr/bin/env bash\n" + body + "\n")
        with tarfile.open(os.path.join(folder, "pack", "programs.tar.gz"), "w:gz") as archive:
            archive.add(os.path.join(folder, "pack", "bin"), "bin")
        shutil.rmtree(os.path.join(folder, "pack", "bin"))
        return {"GPU_PACK": os.path.join(folder, "pack"), "GPU_STUB": STUB,
                "GPU_TREE": os.path.join(folder, "tree"), "OUT": os.path.join(folder, "out")}

    def test_a_case_that_breaks_costs_no_other(self):
        body = """[[ $1 != --list-tests ]] ||
              { printf '  %s\\n' first 'second, too' third; exit 0; }
            case $1 in
              first) echo broken; kill -SEGV $$ ;;
              'second\\, too') exit 0 ;;
              third) echo wrong; exit 3 ;;
            esac"""
        with tempfile.TemporaryDirectory() as folder:
            variables = self.programs(folder, {"test_cuda_device": body, "test_cuda_gpu": body})
            os.makedirs(variables["OUT"])
            done = run("tests", **variables)
            self.assertEqual(done.returncode, 1)
            self.assertIn("case first: FAILED (139)", done.stdout)
            self.assertIn("wrong", done.stdout)
            with open(os.path.join(variables["OUT"], "table.txt"), encoding="utf-8") as file:
                table = file.read()
            # These are asked twice, for what may hang apart.
            for part in ("streams-launch", "streams-worker"):
                self.assertIn(f"{part}: 2 of 6 cases passed", table)
            self.assertIn("tests: 1 of 3 cases passed", table)

    def test_results_are_handed_over_during_a_part(self):
        row = {"way": "w", "ranks": 2, "bytes": 8, "us": 1.0, "of_copy": 1.0}
        calls = f"echo '{json.dumps(row)}' >>\"$3\"; sleep 100"
        with tempfile.TemporaryDirectory() as folder:
            variables = self.programs(folder, {"driver_facts": "exec sleep 100", "gpu_calls": calls,
                                               "test_cuda_gpu": ""})
            os.makedirs(variables["OUT"])
            table = os.path.join(variables["OUT"], "table.txt")
            with self.started("calls", **variables, GPU_HAND_OVER="1"):
                self.wait_for(lambda: "all-reduce of 2 w" in read(table))

    @contextlib.contextmanager
    def started(self, *arguments, **variables):
        """The script, which is killed unless it ends."""
        with subprocess.Popen(["bash", SCRIPT, *arguments], env=dict(os.environ, **variables),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as script:
            try:
                yield script
            finally:
                script.terminate()

    def wait_for(self, condition, seconds=60):
        limit = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.05)

    @unittest.skipUnless(shutil.which("setpriv"), "no setpriv")
    def test_nothing_outlives_a_script_that_is_killed(self):
        for kill in (signal.SIGTERM, signal.SIGKILL):
            with tempfile.TemporaryDirectory() as folder:
                note = 'echo $$ >"$(dirname "$0")/../../$(basename "$0")-$1"; exec '
                facts = os.path.join(TREE, "bin", "driver_facts")
                variables = self.programs(folder, {"driver_facts": note + f'{facts} "$@"',
                                                   "gpu_calls": note + "sleep 100",
                                                   "test_cuda_gpu": ""})
                os.makedirs(variables["OUT"])
                tree = variables["GPU_TREE"]
                begun = [os.path.join(tree, name) for name in ("driver_facts-hold",
                                                               "gpu_calls-threads")]
                with self.started("calls", **variables) as script:
                    self.wait_for(lambda: all(map(read, begun)))
                    self.wait_for(lambda: "holds a context" in
                                  read(os.path.join(tree, "results", "holder.txt")))
                    script.send_signal(kill)
                    script.wait()
                pids = [int(read(path)) for path in begun]
                # Before limits of their own end them.
                self.wait_for(lambda: not any(map(lives, pids)), 10)

    def test_a_part_ended_at_its_limit_is_told(self):
        # Where no limit of its own ends what hangs.
        with tempfile.TemporaryDirectory() as folder:
            variables = self.programs(folder, {"driver_facts": 'echo "a b: 1"',
                                               "test_cuda_gpu": ""})
            os.makedirs(variables["OUT"])
            path = os.path.join(folder, "path")
            os.makedirs(path)
            for name, body in (("tee", "sleep 100"),
                               ("timeout", '[[ $4 != bash ]] || set -- -k 1 3 "${@:4}"\n'
                                           'exec %s "$@"' % shutil.which("timeout"))):
                with open(os.path.join(path, name), "w", encoding="utf-8") as file:
                    file.write("#!/usr/bin/env bash\n" + body + "\n")
                os.chmod(file.name, 0o755)
            done = run("facts", PATH=path + os.pathsep + os.environ["PATH"], **variables)
            self.assertEqual(done.returncode, 1)
            with open(os.path.join(variables["OUT"], "table.txt"), encoding="utf-8") as file:
                self.assertRegex(file.read(), r"part facts: HANGS, \d+ of 160 s\n")

    def test_no_command_outlives_its_part(self):
        with tempfile.TemporaryDirectory() as folder:
            variables = self.programs(folder, {"gpu_calls": "sleep 100", "test_cuda_gpu": ""})
            begin = time.monotonic()
            done = subprocess.run(["bash", SCRIPT, "--one", "calls", "10"], check=False, timeout=60,
                                  env=dict(os.environ, **variables), capture_output=True, text=True)
            self.assertLess(time.monotonic() - begin, 10)
            self.assertIn("calls: threads by launch, 2 ranks: HANGS\n", done.stdout)
            self.assertIn("calls: processes by worker, 4 ranks: not reached\n", done.stdout)

    @unittest.skipIf(importlib.util.find_spec("torch"), "PyTorch would be asked too")
    def test_fallback_looks_for_who_served(self):
        calls = 'echo "vm:1:1 [0] NCCL INFO AllReduce is served by ${SERVED:-$PITH_NCCL_FALLBACK}"'
        with tempfile.TemporaryDirectory() as folder:
            variables = self.programs(folder, {"gpu_calls": calls, "test_cuda_gpu": ""})
            done = run("fallback", OTHER_NCCL="/other/libnccl.so.2", **variables)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("1 AllReduce is served by /other/libnccl.so.2", done.stdout)
            done = run("fallback", OTHER_NCCL="/other/libnccl.so.2", SERVED="Pith", **variables)
            self.assertEqual(done.returncode, 1)
            self.assertIn("fallback: nothing went there", done.stdout)

    def test_the_safe_way_is_taken_first(self):
        facts = ('echo "under_free cuLaunchKernel: STUCK behind cuMemFree, 1 us"; '
                 'echo "served ended: yes (0.1 s)"')
        calls = 'echo "$5, $PITH_CUDA_STEPS"'
        with tempfile.TemporaryDirectory() as folder:
            variables = self.programs(folder, {"driver_facts": facts, "gpu_calls": calls,
                                               "test_cuda_gpu": ""})
            os.makedirs(variables["OUT"])
            done = run("facts", "calls", **variables)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            ways = re.findall(r"^\w+ by (\w+), (\w+)$", done.stdout, re.M)
            self.assertEqual(ways, [("worker", "worker")] * 6 + [("launch", "launch")] * 6)
            self.assertIn("steps, the safe way first: worker launch\n  against launch: a launch "
                          "waits behind a thread that is in cuMemFree", done.stdout)

    def test_what_may_hang_comes_last(self):
        body = """if [[ $1 != --list-tests ]]; then echo "ran $PITH_CUDA_STEPS $1"; exit 1; fi
            if [[ $4 == '~'* ]]; then echo '  sums'; else echo '  aborts'; fi"""
        with tempfile.TemporaryDirectory() as folder:
            variables = self.programs(folder, {"test_cuda_device": "echo '  kernels'",
                                               "test_cuda_gpu": body})
            done = run("tests", **variables)
            self.assertEqual(re.findall("^ran (.*)$", done.stdout, re.M),
                             ["launch sums", "worker sums", "launch aborts", "worker aborts"])
            self.assertIn("streams-worker: 0 of 2 cases passed", done.stdout)


class Steps(unittest.TestCase):
    def order(self, *facts):
        served = ["served ended: yes (0.1 s)"] if facts else []
        order, reasons = load_module("steps").choose([*facts, *served])
        return order[0], reasons

    def test_what_speaks_against_launches(self):
        known = "under_free cuEventQuery: answers, 1 us"
        for fact in ("under_free cuLaunchKernel: STUCK behind cuMemFree, and longer",
                     "under_free ended: HANGS in: cuLaunchKernel beside cuMemFree (5.0 s)",
                     "priorities 8 -1 streams wait; of 8 highest ones pass: writes of 0 STUCK",
                     "captured ended: exit status 2 (0.1 s)",
                     "conditional a wait in a conditional body: refused: CUDA_ERROR_NOT_SUPPORTED"):
            safe, reasons = self.order(known, fact)
            self.assertEqual((safe, len(reasons)), ("worker", 1), fact)
            self.assertIn(fact.split(": ", 1)[1], reasons[0])

    def test_what_hangs_outweighs_what_is_slow(self):
        known = "under_free cuLaunchKernel: STUCK behind cuMemFree, 1 us"
        slow = "beside_kernel kernel to host: median 2000.0 us, 99% 2000.0 us"
        few = "served resident kernels at once: 1 of 2"
        self.assertEqual(self.order(known, slow)[0], "worker")
        conditional = "conditional a write in a conditional body: refused: CUDA_ERROR"
        self.assertEqual(self.order(conditional, few)[0], "launch")
        self.assertEqual(self.order(conditional, slow)[0], "launch")


class CuPy(unittest.TestCase):
    def test_ids_are_handed_on_as_they_are(self):
        for made in (b"\xff" * 128, tuple(range(-64, 64))):  # of CuPy 14, of 13
            cuda = types.SimpleNamespace(nccl=types.SimpleNamespace(get_unique_id=lambda: made))
            with mock.patch.dict(sys.modules, {"cupy": types.SimpleNamespace(cuda=cuda),
                                               "cupy.cuda": cuda}), \
                 tempfile.TemporaryDirectory() as folder:
                world = types.SimpleNamespace(
                    rank=0, shared_path=lambda name: os.path.join(folder, name))
                self.assertEqual(load_module("cupy_checks").shared_id(world), made)


class Table(unittest.TestCase):
    def lines(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            table = load_module("table")
            return table.lines_of(table.collect(folder))

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

    def test_sparse_beside_the_other(self):
        rows = [{"way": way, "ranks": ranks, "bytes": size, "type": kind, "us": us, "of_copy": 0}
                for ranks in (2, 4)
                for way, size, kind, us in (("NVIDIA, sockets", 8, "float32", 1.0),
                                            ("Pith, tcp, 1 %", 8, "float32", 1.0),
                                            ("NVIDIA, sockets", 400, "float32", 600.0),
                                            ("NVIDIA, sockets", 200, "bfloat16", 350.0),
                                            ("Pith, tcp, 1 %", 400, "float32", 50.0))]
        shaped = [dict(row, way=row["way"] + ", 10 Gbit/s", us=10 * row["us"]) for row in rows]
        shaped[-1]["us"] = 400.0
        text = "\n".join(map(json.dumps, rows + shaped))
        lines = self.lines({"peers.json": text})
        self.assertIn("sparse of 4, 10 Gbit/s, 100 elements: NVIDIA float32 / ours 15.00  "
                      "target 10.00", lines)
        self.assertEqual(lines[-4:], [f"sparse of {ranks}, 100 elements: NVIDIA {told}"
                                      for ranks in (2, 4)
                                      for told in ("float32 / ours 12.00  target 10.00",
                                                   "bfloat16 / ours 7.00  target 5.00")])
        self.assertIn("NVIDIA, sockets, 2 ranks, 200 B of bfloat16: 350.0 us", lines)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
