#!/usr/bin/env python3
"""Runs the shell lines of README.md and docs/ that one machine can run; the others are named here,
with the reason. A line that is neither run nor named fails.
Usage: test_shell_lines.py SOURCE_FOLDER BUILD_FOLDER"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()

# By their beginnings: why they are not run.
LEFT_OUT = {
    "./pith": "builds and tests all, of which this is a part",
    "cc prog.c -I": "run_readme_example.sh does that",
    "cc prog.c $(pkg-config": "tests/packaging does that",
    "mpirun -n 2 ./prog": "tests/docs runs that program",
    "pip install": "tests/python installs the wheel",
    "cmake --install": "tests/packaging does that",
    "srun": "needs Slurm",
    "torchrun": "needs PyTorch",
    "PITH_RANK=0": "has another host's address",
    "PITH_SECRET=": "has another host's address",
    "LD_PRELOAD=": "is about a program of the reader's; tests/nccl has such ones",
    "PITH_COMPRESS": "settings, which tests/nccl uses",
    "PITH_NCCL_FALLBACK": "needs NVIDIA's library",
    "PITH_EXPLAIN_LOG=": "is about a program of the reader's",
    "build/bin/pith-explain --log": "needs a job's file; tests/explain has one",
    "perf/regret.py": "takes minutes; tests/perf runs it",
    "build/bin/pith-explain --attach": "needs a running job; tests/explain has one",
    "pithCommShrink": "is C",
    "mpirun -n 2 python": "tests/python runs that program, from the package",
    "mpirun --enable-recovery": "takes a program of the reader's",
    "mpiexec -disable-auto-cleanup": "takes a program of the reader's",
}
RUN = ("mpirun -n 4 build/bin/all_reduce_perf", "build/bin/")
# So large a size takes long where two cores are shared.
SHORTER = {"-e 64M": "-e 256K"}


PAGES = [SOURCE / "README.md", *sorted((SOURCE / "docs").glob("*.md"))]


def lines(page):
    """Indented blocks outside of fences, and what stands in backticks in the text and looks so."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    for line in text.splitlines():
        if line.startswith("    ") and not line.startswith("    #"):
            yield line.partition("  #")[0].strip()
    flowing = re.sub(r"\s+", " ", re.sub(r"(?m)^    .*$", "", text))
    for code in re.findall(r"`([^`]+)`", flowing):
        if re.match(r"(build/bin/\S+ -|\./pith |mpirun |mpiexec |srun -|torchrun -|cmake -)", code):
            yield code


class ShellLines(unittest.TestCase):
    def test_all(self):
        self.assertGreater(len(list(lines(SOURCE / "README.md"))), 8)
        unused = set(LEFT_OUT)
        for page, line in [(page, line) for page in PAGES for line in lines(page)]:
            with self.subTest(line, page=page.name):
                reasons = {start for start in LEFT_OUT if line.startswith(start)}
                unused -= reasons
                if reasons:
                    continue
                self.assertTrue(line.startswith(RUN), "neither run nor named here")
                self.run_line(line)
        self.assertEqual(unused, set(), "no line begins so")

    def run_line(self, line):
        words = line.split()
        if not line.startswith("build/bin/") and not shutil.which(words[0]):
            self.skipTest(f"no {words[0]} here")
        for long, short in SHORTER.items():
            line = line.replace(long, short)
        if not (BUILD / "bin" / re.search(r"build/bin/(\S+)", line)[1]).exists():
            self.skipTest("it is not built here")
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMPI_MCA_rmaps_base_oversubscribe": "1", "PITH_IFNAME": "lo"}
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(BUILD, os.path.join(folder, "build"))
            done = subprocess.run(["sh", "-c", line], cwd=folder, env=environment, timeout=60,
                                  capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-1000:] + done.stderr[-1000:])
        if "all_reduce_perf" in line:
            told = re.findall(r"(?m)^#  Rank +(\d+) ", done.stdout)
            ranks = int(re.search(r" (?:-n|--ranks) (\d+) ", line)[1])
            self.assertEqual(told, [str(rank) for rank in range(ranks)])


if __name__ == "__main__":
    unittest.main(verbosity=0)
