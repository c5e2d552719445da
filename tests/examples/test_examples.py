#!/usr/bin/env python3
"""Runs the programs of tools/examples, as their README.md says, and without a launcher.
Usage: test_examples.py BUILD_FOLDER"""
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
PROGRAMS = BUILD / "bin" / "examples"
LIMIT_S = 100

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PITH_")}
ENVIRONMENT |= {"PITH_IFNAME": "lo", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(command, **variables):
    done = subprocess.run([str(word) for word in command], env=ENVIRONMENT | variables,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT_S, check=False)
    return done.returncode, done.stdout


def run_ranks(ranks, *command):
    """Status and output of each rank, started by hand."""
    root = f"127.0.0.1:{free_port()}"
    processes = [subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True,
                                  env=ENVIRONMENT | {"PITH_RANK": str(rank), "PITH_ROOT": root,
                                                     "PITH_SIZE": str(ranks)})
                 for rank in range(ranks)]
    outputs = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    return [process.returncode for process in processes], outputs


class Examples(unittest.TestCase):
    def check_learnt(self, status, told, ranks):
        self.assertEqual(status, 0, told)
        self.assertIn(f"{ranks} processes, error 0.63", told)
        errors = [float(error) for error in re.findall(r"step \d+: error ([\d.]+)", told)]
        self.assertEqual(len(errors), 4, told)
        self.assertLess(errors[-1], 0.3, told)
        sent = [float(part) for part in re.findall(r"([\d.]+)% of the gradient sent", told)]
        self.assertTrue(all(4.9 < part <= 5.1 * ranks for part in sent), told)
        self.assertIn("the weights are equal on all ranks", told)

    def test_many_processes(self):
        status, told = run_ranks(3, PROGRAMS / "many_processes")
        self.check_learnt(max(status), told[0], 3)
        self.assertEqual(told[1:], ["", ""])
        status, told = run([PROGRAMS / "many_processes"])
        self.assertEqual(status, 1)
        self.assertIn("no launcher has said which rank this is", told)

    def test_many_processes_under_mpirun(self):
        mpirun = shutil.which("mpirun")
        if not mpirun:
            self.skipTest("no mpirun here")
        self.check_learnt(*run([mpirun, "-n", "2", PROGRAMS / "many_processes"]), 2)

    def check_survivors(self, outputs, names):
        for name, told in zip(names, outputs):
            self.assertRegex(told, rf"rank {name}: step (9|10): rank 1")
            self.assertIn(f"rank {name}: {len(names)} ranks have finished, state 210", told)

    def test_recovery(self):
        status, told = run_ranks(4, PROGRAMS / "recovery", 1)
        self.assertEqual([status[rank] for rank in (0, 2, 3)], [0, 0, 0], told)
        self.check_survivors([told[0], told[2], told[3]], (0, 2, 3))
        status, told = run_ranks(2, PROGRAMS / "recovery")
        self.assertEqual(status, [0, 0], told)
        self.assertIn("rank 1: 2 ranks have finished, state 210", told[1])

    def test_recovery_under_mpirun(self):
        mpirun = shutil.which("mpirun.openmpi")
        if not mpirun:
            self.skipTest("no Open MPI here")
        _, told = run([mpirun, "--enable-recovery", "-n", 3, PROGRAMS / "recovery", 1])
        self.check_survivors([told, told], (0, 2))

    def test_nccl_program(self):
        status, told = run([PROGRAMS / "nccl_program"])
        self.assertNotEqual(status, 0)
        self.assertIn("NCCL 9.99.99", told)
        self.assertIn("this library does nothing", told)
        status, told = run([PROGRAMS / "nccl_program"],
                           LD_PRELOAD=str(BUILD / "lib" / "libnccl.so.2"))
        self.assertEqual(status, 0, told)
        self.assertEqual(sorted(told.splitlines()),
                         ["NCCL 2.28.9", "rank 0: the sum is 3, rank 1 has 2",
                          "rank 1: the sum is 3, rank 1 has 2"])


if __name__ == "__main__":
    unittest.main(verbosity=0)
