"""The scripts for Slurm and ssh, with stand-ins for srun, scontrol and ssh: all ranks are here."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "tools" / "python" / "examples"
PROGRAM = """
import sys
import torch
import torch.distributed as dist
import pith.torch

dist.init_process_group("pith")
x = torch.full((3,), float(dist.get_rank() + 1))
dist.all_reduce(x)
sys.stdout.write(f"rank {dist.get_rank()} {x.tolist()} {sys.argv[1:]}\\n")  # at once, as a whole
dist.destroy_process_group()
"""
STAND_INS = {
    "scontrol": 'test "$*" = "show hostnames 127.0.0.[1-2]" && printf "127.0.0.1\\n127.0.0.2\\n"',
    "srun": """
shift # its own option
for rank in 0 1; do SLURM_PROCID=$rank SLURM_NTASKS=2 SLURM_LOCALID=0 "$@" & pids+=" $!"; done
for pid in $pids; do wait "$pid" || exit 1; done""",
    "ssh": 'cd / && test "$1" = 127.0.0.1 && exec sh -c "$2"',
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in {**STAND_INS, "python3": f'exec "{sys.executable}" "$@"'}.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    (tmp_path / "program.py").write_text(PROGRAM)
    return dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}", OMP_NUM_THREADS="1")


def check(command: list[str], environment: dict[str, str], folder: Path) -> None:
    options = {"capture_output": True, "text": True, "timeout": 600, "check": False}
    done = subprocess.run(command, env=environment, cwd=folder, **options)
    assert done.returncode == 0, done.stderr
    expected = [f"rank {rank} [3.0, 3.0, 3.0] ['an argument', '$x']" for rank in (0, 1)]
    assert sorted(done.stdout.splitlines()) == expected


def test_slurm(environment: dict[str, str], tmp_path: Path) -> None:
    environment |= {"SLURM_JOB_NODELIST": "127.0.0.[1-2]", "SLURM_JOB_ID": str(os.getpid())}
    script = str(EXAMPLES / "ranks.sbatch")
    check(["bash", script, "program.py", "an argument", "$x"], environment, tmp_path)


def test_ssh(environment: dict[str, str], tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        environment["MASTER_PORT"] = str(probe.getsockname()[1])
    script = str(EXAMPLES / "ssh_ranks.sh")
    hosts = ["127.0.0.1:2", "--"]
    check([script, *hosts, "program.py", "an argument", "$x"], environment, tmp_path)


def test_ssh_usage() -> None:
    script = str(EXAMPLES / "ssh_ranks.sh")
    done = subprocess.run([script, "host"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "usage: ssh_ranks.sh HOST" in done.stderr
