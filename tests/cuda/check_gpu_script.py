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

    def test_a_failed_build_makes_no_pack(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("nvcc", "cmake"):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write("#!/usr/bin/env bash\nexit 3\n")
                os.chmod(path, 0o755)
            pack = os.path.join(folder, "pack")
            done = run("--prebuild", PATH=folder + os.pathsep + os.environ["PATH"], GPU_PACK=pack,
                       GPU_TREE=os.path.join(folder, "tree"))
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(os.listdir(pack), [])

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

    def test_results_are_handed_over_before_the_next_part(self):
        facts = 'echo "a b: 1"'
        calls = 'ls -1 "$OUT"; exit 1'
        with tempfile.TemporaryDirectory() as folder:
            variables = self.programs(folder, {"driver_facts": facts, "gpu_calls": calls,
                                               "test_cuda_gpu": ""})
            os.makedirs(variables["OUT"])
            done = run("facts", "calls", **variables)
            self.assertIn("gpu: failed: calls", done.stdout)
            self.assertIn("results.tar.gz\ntable.txt", done.stdout)

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

    def test_a_part_that_hangs_is_told_and_the_next_runs(self):
        calls = 'echo "$1 $2" >>"$3.begun"; [[ $1 != threads ]] || sleep 100'
        with tempfile.TemporaryDirectory() as folder:
            variables = self.programs(folder, {"driver_facts": 'echo "a b: 1"', "gpu_calls": calls,
                                               "test_cuda_gpu": ""})
            os.makedirs(variables["OUT"])
            # Every limit of a command in a part becomes two seconds.
            path = os.path.join(folder, "path")
            os.makedirs(path)
            with open(os.path.join(path, "timeout"), "w", encoding="utf-8") as file:
                file.write("#!/usr/bin/env bash\n[[ $4 != */gpu_calls ]] || set -- -k 5 2 "
                           '"${@:4}"\nexec %s "$@"\n' % shutil.which("timeout"))
            os.chmod(file.name, 0o755)
            done = run("calls", "facts", PATH=path + os.pathsep + os.environ["PATH"], **variables)
            self.assertEqual(done.returncode, 1)
            with open(os.path.join(variables["OUT"], "table.txt"), encoding="utf-8") as file:
                table = file.read()
            self.assertIn("part calls: threads by worker, 4 ranks: HANGS\n", table)
            self.assertNotIn("processes", table)
            self.assertRegex(table, r"part calls: FAILED \(1\), \d+ of 240 s\n")
            self.assertRegex(table, r"part facts: ok, \d+ of 160 s\n")

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

    def test_earlier_results_are_no_failure(self):
        """Where cp says by its status that it has kept what is newer."""
        with tempfile.TemporaryDirectory() as folder:
            variables = self.programs(folder, {"driver_facts": 'echo "a b: 1"',
                                               "test_cuda_gpu": ""})
            os.makedirs(os.path.join(folder, "pack", "results"))
            path = os.path.join(folder, "path")
            os.makedirs(path)
            with open(os.path.join(path, "cp"), "w", encoding="utf-8") as file:
                file.write("#!/usr/bin/env bash\n%s \"$@\"\n[[ $1 != -rn ]]\n" %
                           shutil.which("cp"))
            os.chmod(file.name, 0o755)
            done = run("facts", PATH=path + os.pathsep + os.environ["PATH"], **variables)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("part facts: ok", done.stdout)

    def test_no_command_outlives_its_part(self):
        with tempfile.TemporaryDirectory() as folder:
            variables = self.programs(folder, {"gpu_calls": "sleep 100", "test_cuda_gpu": ""})
            begin = time.monotonic()
            done = subprocess.run(["bash", SCRIPT, "--one", "calls", "10"], check=False, timeout=60,
                                  env=dict(os.environ, **variables), capture_output=True, text=True)
            self.assertLess(time.monotonic() - begin, 10)
            self.assertIn("calls: threads by launch, 2 ranks: HANGS\n", done.stdout)
            self.assertIn("calls: processes by worker, 4 ranks: not reached\n", done.stdout)

    def clients(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "clients.json")
            done = subprocess.run(
                [sys.executable, os.path.join(os.path.dirname(SCRIPT), "clients.py"), "--device",
                 "cpu", "--json", path, *arguments], capture_output=True, text=True, check=False)
            with open(path, encoding="utf-8") as file:
                return done.returncode, json.load(file)

    def test_clients_say_what_they_cannot(self):
        status, fates = self.clients("graphs", "fallback")
        self.assertEqual((status, set(fates.values())), (0, {"skipped: needs a GPU"}))

    @unittest.skipUnless(importlib.util.find_spec("torch"), "no PyTorch")
    def test_clients_not_reached_are_failures(self):
        status, fates = self.clients("--seconds", "1", "sums")
        self.assertEqual((status, fates), (1, {"sums": "not reached"}))

    def nccl_tests(self, folder, body):
        """Parts of the pack that others made: two programs, and an mpirun that starts one."""
        variables = self.programs(folder, {"test_cuda_gpu": ""})
        for path, text in (("nccl-tests/all_reduce_perf", body),
                           ("openmpi/bin/mpirun", 'while [[ $1 != */* || $1 == *=* ]]; do shift; '
                                                  'done; exec "$@"')):
            path = os.path.join(folder, "pack", path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/usr/bin/env bash\n" + text + "\n")
        return variables

    def test_nccl_tests_of_the_pack(self):
        body = """echo "# Out of bounds values : 0 OK"; echo "# Avg bus bandwidth    : 12.5"
                  echo "in $OPAL_PREFIX" """
        with tempfile.TemporaryDirectory() as folder:
            variables = self.nccl_tests(folder, body)
            os.makedirs(variables["OUT"])
            done = run("nccltests", **variables)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn(f"in {folder}/pack/openmpi", done.stdout)
            self.assertIn("nccl-tests all_reduce -b 8 -e 64M -f 8: out of bounds 0 OK, 12.5 GB/s",
                          done.stdout)

    def test_nccl_tests_that_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("nccltests", **self.nccl_tests(folder, "exit 1"))
            self.assertEqual(done.returncode, 1)
            self.assertIn("all_reduce -b 8 -e 64M -f 8: FAILED (1)", done.stdout)

    def test_peers_say_that_links_are_unshaped(self):
        calls = 'printf \'{"way": "%s", "ranks": %d, "bytes": 8, "us": 1.0}\\n\' "$5" "$2" >>"$3"'
        with tempfile.TemporaryDirectory() as folder:
            variables = self.programs(folder, {"gpu_calls": calls, "test_cuda_gpu": ""})
            path = os.path.join(folder, "path")
            os.makedirs(path)
            os.makedirs(variables["OUT"])
            with open(os.path.join(path, "unshare"), "w", encoding="utf-8") as file:
                file.write("#!/usr/bin/env bash\necho not allowed >&2; exit 1\n")
            os.chmod(file.name, 0o755)
            done = run("peers", PATH=path + os.pathsep + os.environ["PATH"], **variables)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("peers: unshaped, links of 10 Gbit/s cannot be had: not allowed",
                          done.stdout)
            self.assertIn("Pith, tcp, 4 ranks", done.stdout)

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

    def test_a_failing_part_is_told(self):
        done = run("calls", GPU_STUB="/nonexistent", CALLS_MOST_BYTES="8", PITH_CHUNK="nonsense")
        self.assertEqual(done.returncode, 1)
        self.assertIn("gpu: failed: calls", done.stdout)

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

    def test_nothing_known(self):
        self.assertEqual(self.order(), ("launch", ["the facts that decide are not known"]))

    def test_nothing_bad(self):
        facts = ("under_free cuLaunchKernel: answers, 2.0 us", "captured ended: yes (1.0 s)",
                 "queues 64 usual streams wait; of 8 highest ones pass: writes of 8",
                 "queues 8 usual streams wait; of 8 usual ones pass: writes of 7 STUCK",
                 "conditional a write in a conditional body: captured; runs: success",
                 "served resident kernels at once: 4 of 4", "beside_kernel ended: yes (0.1 s)",
                 "beside_kernel kernel to host: median 9.0 us, 99% 20000.0 us")
        self.assertEqual(self.order(*facts), ("launch", ["nothing speaks against either"]))

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

    def test_facts_that_end_early(self):
        order, reasons = load_module("steps").choose(["under_free cuLaunchKernel: STUCK"])
        self.assertEqual((order[0], len(reasons)), ("launch", 2))

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

    def test_nothing(self):
        self.assertEqual(self.lines({}), ["nothing measured"])

    def test_facts_that_tell(self):
        lines = self.lines({"facts.txt": "a b: 1\na c: STUCK\na ended: HANGS in: x (5.0 s)\n"})
        self.assertEqual(lines[1:], ["  a c: STUCK", "  a ended: HANGS in: x (5.0 s)"])

    def test_code_that_spills(self):
        def told(name, numbers, used=""):
            stack, stored, loaded = numbers
            return (f"ptxas info    : Function properties for {name}\n    {stack} bytes stack "
                    f"frame, {stored} bytes spill stores, {loaded} bytes spill loads\n{used}")
        used = "ptxas info    : Used %d registers, used 1 barriers\n"
        share = "void pith::cuda::run_share<pith::cuda::Select<float, true>, pith::cuda::" \
                "DeviceBlock<256u> >(pith::cuda::DeviceBlock<256u> const&, unsigned int)"
        text = told("pith_worker", (288, 112, 196), used % 128) + told(share, (0, 96, 32)) + \
            told("pith_copy", (0, 0, 0), used % 33)
        self.assertEqual(self.lines({"resources.txt": text}), [
            "code of pith_worker: 128 registers, 288 B of stack, spills 112 B stored, 196 B loaded",
            "code of pith_worker's Select<float, true>: 0 B of stack, spills 96 B stored, 32 B "
            "loaded",
            "code of 1 other functions: no spills, at most 33 registers"])

    def test_queued_calls(self):
        row = {"way": "threads", "ranks": 2, "bytes": 8, "us": 4.0, "queued": 16}
        self.assertEqual(self.lines({"calls.json": json.dumps(row)}),
                         ["all-reduce of 2 threads, 8 B: 4.0 us, one of 16 queued"])
        self.assertEqual(self.lines({"peers.json": json.dumps(row)}),
                         ["threads, 2 ranks, 8 B of float32: 4.0 us, one of 16 queued"])

    def test_clients_of_both_ways(self):
        self.assertEqual(self.lines({"clients-worker.json": '{"sums": "ok"}'}),
                         ["client-worker sums: ok"])

    def test_failed_cases(self):
        rule = "-" * 79
        text = f"{rule}\ngpu: one\n{rule}\nfile:1\n{rule}\ngpu: one\n{rule}\n" \
               "test cases: 2 | 1 passed | 1 failed\n"
        self.assertEqual(self.lines({"streams-worker.txt": text}),
                         ["streams-worker: test cases: 2 | 1 passed | 1 failed",
                          "  failed: gpu: one"])
        self.assertEqual(self.lines({"tests.txt": "cut off"}), ["tests: ended early"])

    def test_cases_with_processes_of_their_own(self):
        text = "case one: ok\nnoise\ncase two, long: HANGS\ncase three: FAILED (42)\n" \
               "case four: not reached\n"
        self.assertEqual(self.lines({"tests.txt": text}),
                         ["tests: 1 of 4 cases passed", "  failed: two, long: HANGS",
                          "  failed: three: FAILED (42)", "  failed: four: not reached"])

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
