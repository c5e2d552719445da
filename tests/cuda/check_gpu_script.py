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
import unittest

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


class Table(unittest.TestCase):
    def lines(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            table = load_module("table")
            return table.lines_of(table.collect(folder))

    def test_calls_beside_targets(self):
        rows = [{"way": "threads", "ranks": 2, "bytes": size, "us": 10.0, "of_copy": 0.6}
                for size in (8, 1 << 20, 64 << 20)]
        text = "\n".join(map(json.dumps, rows)) + '\n{"way": "thr'
        lines = self.lines({"calls.json": text})
        self.assertEqual([line.split("target")[1:] for line in lines], [[" 15 us"], [], [" 0.50"]])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
