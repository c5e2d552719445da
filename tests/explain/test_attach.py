#!/usr/bin/env python3
"""pith-explain --attach at running jobs. Usage: ... BIN_FOLDER"""
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from programs import BIN, clean, run

# Calls until there is a file `end` in the folder. Given: rank, folder, library.
RANK = """
import ctypes, os, sys, time
lib = ctypes.CDLL(sys.argv[3])
rank, folder = int(sys.argv[1]), sys.argv[2]
comm = ctypes.c_void_p()
def must(result):
    assert result == 0, ctypes.string_at(lib.pithGetLastError(None))
lib.pithGetLastError.restype = ctypes.c_void_p
if "PITH_ROOT" in os.environ:
    must(lib.pithCommInitEnv(ctypes.byref(comm)))
else:
    class Id(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 128)]
    id, path = Id(), folder + "/id"
    if rank == 0:
        must(lib.pithGetUniqueId(ctypes.byref(id)))
        with open(path + ".part", "wb") as file:
            file.write(bytes(id))
        os.rename(path + ".part", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb") as file:
        ctypes.memmove(ctypes.byref(id), file.read(), 128)
    lib.pithCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
    must(lib.pithCommInitRank(ctypes.byref(comm), 2, id, rank))
value = (ctypes.c_float * 1024)()
all_reduce = lib.pithAllReduce
all_reduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                       ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
ended = False
while not ended:
    value[0] = os.path.exists(folder + "/end")
    must(all_reduce(value, value, 1024, 7, 0, comm, None))
    ended = value[0] > 0
must(lib.pithCommDestroy(comm))
"""


class Attached(unittest.TestCase):
    """pith-explain --attach at a job that was not started for it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, **variables):
        library = BIN.parent / "lib" / "libpith.so"
        ranks = []
        for rank in range(2):
            own = {"PITH_RANK": str(rank), **variables} if variables else {}
            ranks.append(subprocess.Popen(
                [sys.executable, "-c", RANK, str(rank), self.folder, str(library)],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                env=clean({**own, "PITH_LOG": "info"})))
            self.addCleanup(ranks[-1].stderr.close)
            self.addCleanup(ranks[-1].wait)
            self.addCleanup(ranks[-1].kill)
        for line in ranks[0].stderr:
            found = re.search(r"pith-explain --attach (\S+)", line)
            if found:
                return ranks, found[1]
        self.fail("rank 0 does not say where it can be watched")

    def attached(self, *arguments, **variables):
        watching = subprocess.Popen([str(BIN / "pith-explain"), "--attach", *arguments],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    env=clean(variables))
        self.addCleanup(watching.stderr.close)
        self.addCleanup(watching.stdout.close)
        self.addCleanup(watching.wait)
        self.addCleanup(watching.kill)
        return watching

    def end(self, ranks):
        pathlib.Path(self.folder, "end").touch()
        for rank in ranks:
            rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 0)

    def test_by_the_environment(self):
        with socket.socket() as port:
            port.bind(("127.0.0.1", 0))
            root = f"127.0.0.1:{port.getsockname()[1]}"
        job = {"PITH_SIZE": "2", "PITH_ROOT": root, "PITH_SECRET": "of this job"}
        ranks, where = self.start(**job)
        # Who is not of the job, and who never reads, holds up nobody.
        stranger = self.attached(where, PITH_RANK="0", **{**job, "PITH_SECRET": "another"})
        self.assertIn("does not know the secret", stranger.communicate(timeout=60)[1])
        self.assertEqual(stranger.returncode, 1)
        stuck = self.attached(where, PITH_RANK="0", **job)
        stuck.send_signal(signal.SIGSTOP)
        watching = self.attached(where, PITH_RANK="0", **job)
        said = ""
        while "allreduce of up to 4K bytes" not in said or said.count("written") < 2:
            line = watching.stdout.readline()
            self.assertTrue(line, said)
            said += line
        self.assertRegex(said, r"written \d+ s ago, while calls could run")
        self.end(ranks)
        rest, errors = watching.communicate(timeout=60)
        self.assertEqual(watching.returncode, 0, errors)
        self.assertRegex(said + rest, "when the communicator ended|while calls could run")

    def test_by_an_id(self):
        ranks, where = self.start()
        watching = self.attached(where, "--id", f"{self.folder}/id")
        said = ""
        while "allreduce of up to 4K bytes" not in said:
            line = watching.stdout.readline()
            self.assertTrue(line, said)
            said += line
        self.end(ranks)
        self.assertEqual(watching.wait(timeout=60), 0)

    def test_mistakes(self):
        none = run("pith-explain", "--attach", "127.0.0.1:1")
        self.assertEqual(none.returncode, 1)
        self.assertIn("--attach needs the job's secret: expected --id FILE, or a rank's",
                      none.stderr)
        path = f"{self.folder}/id"
        pathlib.Path(path).write_bytes(b"x" * 128)
        self.assertIn(f"--id is {path}: id is not one from pithGetUniqueId",
                      run("pith-explain", "--attach", "127.0.0.1:1", "--id", path).stderr)
        pathlib.Path(path).write_bytes(b"x")
        self.assertIn(f"--id is {path}, a file of 1 bytes, expected the 128",
                      run("pith-explain", "--attach", "127.0.0.1:1", "--id", path).stderr)
        job = {"PITH_RANK": "0", "PITH_SIZE": "2", "PITH_ROOT": "127.0.0.1:1"}
        self.assertIn("--attach is there, expected HOST:PORT",
                      run("pith-explain", "--attach", "there", **job).stderr)
        self.assertIn("expected no other flag with it but --id",
                      run("pith-explain", "--attach", "127.0.0.1:1", "--json", **job).stderr)
        self.assertNotEqual(run("pith-explain", "--id", path).returncode, 0)

if __name__ == "__main__":
    unittest.main()
