#!/usr/bin/env python3
"""Ranks started by real launchers, where they are installed. Usage: ... ENV_RANK [ALL_REDUCE_PERF]

Open MPI and MPICH may both be installed, so each is called by a name that is its own. Without any
launcher the test is skipped, but with PITH_TEST_FULL: then these two must be there.
"""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

ENV_RANK = str(pathlib.Path(sys.argv.pop(1)).resolve())
PERF = str(pathlib.Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 else None
SKIPPED = 77  # what ctest takes for it
FULL = bool(os.environ.get("PITH_TEST_FULL"))
FOREIGN = ("PITH_", "OMPI_", "PMI", "SLURM_", "MPI_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_")


def environment(**variables):
    own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**own, "PITH_INIT_TIMEOUT": "30", "PITH_IFNAME": "lo", **variables}


def open_mpi(ranks):
    # Root and more ranks than cores are refused by default; neither matters to a test.
    return ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]


def mpich(ranks):
    return ["mpiexec.hydra", "-n", str(ranks)]


def torchrun(ranks):
    return [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks),
            "--no_python", "--standalone"]


def srun(ranks):
    return ["srun", "-n", str(ranks), "--overcommit"]


def why_not(launcher):
    """Why a launcher cannot be tested here; None where it can."""
    if launcher is torchrun:
        return None if importlib.util.find_spec("torch") else "torch is not installed"
    program = launcher(1)[0]
    if not shutil.which(program):
        return f"{program} is not installed"
    if launcher is srun and subprocess.run(["sinfo"], capture_output=True, check=False).returncode:
        return "srun is there, a cluster is not"
    return None


def run(command, **variables):
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False,
                          env=environment(**variables))


LAUNCHERS = [launcher for launcher in (open_mpi, mpich, torchrun, srun) if not why_not(launcher)]


class Launchers(unittest.TestCase):
    @unittest.skipUnless(FULL, "PITH_TEST_FULL is not set")
    def test_open_mpi_and_mpich_are_there(self):
        self.assertIn(open_mpi, LAUNCHERS, why_not(open_mpi))
        self.assertIn(mpich, LAUNCHERS, why_not(mpich))

    def test_ranks_meet(self):
        for launcher in LAUNCHERS:
            for ranks in (1, 2, 5):
                print(f"{launcher.__name__}, {ranks} ranks", flush=True)
                done = run(launcher(ranks) + [ENV_RANK])
                self.assertEqual(done.returncode, 0, done.stderr)
                lines = sorted(re.findall(r"rank \d+ of \d+: sum \d+", done.stdout))
                total = ranks * (ranks + 1) // 2
                wanted = [f"rank {r} of {ranks}: sum {total}" for r in range(ranks)] * 2
                self.assertEqual(lines, sorted(wanted))

    def test_by_hand_goes_first(self):
        for launcher in LAUNCHERS:
            done = run(launcher(1) + [ENV_RANK], PITH_RANK="0", PITH_SIZE="2")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("PITH_ROOT", done.stderr)

    def test_a_rank_that_never_joins(self):
        # Rank 1 of each job is another program, which ends at once.
        for launcher in (open_mpi, mpich):
            if launcher not in LAUNCHERS:
                continue
            with self.subTest(launcher.__name__):
                command = launcher(1) + [ENV_RANK, ":", "-n", "1", "sleep", "4"]
                begin = time.monotonic()
                done = run(command, PITH_INIT_TIMEOUT="1")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("not all ranks of the job came within 1 s (PITH_INIT_TIMEOUT)",
                              done.stderr)
                self.assertLess(time.monotonic() - begin, 30)

    def test_perf_program(self):
        if not PERF:
            self.skipTest("the perf programs are not built")
        for launcher in LAUNCHERS:
            done = run(launcher(2) + [PERF, "-b", "8", "-e", "64K", "-f", "8", "-n", "2"])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"Out of bounds values : 0 OK")
            # One job of two, not two of one.
            self.assertEqual(re.findall(r"(?m)^#  Rank +(\d+) ", done.stdout), ["0", "1"])

    def test_perf_programs_that_miss_their_launcher(self):
        if not PERF or open_mpi not in LAUNCHERS:
            self.skipTest("there is no perf program or no Open MPI")
        pod = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        for ranks, variables, words in (((), {"PITH_LAUNCHER": "srun"}, "no launcher has said"),
                                        (("--ranks", "2"), pod, "two launchers disagree")):
            with self.subTest(variables):
                done = run(open_mpi(2) + [PERF, *ranks, "-b", "8", "-e", "8"], **variables)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)
                self.assertNotIn("#  Rank", done.stdout)


if __name__ == "__main__":
    for absent in (open_mpi, mpich, torchrun, srun):
        if why_not(absent):
            print(f"not tested under {absent.__name__}: {why_not(absent)}", flush=True)
    if not LAUNCHERS and not FULL:
        print("skipped: there is no launcher here")
        sys.exit(SKIPPED)
    unittest.main()
